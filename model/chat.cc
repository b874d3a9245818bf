// SPDX-License-Identifier: Apache-2.0
#include "model/chat.h"

#include "common/error.h"

namespace rift::model {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kStartHeader = "<|start_header_id|>";
constexpr std::string_view kEndHeader = "<|end_header_id|>";
constexpr std::string_view kEndOfTurn = "<|eot_id|>";

constexpr std::string_view kSpaces = " \t\n\r\f\v";

// Joins control tokens and plain text. Plain text is encoded in one go between two control tokens,
// as it is when a whole rendered template is tokenized.
class Renderer {
 public:
  explicit Renderer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void control(std::string_view name) {
    const auto id = tokenizer_.control_id(name);
    if (!id) {
      throw fail(Errc::kUnsupported,
                 "the tokenizer has no control token '{}', which this chat format needs; choose "
                 "another of {} with --chat-format",
                 name,
                 known_chat_formats());
    }
    flush();
    ids_.push_back(*id);
  }
  void start_token() {
    if (tokenizer_.bos()) {
      ids_.push_back(*tokenizer_.bos());
    }
  }
  void text(std::string_view more) { text_ += more; }

  std::vector<TokenId> take() {
    flush();
    return std::move(ids_);
  }

 private:
  void flush() {
    const auto ids = tokenizer_.encode(text_, false);
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    text_.clear();
  }

  const Tokenizer& tokenizer_;
  std::string text_;
  std::vector<TokenId> ids_;
};

void render_chatml(Renderer& out,
                   std::span<const ChatMessage> messages,
                   const std::optional<std::string>& default_system,
                   bool add_generation_prompt) {
  const auto turn = [&](std::string_view role, std::string_view content) {
    out.control(kStart);
    out.text(role);
    out.text("\n");
    out.text(content);
    out.control(kEnd);
    out.text("\n");
  };
  if (default_system && (messages.empty() || messages[0].role != "system")) {
    turn("system", *default_system);
  }
  for (const ChatMessage& message : messages) {
    turn(message.role, message.content);
  }
  if (add_generation_prompt) {
    out.control(kStart);
    out.text("assistant\n");
  }
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kSpaces);
  if (begin == text.npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

void render_llama3(Renderer& out,
                   std::span<const ChatMessage> messages,
                   bool add_generation_prompt) {
  const auto header = [&](std::string_view role) {
    out.control(kStartHeader);
    out.text(role);
    out.control(kEndHeader);
    out.text("\n\n");
  };
  out.start_token();
  for (const ChatMessage& message : messages) {
    header(message.role);
    out.text(trimmed(message.content));
    out.control(kEndOfTurn);
  }
  if (add_generation_prompt) {
    header("assistant");
  }
}

// Contents of a Jinja string literal, escapes resolved.
std::string unescaped(std::string_view literal) {
  std::string out;
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] == '\\' && i + 1 < literal.size()) {
      const char escaped = literal[++i];
      out.push_back(escaped == 'n' ? '\n' : escaped == 't' ? '\t' : escaped);
    } else {
      out.push_back(literal[i]);
    }
  }
  return out;
}

// True where the literal's own quote character stands unescaped in `text`: it ends there.
bool has_quote(std::string_view text, char quote) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string_view to_string(ChatFormat format) {
  switch (format) {
    case ChatFormat::kChatMl:
      return "chatml";
    case ChatFormat::kLlama3:
      return "llama3";
  }
  return "?";
}

std::optional<ChatFormat> parse_chat_format(std::string_view name) {
  for (const ChatFormat format : {ChatFormat::kChatMl, ChatFormat::kLlama3}) {
    if (to_string(format) == name) {
      return format;
    }
  }
  return std::nullopt;
}

std::string known_chat_formats() { return "chatml, llama3"; }

ChatFormat detect_chat_format(std::string_view chat_template) {
  const auto writes = [&](std::string_view token) {
    return chat_template.find(token) != chat_template.npos;
  };
  if (writes(kStart) && writes(kEnd)) {
    return ChatFormat::kChatMl;
  }
  if (writes(kStartHeader) && writes(kEndOfTurn)) {
    return ChatFormat::kLlama3;
  }
  throw fail(Errc::kUnsupported,
             "{}; choose one of {} with --chat-format",
             chat_template.empty() ? "the model file has no chat template"
                                   : "the model file's chat template is not known",
             known_chat_formats());
}

// The message is a string literal that opens a system turn and closes it itself; where the literal
// ends before <|im_end|>, the text comes from the conversation.
std::optional<std::string> default_system_message(std::string_view chat_template) {
  constexpr std::string_view kOpenings[] = {"<|im_start|>system\\n", "<|im_start|>system\n"};
  for (const std::string_view opening : kOpenings) {
    for (std::size_t at = chat_template.find(opening); at != chat_template.npos;
         at = chat_template.find(opening, at + 1)) {
      const char quote = at == 0 ? '\0' : chat_template[at - 1];
      const std::string_view rest = chat_template.substr(at + opening.size());
      const std::string_view text = rest.substr(0, rest.find(kEnd));
      const bool literal = quote == '\'' || quote == '"';
      const bool closed = text.size() < rest.size();
      if (literal && closed && !text.empty() && !has_quote(text, quote)) {
        return unescaped(text);
      }
    }
  }
  return std::nullopt;
}

std::vector<TokenId> render_chat(const Tokenizer& tokenizer,
                                 ChatFormat format,
                                 std::span<const ChatMessage> messages,
                                 bool add_generation_prompt) {
  Renderer out(tokenizer);
  switch (format) {
    case ChatFormat::kChatMl:
      render_chatml(
          out, messages, default_system_message(tokenizer.chat_template()), add_generation_prompt);
      break;
    case ChatFormat::kLlama3:
      render_llama3(out, messages, add_generation_prompt);
      break;
  }
  return out.take();
}

}  // namespace rift::model
