// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "eval/prompt_set.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/temporary_folder.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// A tokenizer whose tokens are single bytes of ASCII, ChatML control tokens beside them.
void write_tokenizer(const fs::path& folder) {
  json::object vocabulary;
  std::int64_t id = 0;
  for (int c = '!'; c <= '~'; ++c) {
    vocabulary[std::string(1, static_cast<char>(c))] = id++;
  }
  vocabulary["\xC4\xA0"] = id++;  // a space in the byte alphabet
  vocabulary["\xC4\x8A"] = id++;  // a newline
  json::array added;
  for (const char* name : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back(json::object{{"id", id++}, {"content", name}, {"special", true}});
  }
  const json::object model{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array{}}};
  std::ofstream(folder / "tokenizer.json") << json::serialize(json::object{
      {"added_tokens", added}, {"pre_tokenizer", {{"type", "ByteLevel"}}}, {"model", model}});
  std::ofstream(folder / "tokenizer_config.json") << R"({"bos_token":"<|im_start|>"})";
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PromptsCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    write_tokenizer(folder_.path());
    fs::create_directories(folder_.path() / "sources");
    for (int i = 0; i < 4; ++i) {
      std::ofstream out(folder_.path() / "sources" / fmt::format("m{}.py", i));
      for (int f = 0; f < 20; ++f) {
        out << "def f" << i << "_" << f << "(x):\n";
        for (int line = 0; line < 20; ++line) {
          out << "    y" << line << " = x + " << line << "\n";
        }
      }
    }
  }

  void run(std::vector<std::string> arguments) {
    CLI::App app;
    int exit_code = kExitOk;
    add_prompts_commands(app, exit_code);
    arguments.insert(
        arguments.begin(),
        {"prompts", "build", "-m", folder_.path().string(), "--chat-format", "chatml"});
    std::reverse(arguments.begin(), arguments.end());
    ::testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    ::testing::internal::GetCapturedStdout();
  }
  [[nodiscard]] std::string at(const char* name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
};

TEST_F(PromptsCommand, WritesASetAndItsRecipe) {
  run({"--tokens", "1000,2000", "--count", "2", "--sources", at("sources"), "-o", at("a.jsonl")});
  const auto prompts = eval::read_prompt_set(at("a.jsonl"));
  ASSERT_EQ(prompts.size(), 4U);
  // Every byte is a token. Around them: start, "user\n", end, "\n", start, "assistant\n".
  constexpr std::size_t kTemplate = 1 + 5 + 1 + 1 + 1 + 10;
  const json::object recipe = json::parse(read_file(at("a.recipe.json"))).as_object();
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::size_t wanted = i < 2 ? 1000 : 2000;
    const std::size_t tokens = prompts[i].text.size() + kTemplate;
    EXPECT_LE(tokens, wanted);
    EXPECT_GE(tokens, wanted - 12);
    const json::object& row = recipe.at("prompts").at(i).as_object();
    EXPECT_EQ(row.at("question_id").as_string(), prompts[i].id);
    EXPECT_EQ(row.at("tokens").to_number<std::size_t>(), tokens);
    EXPECT_EQ(row.at("sources").at(0).at("sha256").as_string().size(), 64U);
  }
  EXPECT_EQ(recipe.at("seed"), 1);
  EXPECT_EQ(recipe.at("model").at("chat_format"), "chatml");
}

TEST_F(PromptsCommand, GivesTheSameBytesForTheSameCommand) {
  run({"--tokens", "1500", "--sources", at("sources"), "-o", at("a.jsonl")});
  run({"--tokens", "1500", "--sources", at("sources"), "-o", at("b.jsonl")});
  EXPECT_EQ(read_file(at("a.jsonl")), read_file(at("b.jsonl")));
  EXPECT_EQ(read_file(at("a.recipe.json")), read_file(at("b.recipe.json")));
}

TEST_F(PromptsCommand, SaysHowToGoOnWithoutSources) {
  fs::create_directories(folder_.path() / "empty");
  expect_error(Errc::kNotFound, "name folders with *.py", [&] {
    run({"--tokens", "1000", "--sources", at("empty"), "-o", at("a.jsonl")});
  });
}

TEST_F(PromptsCommand, RefusesLengthsOutOfRange) {
  EXPECT_THROW(run({"--tokens", "999", "-o", at("a.jsonl")}), CLI::ValidationError);
  EXPECT_THROW(run({"--tokens", "100001", "-o", at("a.jsonl")}), CLI::ValidationError);
}

}  // namespace
}  // namespace rift::cli
