// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "common/error.h"

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace rift::cli {
namespace {

using ::testing::HasSubstr;

class TokenizerCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "tokenizer.json")
        << R"({"added_tokens":[{"id":3,"content":"<s>","special":true}],)"
           R"("pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE",)"
           R"("vocab":{"a":0,"b":1,"ab":2,"<":4,"s":5,">":6},"merges":["a b"]}})";
    std::ofstream(folder_ / "tokenizer_config.json") << R"({"bos_token":"<s>"})";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What the command writes to stdout; errors leave as they are thrown.
  std::string run(std::vector<std::string> arguments) {
    CLI::App app;
    int exit_code = kExitOk;
    add_tokenizer_commands(app, exit_code);
    arguments.insert(arguments.begin() + 1, {"-m", folder_.string()});
    std::reverse(arguments.begin(), arguments.end());
    ::testing::internal::CaptureStdout();
    try {
      app.parse(arguments);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      throw;
    }
    return ::testing::internal::GetCapturedStdout();
  }

  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) /
                                  ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(TokenizerCommands, TokenizePrintsAJsonArray) {
  EXPECT_EQ(run({"tokenize", "-p", "aba"}), "[2, 0]\n");
  EXPECT_EQ(run({"tokenize", "-p", ""}), "[]\n");
}

TEST_F(TokenizerCommands, TokenizeTakesControlTokensOnRequestOnly) {
  EXPECT_EQ(run({"tokenize", "-p", "<s>a"}), "[4, 5, 6, 0]\n");
  EXPECT_EQ(run({"tokenize", "--special", "-p", "<s>a"}), "[3, 0]\n");
  EXPECT_EQ(run({"tokenize", "--bos", "-p", "a"}), "[3, 0]\n");
}

TEST_F(TokenizerCommands, DetokenizePrintsTheBytesAlone) {
  EXPECT_EQ(run({"detokenize", "-p", "[3, 2, 0]"}), "aba");
  EXPECT_EQ(run({"detokenize", "--special", "-p", "[3, 2, 0]"}), "<s>aba");
}

TEST_F(TokenizerCommands, ReadAFile) {
  std::ofstream(folder_ / "text") << "ab";
  EXPECT_EQ(run({"tokenize", "-f", (folder_ / "text").string()}), "[2]\n");
  EXPECT_THROW(run({"tokenize", "-f", (folder_ / "absent").string()}), Error);
}

TEST_F(TokenizerCommands, RefuseIdsThatAreNone) {
  for (const char* ids :
       {"[7]", "[-1]", "[1.5]", "[\"a\"]", "{}", "[", "", "[18446744073709551615]"}) {
    EXPECT_THROW(run({"detokenize", "-p", ids}), Error) << ids;
  }
  try {
    run({"detokenize", "-p", "[0, 7]"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("entry 1"));
    EXPECT_THAT(error.message(), HasSubstr("0 to 6"));
  }
}

TEST_F(TokenizerCommands, AskForExactlyOneInput) {
  EXPECT_THROW(run({"tokenize"}), CLI::ParseError);
  EXPECT_THROW(run({"tokenize", "-p", "a", "-f", "b"}), CLI::ParseError);
}

TEST_F(TokenizerCommands, NameThePreTokenizersThatAnOverrideCanBe) {
  try {
    run({"tokenize", "--pre", "nonsense", "-p", "a"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("qwen2"));
  }
}

}  // namespace
}  // namespace rift::cli
