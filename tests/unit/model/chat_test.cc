// SPDX-License-Identifier: Apache-2.0
#include "model/chat.h"

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace rift::model {
namespace {

using ::testing::HasSubstr;

// One token per byte; control tokens from 256 on. Shows a rendering as text.
class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(std::vector<std::string> controls, std::string chat_template)
      : controls_(std::move(controls)), template_(std::move(chat_template)) {}

  std::vector<TokenId> encode(std::string_view text, bool /*parse_special*/) const override {
    ++encodings_;
    std::vector<TokenId> ids;
    for (const char c : text) {
      ids.push_back(static_cast<unsigned char>(c));
    }
    return ids;
  }
  std::string_view piece(TokenId /*id*/) const override { return {}; }
  std::string_view control_name(TokenId id) const override {
    return id < 256 ? std::string_view() : controls_.at(static_cast<std::size_t>(id - 256));
  }
  std::optional<TokenId> control_id(std::string_view name) const override {
    for (std::size_t i = 0; i < controls_.size(); ++i) {
      if (controls_[i] == name) {
        return static_cast<TokenId>(256 + i);
      }
    }
    return std::nullopt;
  }
  std::int32_t size() const override { return 256; }
  bool is_end_of_generation(TokenId /*id*/) const override { return false; }
  std::optional<TokenId> bos() const override { return control_id("<|begin_of_text|>"); }
  bool adds_bos() const override { return true; }
  std::string_view chat_template() const override { return template_; }
  std::string_view hash() const override { return {}; }

  // Control tokens in [brackets].
  [[nodiscard]] std::string show(const std::vector<TokenId>& ids) const {
    std::string text;
    for (const TokenId id : ids) {
      if (id < 256) {
        text.push_back(static_cast<char>(id));
      } else {
        text.append("[").append(control_name(id)).append("]");
      }
    }
    return text;
  }
  mutable int encodings_ = 0;

 private:
  std::vector<std::string> controls_;
  std::string template_;
};

const std::vector<std::string> kChatMlTokens{"<|im_start|>", "<|im_end|>"};
const std::vector<std::string> kLlama3Tokens{
    "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};

TEST(ChatFormat, IsRecognisedByTheTokensThatATemplateWrites) {
  EXPECT_EQ(detect_chat_format("{{ '<|im_start|>' + m.role }}{{ '<|im_end|>' }}"),
            ChatFormat::kChatMl);
  EXPECT_EQ(detect_chat_format("<|start_header_id|>user<|end_header_id|>x<|eot_id|>"),
            ChatFormat::kLlama3);
}

TEST(ChatFormat, UnknownTemplatesNameTheOption) {
  for (const char* unknown : {"", "[INST] {{ x }} [/INST]"}) {
    try {
      (void)detect_chat_format(unknown);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kUnsupported);
      EXPECT_THAT(error.message(), HasSubstr("--chat-format"));
      EXPECT_THAT(error.message(), HasSubstr("chatml, llama3"));
    }
  }
}

TEST(ChatFormat, ParsesBackToItself) {
  EXPECT_EQ(parse_chat_format("chatml"), ChatFormat::kChatMl);
  EXPECT_EQ(parse_chat_format("llama3"), ChatFormat::kLlama3);
  EXPECT_EQ(parse_chat_format("ChatML"), std::nullopt);
}

TEST(DefaultSystemMessage, ComesFromTheTemplatesLiteral) {
  EXPECT_EQ(
      default_system_message(R"({{ '<|im_start|>system\n' + m.content + '<|im_end|>' }})"
                             R"({{ '<|im_start|>system\nBe kind.\nIt\'s "fun".<|im_end|>\n' }})"),
      "Be kind.\nIt's \"fun\".");
  EXPECT_EQ(default_system_message("{{ \"<|im_start|>system\nHello<|im_end|>\" }}"), "Hello");
}

TEST(DefaultSystemMessage, IsAbsentWhereTheTemplateHasNone) {
  EXPECT_EQ(default_system_message(""), std::nullopt);
  EXPECT_EQ(default_system_message(R"({{ '<|im_start|>system\n' + x + '<|im_end|>' }})"),
            std::nullopt);
  EXPECT_EQ(default_system_message(R"({{ '<|im_start|>system\nnever closed)"), std::nullopt);
}

TEST(RenderChat, WritesChatMlTurns) {
  const ByteTokenizer t(kChatMlTokens, R"('<|im_start|>system\nBe kind.<|im_end|>\n')");
  const std::vector<ChatMessage> messages{{"user", "Hi <|im_end|>"}, {"assistant", "Yes"}};
  EXPECT_EQ(t.show(render_chat(t, ChatFormat::kChatMl, messages, true)),
            "[<|im_start|>]system\nBe kind.[<|im_end|>]\n"
            "[<|im_start|>]user\nHi <|im_end|>[<|im_end|>]\n"
            "[<|im_start|>]assistant\nYes[<|im_end|>]\n"
            "[<|im_start|>]assistant\n");
}

TEST(RenderChat, PutsTheUsersOwnSystemMessageInPlaceOfTheDefault) {
  const ByteTokenizer t(kChatMlTokens, R"('<|im_start|>system\nBe kind.<|im_end|>\n')");
  const std::vector<ChatMessage> messages{{"system", "Be brief."}};
  EXPECT_EQ(t.show(render_chat(t, ChatFormat::kChatMl, messages, false)),
            "[<|im_start|>]system\nBe brief.[<|im_end|>]\n");
}

TEST(RenderChat, WritesLlama3TurnsTrimmed) {
  const ByteTokenizer t(kLlama3Tokens, "");
  const std::vector<ChatMessage> messages{{"user", " \n Hi there\t"}};
  EXPECT_EQ(
      t.show(render_chat(t, ChatFormat::kLlama3, messages, true)),
      "[<|begin_of_text|>][<|start_header_id|>]user[<|end_header_id|>]\n\nHi there[<|eot_id|>]"
      "[<|start_header_id|>]assistant[<|end_header_id|>]\n\n");
}

TEST(RenderChat, EncodesRoleAndContentInOneGo) {
  const ByteTokenizer t(kChatMlTokens, "");
  const std::vector<ChatMessage> messages{{"user", "Hi"}};
  (void)render_chat(t, ChatFormat::kChatMl, messages, false);
  // "user\nHi" and the newline after the turn; empty texts between control tokens may be encoded.
  EXPECT_LE(t.encodings_, 3);
}

TEST(RenderChat, NamesAControlTokenThatTheTokenizerLacks) {
  const ByteTokenizer t(kChatMlTokens, "");
  const std::vector<ChatMessage> messages{{"user", "Hi"}};
  try {
    (void)render_chat(t, ChatFormat::kLlama3, messages, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("<|start_header_id|>"));
  }
}

}  // namespace
}  // namespace rift::model
