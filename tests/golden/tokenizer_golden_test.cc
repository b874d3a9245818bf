// SPDX-License-Identifier: Apache-2.0
// Ids given by other implementations: the published models' own tokenizers (gguf_reference.json and
// replay/), and the `tokenizers` library (tests/golden/tokenizer/, generate.py states its version).
// Ids are exact.
#include "model/chat.h"
#include "model/sha256.h"
#include "model/tokenizer.h"
#include "tests/golden/golden_json.h"
#include "tests/golden/published_model.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace rift::model {
namespace {

namespace json = boost::json;

const std::filesystem::path kFixtures = RIFT_TOKENIZER_FIXTURES;

std::vector<TokenId> ids_of(const json::value& value) {
  return json::value_to<std::vector<TokenId>>(value);
}

json::value fixture() { return json::parse(testing::read_bytes(kFixtures / "pairs.json")); }

void expect_pairs(const Tokenizer& tokenizer, const json::value& pairs, bool parse_special) {
  ASSERT_GT(pairs.as_array().size(), 100U);
  for (const json::value& pair : pairs.as_array()) {
    const std::string text(pair.at(0).as_string());
    EXPECT_EQ(tokenizer.encode(text, parse_special), ids_of(pair.at(1))) << pair.at(0);
  }
}

// The published pair of models; see RIFT_NEED_MODEL.
class RealTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::model_path("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
    RIFT_NEED_MODEL(path);
    static const auto shared = Tokenizer::open(path, {});
    tokenizer_ = shared;
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(RealTokenizer, GivesTheIdsOfTheReferencePrompts) {
  const json::value golden = testing::golden_json("gguf_reference.json");
  const json::value& model = golden.at("models").at(0);
  ASSERT_EQ(model.at("sha256").as_string(),
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32");
  for (const json::value& prompt : model.at("prompts").as_array()) {
    const std::string text(prompt.at("text").as_string());
    EXPECT_EQ(tokenizer_->encode(text, false), ids_of(prompt.at("ids"))) << prompt.at("name");
  }
  const auto text = ids_of(model.at("nll").at("ids"));
  EXPECT_EQ(tokenizer_->encode(tokenizer_->decode(text), false), text);
}

TEST_F(RealTokenizer, GivesTheIdsOfTheTokenizersLibrary) {
  const json::value pairs = fixture().at("qwen2");
  expect_pairs(*tokenizer_, pairs.at("plain"), false);
  expect_pairs(*tokenizer_, pairs.at("special"), true);
}

class Replay : public RealTokenizer, public ::testing::WithParamInterface<const char*> {
 protected:
  json::value golden_ = testing::golden_json(std::string("replay/") + GetParam() + ".json");

  // The user's message, between the control tokens of its turn.
  [[nodiscard]] std::string user_message() const {
    const auto prompt = ids_of(golden_.at("prompt"));
    const auto start = tokenizer_->control_id("<|im_start|>").value();
    const auto end = tokenizer_->control_id("<|im_end|>").value();
    const auto turn = std::find(prompt.begin() + 1, prompt.end(), start);
    const std::string text =
        tokenizer_->decode(std::vector(turn, std::find(turn, prompt.end(), end)));
    EXPECT_TRUE(text.starts_with("user\n"));
    return text.substr(5);
  }
};

TEST_P(Replay, PromptIsRenderedFromItsMessage) {
  const std::string content = user_message();
  const auto format = detect_chat_format(tokenizer_->chat_template());
  EXPECT_EQ(format, ChatFormat::kChatMl);
  const std::vector<ChatMessage> messages{{"user", content}};
  EXPECT_EQ(render_chat(*tokenizer_, format, messages, true), ids_of(golden_.at("prompt")));
}

TEST_P(Replay, PromptQuotesItsSourcesByteForByte) {
  const std::string content = user_message();
  EXPECT_TRUE(content.ends_with(golden_.at("task").as_string().c_str()));
  for (const json::value& source : golden_.at("sources").as_array()) {
    const std::string heading =
        "### " + std::string(source.at("file").as_string()) + "\n```python\n";
    const std::size_t begin = content.find(heading);
    ASSERT_NE(begin, std::string::npos) << heading;
    if (source.at("lines_used") != source.at("lines")) {
      continue;  // cut: the whole file's checksum says nothing
    }
    const std::size_t from = begin + heading.size();
    const std::string quoted = content.substr(from, content.find("```\n\n", from) - from);
    Sha256 sha;
    sha.update(quoted);
    EXPECT_EQ(sha.hex(), source.at("sha256").as_string()) << heading;
  }
}

TEST_P(Replay, ResponseIsEncodedAsTheModelWroteIt) {
  // A model need not write canonical tokens; these responses happen to, up to the cut at the end.
  const auto response = ids_of(golden_.at("response"));
  EXPECT_EQ(tokenizer_->encode(tokenizer_->decode(response), false), response);
}

INSTANTIATE_TEST_SUITE_P(All,
                         Replay,
                         ::testing::Values("explain_locks", "rewrite_queue", "tests_csv"));

class TrainedTokenizer : public ::testing::TestWithParam<const char*> {};

TEST_P(TrainedTokenizer, GivesTheIdsOfTheTokenizersLibrary) {
  const json::value pairs = fixture().at(GetParam());
  const auto file = kFixtures / std::string(pairs.at("file").as_string());
  expect_pairs(*Tokenizer::open(file, {}), pairs.at("special"), true);
}

INSTANTIATE_TEST_SUITE_P(All, TrainedTokenizer, ::testing::Values("digits_gpt2", "llama3"));

}  // namespace
}  // namespace rift::model
