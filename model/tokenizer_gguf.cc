// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "model/gguf.h"
#include "model/pretokenizer.h"
#include "model/tokenizer_data.h"

#include <span>
#include <string_view>

namespace rift::model {
namespace {

std::span<const std::string_view> string_array(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr || value->type() != GgufType::kString || !value->is_array()) {
    throw fail(Errc::kCorrupt, "{}: {} is not an array of strings", file.name(), key);
  }
  return value->strings();
}

// Numbers as in the file; "unknown" behaves as a control token does.
TokenKind kind_of(std::int64_t number) {
  switch (number) {
    case 2:
    case 3:
      return TokenKind::kControl;
    case 4:
      return TokenKind::kUserDefined;
    case 5:
      return TokenKind::kUnused;
    default:
      return TokenKind::kText;
  }
}

std::vector<TokenEntry> read_tokens(const GgufFile& file) {
  const auto texts = string_array(file, "tokenizer.ggml.tokens");
  const GgufValue* kinds = file.find("tokenizer.ggml.token_type");
  if (kinds != nullptr && (!kinds->is_array() || kinds->size() != texts.size())) {
    throw fail(Errc::kCorrupt,
               "{}: tokenizer.ggml.token_type has {} entries for {} tokens",
               file.name(),
               kinds->size(),
               texts.size());
  }
  std::vector<TokenEntry> tokens;
  tokens.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto number = kinds == nullptr ? 1 : kinds->integer(i).value_or(1);
    TokenEntry entry{std::string(texts[i]), kind_of(number)};
    // Converters write padding as user-defined or as unused, depending on their age.
    if (entry.kind == TokenKind::kUserDefined && entry.text == fmt::format("[PAD{}]", i)) {
      entry.kind = TokenKind::kUnused;
    }
    tokens.push_back(std::move(entry));
  }
  return tokens;
}

std::optional<TokenId> token_id(const GgufFile& file, std::string_view key, std::size_t count) {
  const auto id = file.integer(key);
  if (!id) {
    return std::nullopt;
  }
  if (*id < 0 || static_cast<std::uint64_t>(*id) >= count) {
    throw fail(Errc::kCorrupt, "{}: {} is {}, of {} tokens", file.name(), key, *id, count);
  }
  return static_cast<TokenId>(*id);
}

void choose_pretokenizer(TokenizerData& data,
                         const GgufFile& file,
                         const std::optional<std::string>& override) {
  if (override) {
    use_pretokenizer(data, *override);
    return;
  }
  const auto name = file.string("tokenizer.ggml.pre");
  if (!name) {
    throw fail(Errc::kUnsupported,
               "{} does not name its pre-tokenizer (tokenizer.ggml.pre); choose one of {} with "
               "--pre",
               file.name(),
               known_pretokenizers());
  }
  use_pretokenizer(data, std::string(*name));
}

}  // namespace

void use_pretokenizer(TokenizerData& data, const std::string& name) {
  const NamedPreTokenizer* known = find_pretokenizer(name);
  if (known == nullptr) {
    throw fail(Errc::kUnsupported,
               "{}: pre-tokenizer '{}' is not known; choose one of {} with --pre",
               data.source,
               name,
               known_pretokenizers());
  }
  data.patterns = known->patterns;
  data.ignore_merges = known->ignore_merges;
}

TokenizerData read_tokenizer(const GgufFile& file, const std::optional<std::string>& pre) {
  const auto model = file.string("tokenizer.ggml.model");
  if (!model || *model != "gpt2") {
    throw fail(Errc::kUnsupported,
               "{}: tokenizer model '{}' is not supported, only 'gpt2' (byte-level BPE) is",
               file.name(),
               model.value_or("(none)"));
  }
  TokenizerData data;
  data.source = file.name();
  choose_pretokenizer(data, file, pre);
  data.tokens = read_tokens(file);
  const auto merges = string_array(file, "tokenizer.ggml.merges");
  data.merges.assign(merges.begin(), merges.end());
  const std::size_t count = data.tokens.size();
  data.bos = token_id(file, "tokenizer.ggml.bos_token_id", count);
  // The llama3 family's converters leave the flag out and mean "yes", as its tokenizer.json does.
  data.adds_bos =
      data.bos && file.boolean("tokenizer.ggml.add_bos_token").value_or(data.ignore_merges);
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const auto id = token_id(file, key, count)) {
      data.end_of_generation.push_back(*id);
    }
  }
  data.chat_template = file.string("tokenizer.chat_template").value_or("");
  return data;
}

}  // namespace rift::model
