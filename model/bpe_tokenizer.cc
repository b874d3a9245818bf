// SPDX-License-Identifier: Apache-2.0
#include "model/bpe_tokenizer.h"

#include "common/error.h"
#include "model/byte_alphabet.h"
#include "model/sha256.h"

#include <algorithm>
#include <utility>

namespace rift::model {
namespace {

constexpr std::string_view kEndNames[] = {
    "<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<|end_of_text|>"};

// Two files of one tokenizer may pad the table to different lengths, so the end does not count.
// Kinds that give the same bytes for the same text are not told apart.
std::string hash_of(std::span<const TokenEntry> tokens) {
  std::size_t count = tokens.size();
  while (count > 0 && tokens[count - 1].kind == TokenKind::kUnused) {
    --count;
  }
  Sha256 sha;
  for (const TokenEntry& token : tokens.first(count)) {
    const bool unused = token.kind == TokenKind::kUnused;
    const char* kind = unused ? "u" : token.kind == TokenKind::kControl ? "c" : "t";
    const std::string_view text = unused ? std::string_view() : token.text;
    sha.update(fmt::format("{}{}:", kind, text.size()));
    sha.update(text);
  }
  return sha.hex();
}

// Texts in the byte alphabet become bytes; others already are.
std::vector<TokenEntry> to_bytes(std::vector<TokenEntry> tokens) {
  for (TokenEntry& token : tokens) {
    if (token.kind == TokenKind::kText) {
      if (auto bytes = bytes_of_token_text(token.text)) {
        token.text = std::move(*bytes);
      }
    }
  }
  return tokens;
}

}  // namespace

void WordFinder::add(std::string word, TokenId id) {
  if (word.empty()) {
    return;
  }
  auto& words = by_first_byte_[static_cast<unsigned char>(word[0])];
  const std::size_t length = word.size();
  const auto at = std::find_if(
      words.begin(), words.end(), [&](const auto& other) { return other.first.size() < length; });
  words.emplace(at, std::move(word), id);
}

WordFinder::Match WordFinder::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const auto& [word, id] : by_first_byte_[static_cast<unsigned char>(text[at])]) {
      if (text.substr(at, word.size()) == word) {
        return {at, word.size(), id};
      }
    }
  }
  return {text.size(), 0, 0};
}

BpeTokenizer::BpeTokenizer(TokenizerData data)
    : tokens_(to_bytes(std::move(data.tokens))),
      pretokenizer_(data.patterns),
      ignore_merges_(data.ignore_merges),
      bos_(data.bos),
      adds_bos_(data.adds_bos),
      end_of_generation_(std::move(data.end_of_generation)),
      chat_template_(std::move(data.chat_template)),
      bpe_((index_tokens(), build_bpe(data))),
      hash_(hash_of(tokens_)) {
  add_known_ends();
}

void BpeTokenizer::index_tokens() {
  text_ids_.reserve(tokens_.size());
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    const TokenEntry& token = tokens_[i];
    const auto id = static_cast<TokenId>(i);
    switch (token.kind) {
      case TokenKind::kText:
        text_ids_.try_emplace(token.text, id);
        break;
      case TokenKind::kControl:
        control_ids_.try_emplace(token.text, id);
        user_defined_and_control_.add(token.text, id);
        break;
      case TokenKind::kUserDefined:
        user_defined_.add(token.text, id);
        user_defined_and_control_.add(token.text, id);
        break;
      case TokenKind::kUnused:
        break;
    }
  }
}

Bpe BpeTokenizer::build_bpe(const TokenizerData& data) const {
  const auto id_of = [&](std::string_view bytes) {
    const auto it = text_ids_.find(bytes);
    return it == text_ids_.end() ? TokenId{-1} : it->second;
  };
  std::array<TokenId, 256> byte_tokens{};
  for (std::size_t byte = 0; byte < byte_tokens.size(); ++byte) {
    const char c = static_cast<char>(byte);
    byte_tokens[byte] = id_of({&c, 1});
  }
  Bpe bpe(byte_tokens);
  bpe.reserve(data.merges.size());
  for (std::size_t i = 0; i < data.merges.size(); ++i) {
    const std::string_view merge = data.merges[i];
    const std::size_t space = merge.find(' ', 1);
    const auto left = bytes_of_token_text(merge.substr(0, space));
    const auto right =
        bytes_of_token_text(space == merge.npos ? std::string_view() : merge.substr(space + 1));
    const TokenId left_id = left ? id_of(*left) : -1;
    const TokenId right_id = right ? id_of(*right) : -1;
    const TokenId merged_id = left && right ? id_of(*left + *right) : -1;
    if (left_id < 0 || right_id < 0 || merged_id < 0) {
      throw fail(Errc::kCorrupt,
                 "{}: merge {} ('{}') names a token that is not in the vocabulary",
                 data.source,
                 i,
                 merge.substr(0, 80));
    }
    bpe.add_merge(left_id, right_id, merged_id);
  }
  return bpe;
}

void BpeTokenizer::add_known_ends() {
  for (const std::string_view name : kEndNames) {
    if (const auto id = control_id(name)) {
      end_of_generation_.push_back(*id);
    }
  }
  std::sort(end_of_generation_.begin(), end_of_generation_.end());
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  for (const std::string_view piece : pretokenizer_.split(text)) {
    if (ignore_merges_) {
      if (const auto it = text_ids_.find(piece); it != text_ids_.end()) {
        out.push_back(it->second);
        continue;
      }
    }
    bpe_.encode(piece, out);
  }
}

std::vector<TokenId> BpeTokenizer::encode(std::string_view text, bool parse_special) const {
  const WordFinder& words = parse_special ? user_defined_and_control_ : user_defined_;
  std::vector<TokenId> ids;
  for (std::size_t done = 0; done < text.size();) {
    const auto match = words.find(text, done);
    if (match.at > done) {
      encode_plain(text.substr(done, match.at - done), ids);
    }
    if (match.length > 0) {
      ids.push_back(match.id);
    }
    done = match.at + match.length;
  }
  return ids;
}

const TokenEntry* BpeTokenizer::entry(TokenId id) const {
  return id >= 0 && id < size() ? &tokens_[static_cast<std::size_t>(id)] : nullptr;
}

std::string_view BpeTokenizer::piece(TokenId id) const {
  const TokenEntry* token = entry(id);
  const bool has_bytes = token != nullptr && (token->kind == TokenKind::kText ||
                                              token->kind == TokenKind::kUserDefined);
  return has_bytes ? std::string_view(token->text) : std::string_view();
}

std::string_view BpeTokenizer::control_name(TokenId id) const {
  const TokenEntry* token = entry(id);
  const bool control = token != nullptr && token->kind == TokenKind::kControl;
  return control ? std::string_view(token->text) : std::string_view();
}

std::optional<TokenId> BpeTokenizer::control_id(std::string_view name) const {
  const auto it = control_ids_.find(name);
  return it == control_ids_.end() ? std::nullopt : std::optional(it->second);
}

bool BpeTokenizer::is_end_of_generation(TokenId id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

}  // namespace rift::model
