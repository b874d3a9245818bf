// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "model/tokenizer.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

enum class ChatFormat : std::uint8_t { kChatMl, kLlama3 };

[[nodiscard]] std::string_view to_string(ChatFormat format);
/// "chatml" or "llama3"; nothing for other names.
[[nodiscard]] std::optional<ChatFormat> parse_chat_format(std::string_view name);
/// The names, for messages.
[[nodiscard]] std::string known_chat_formats();

/// Recognises a file's template by the control tokens that it writes.
/// Errors (thrown): kUnsupported, naming --chat-format and the formats.
[[nodiscard]] ChatFormat detect_chat_format(std::string_view chat_template);

/// Text that a ChatML template puts into a system message where the conversation has none; nothing
/// where it adds none.
[[nodiscard]] std::optional<std::string> default_system_message(std::string_view chat_template);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

/// Ids of a conversation as the model's own template writes it, start token included where the
/// format has one. Control tokens come from the format alone: names of control tokens in a role or
/// a content stay plain text. add_generation_prompt: ends where the assistant's answer begins.
/// Errors (thrown): kUnsupported where the tokenizer lacks a control token of the format.
[[nodiscard]] std::vector<TokenId> render_chat(const Tokenizer& tokenizer,
                                               ChatFormat format,
                                               std::span<const ChatMessage> messages,
                                               bool add_generation_prompt);

}  // namespace rift::model
