// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rift {

// Axes, one alphabet everywhere: T new tokens, S cached positions, L layers, H query heads, G KV
// heads, D head dimension, C model dimension, F feed-forward dimension, V vocabulary, B budget,
// P positions per block.

using TokenId = std::int32_t;
/// Index of a token in its sequence, from 0.
using Position = std::int32_t;

enum class SessionId : std::uint64_t {};
/// Counts the refreshes of one session; 0 is the first working set.
enum class Epoch : std::uint32_t {};

/// Storage type of a tensor. Block formats as GGUF defines them.
enum class DType : std::uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

[[nodiscard]] std::string_view to_string(DType type);
/// Elements per block: 1 for plain types, 32 or 256 for quantised ones.
[[nodiscard]] std::int64_t block_elements(DType type);
/// Bytes of one block.
[[nodiscard]] std::size_t block_bytes(DType type);
/// Bytes of a row of `cols` elements; cols must be a multiple of block_elements(type).
[[nodiscard]] std::size_t row_bytes(DType type, std::int64_t cols);

/// Row-major view of floats: rows x cols, `stride` elements between row starts. Does not own.
template <typename T>
struct MatView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  MatView() = default;
  MatView(T* d, std::int64_t r, std::int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  MatView(T* d, std::int64_t r, std::int64_t c, std::int64_t s)
      : data(d), rows(r), cols(c), stride(s) {}

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }
  [[nodiscard]] std::span<T> row_span(std::int64_t i) const {
    return {row(i), static_cast<std::size_t>(cols)};
  }
};

}  // namespace rift
