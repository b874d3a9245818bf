// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/bpe.h"
#include "model/pretokenizer.h"
#include "model/tokenizer.h"
#include "model/tokenizer_data.h"

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rift::model {

/// Finds the leftmost, there the longest, of a set of words in a text. Immutable. Thread: any.
class WordFinder {
 public:
  void add(std::string word, TokenId id);

  struct Match {
    std::size_t at;  // text.size(): no word
    std::size_t length;
    TokenId id;
  };
  [[nodiscard]] Match find(std::string_view text, std::size_t from) const;

 private:
  std::array<std::vector<std::pair<std::string, TokenId>>, 256> by_first_byte_;  // longest first
};

/// Tokenizer over a vocabulary with GPT-2's byte alphabet. Immutable. Thread: any.
class BpeTokenizer final : public Tokenizer {
 public:
  /// Errors (thrown): kCorrupt (no tokens, a merge of unknown tokens, an id twice), kUnsupported.
  explicit BpeTokenizer(TokenizerData data);
  ~BpeTokenizer() override = default;
  BpeTokenizer(const BpeTokenizer&) = delete;  // the indices are views of tokens_
  BpeTokenizer& operator=(const BpeTokenizer&) = delete;

  std::vector<TokenId> encode(std::string_view text, bool parse_special) const override;
  std::string_view piece(TokenId id) const override;
  std::string_view control_name(TokenId id) const override;
  std::optional<TokenId> control_id(std::string_view name) const override;
  std::int32_t size() const override { return static_cast<std::int32_t>(tokens_.size()); }
  bool is_end_of_generation(TokenId id) const override;
  std::optional<TokenId> bos() const override { return bos_; }
  bool adds_bos() const override { return adds_bos_; }
  std::string_view chat_template() const override { return chat_template_; }
  std::string_view hash() const override { return hash_; }

 private:
  void index_tokens();
  [[nodiscard]] Bpe build_bpe(const TokenizerData& data) const;
  void add_known_ends();
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;
  [[nodiscard]] const TokenEntry* entry(TokenId id) const;

  std::vector<TokenEntry> tokens_;  // text: bytes of the token
  std::unordered_map<std::string_view, TokenId> text_ids_;
  std::unordered_map<std::string_view, TokenId> control_ids_;
  WordFinder user_defined_;
  WordFinder user_defined_and_control_;
  PreTokenizer pretokenizer_;
  bool ignore_merges_;
  std::optional<TokenId> bos_;
  bool adds_bos_;
  std::vector<TokenId> end_of_generation_;  // ascending
  std::string chat_template_;
  Bpe bpe_;
  std::string hash_;
};

}  // namespace rift::model
