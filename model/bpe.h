// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rift::model {

/// Byte-pair encoding: starts from one token per byte and merges, while it can, the adjacent pair
/// that was learned first (ties: the leftmost). Immutable after construction. Thread: any.
class Bpe {
 public:
  /// byte_tokens: the token of every single byte; negative where the vocabulary has none, and the
  /// byte is left out.
  explicit Bpe(const std::array<TokenId, 256>& byte_tokens) : byte_tokens_(byte_tokens) {}

  void reserve(std::size_t merges) { merges_.reserve(merges); }
  /// Adds the next merge in order of learning; a pair that is already known keeps its rank.
  void add_merge(TokenId left, TokenId right, TokenId merged);

  /// Appends the tokens of one piece. Cost: O(n log n) in its bytes.
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

 private:
  struct Merge {
    std::uint32_t rank;
    TokenId merged;
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const {
      pair *= 0x9E3779B97F4A7C15U;
      return static_cast<std::size_t>(pair ^ (pair >> 32));
    }
  };
  class Run;

  [[nodiscard]] const Merge* find(TokenId left, TokenId right) const;

  std::array<TokenId, 256> byte_tokens_;
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
};

}  // namespace rift::model
