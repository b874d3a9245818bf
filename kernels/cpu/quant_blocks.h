// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstddef>
#include <cstdint>

namespace rift::kernels {

/// How a block format stores its elements: w = scale[group] * q + offset[group], where q has `bits`
/// bits and is unsigned, except Q8_0's. Scales and offsets are exact in f32 for every format.
struct QuantFormat {
  int block = 0;  // elements per block
  int group = 0;  // elements that share a scale and an offset: 16 or 32
  int bits = 0;
};

inline constexpr int kMaxBlock = 256;
inline constexpr int kMaxBlockGroups = 16;
inline constexpr std::size_t kMaxBlockBytes = 210;  // of Q6_K

/// block == 0 for plain types.
[[nodiscard]] QuantFormat quant_format(DType type);

/// Takes one block apart: q [block] (the bytes of int8 for Q8_0), scale and offset [block / group].
void unpack_block(DType type, const std::byte* block, std::uint8_t* q, float* scale, float* offset);

/// `count` elements from the start of a block on; count is a multiple of the block. Exact but for
/// the one rounding to f32 that Q4_1, Q5_1 and the K formats need.
void dequantize(DType type, const std::byte* from, std::int64_t count, float* out);

}  // namespace rift::kernels
