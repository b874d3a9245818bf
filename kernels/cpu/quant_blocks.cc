// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/quant_blocks.h"

#include "common/check.h"
#include "common/f16.h"

#include <cmath>
#include <cstring>

namespace rift::kernels {
namespace {

using Bytes = const std::uint8_t*;

float load_f16(Bytes at) { return f16_to_f32(static_cast<std::uint16_t>(at[0] | (at[1] << 8))); }

std::uint8_t low(std::uint8_t byte) { return byte & 0x0FU; }
std::uint8_t high(std::uint8_t byte) { return static_cast<std::uint8_t>(byte >> 4); }
/// Bits [shift, shift + width) of a byte, moved up to bit 4.
std::uint8_t upper(unsigned byte, int shift, unsigned mask) {
  return static_cast<std::uint8_t>(((byte >> shift) & mask) << 4);
}

/// 16 bytes hold 32 nibbles: byte j elements j and j + 16.
void unpack_nibbles(Bytes from, std::uint8_t* q) {
  for (int j = 0; j < 16; ++j) {
    q[j] = low(from[j]);
    q[j + 16] = high(from[j]);
  }
}

/// Bit j of the four bytes at `from` is bit 4 of element j.
void add_fifth_bits(Bytes from, std::uint8_t* q) {
  for (int j = 0; j < 32; ++j) {
    q[j] |= upper(from[j / 8], j % 8, 1);
  }
}

void unpack_q8_0(Bytes b, std::uint8_t* q, float* scale, float* offset) {
  scale[0] = load_f16(b);
  offset[0] = 0.0F;
  std::memcpy(q, b + 2, 32);
}

/// Q4_K and Q5_K: eight 6-bit scales and minima in 12 bytes.
void unpack_k_scales(Bytes b, float* scale, float* offset) {
  const float d = load_f16(b);
  const float min = load_f16(b + 2);
  Bytes s = b + 4;
  for (int j = 0; j < 8; ++j) {
    unsigned scale_bits = s[j] & 63U;
    unsigned min_bits = s[j + 4] & 63U;
    if (j >= 4) {
      scale_bits = low(s[j + 4]) | ((unsigned{s[j - 4]} >> 6U) << 4U);
      min_bits = high(s[j + 4]) | ((unsigned{s[j]} >> 6U) << 4U);
    }
    scale[j] = d * static_cast<float>(scale_bits);
    offset[j] = -(min * static_cast<float>(min_bits));
  }
}

/// Byte l of part p (64 elements) holds elements 64 p + l and 64 p + 32 + l.
void unpack_k_nibbles(Bytes from, std::uint8_t* q) {
  for (int part = 0; part < 4; ++part) {
    for (int l = 0; l < 32; ++l) {
      q[64 * part + l] = low(from[32 * part + l]);
      q[64 * part + 32 + l] = high(from[32 * part + l]);
    }
  }
}

void unpack_q5_k(Bytes b, std::uint8_t* q, float* scale, float* offset) {
  unpack_k_scales(b, scale, offset);
  unpack_k_nibbles(b + 48, q);
  for (int group = 0; group < 8; ++group) {
    for (int l = 0; l < 32; ++l) {
      q[32 * group + l] |= upper(b[16 + l], group, 1);
    }
  }
}

void unpack_q6_k(Bytes b, std::uint8_t* q, float* scale, float* offset) {
  const float d = load_f16(b + 208);
  for (int half = 0; half < 2; ++half) {
    Bytes lows = b + 64 * half;
    Bytes highs = b + 128 + 32 * half;
    std::uint8_t* out = q + 128 * half;
    for (int l = 0; l < 32; ++l) {
      out[l] = low(lows[l]) | upper(highs[l], 0, 3);
      out[l + 32] = low(lows[l + 32]) | upper(highs[l], 2, 3);
      out[l + 64] = high(lows[l]) | upper(highs[l], 4, 3);
      out[l + 96] = high(lows[l + 32]) | upper(highs[l], 6, 3);
    }
  }
  for (int group = 0; group < 16; ++group) {
    scale[group] = d * static_cast<float>(static_cast<std::int8_t>(b[192 + group]));
    offset[group] = -32.0F * scale[group];
  }
}

template <typename Half>
void widen(const std::byte* from, std::int64_t count, float* out, Half to_float) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, from + 2 * i, sizeof(bits));
    out[i] = to_float(bits);
  }
}

void dequantize_blocks(DType type, const std::byte* from, std::int64_t count, float* out) {
  const QuantFormat format = quant_format(type);
  const std::size_t bytes = block_bytes(type);
  const bool is_signed = type == DType::kQ8_0;
  std::uint8_t q[kMaxBlock];
  float scale[kMaxBlockGroups];
  float offset[kMaxBlockGroups];
  for (std::int64_t at = 0; at < count; at += format.block) {
    unpack_block(type, from, q, scale, offset);
    for (int i = 0; i < format.block; ++i) {
      const int group = i / format.group;
      const int value = is_signed ? static_cast<std::int8_t>(q[i]) : q[i];
      // The product is exact in f64 and the sum nearly always is: one rounding to f32.
      out[at + i] = static_cast<float>(static_cast<double>(scale[group]) * value + offset[group]);
    }
    from += bytes;
  }
}

}  // namespace

QuantFormat quant_format(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return {};
    case DType::kQ4_0:
    case DType::kQ4_1:
      return {32, 32, 4};
    case DType::kQ5_0:
    case DType::kQ5_1:
      return {32, 32, 5};
    case DType::kQ8_0:
      return {32, 32, 8};
    case DType::kQ4_K:
      return {256, 32, 4};
    case DType::kQ5_K:
      return {256, 32, 5};
    case DType::kQ6_K:
      return {256, 16, 6};
  }
  RIFT_CHECK(false, "DType {}", static_cast<int>(type));
}

void unpack_block(
    DType type, const std::byte* block, std::uint8_t* q, float* scale, float* offset) {
  const auto* b = reinterpret_cast<Bytes>(block);
  switch (type) {
    case DType::kQ4_0:
      scale[0] = load_f16(b);
      offset[0] = -8.0F * scale[0];
      unpack_nibbles(b + 2, q);
      return;
    case DType::kQ4_1:
      scale[0] = load_f16(b);
      offset[0] = load_f16(b + 2);
      unpack_nibbles(b + 4, q);
      return;
    case DType::kQ5_0:
      scale[0] = load_f16(b);
      offset[0] = -16.0F * scale[0];
      unpack_nibbles(b + 6, q);
      add_fifth_bits(b + 2, q);
      return;
    case DType::kQ5_1:
      scale[0] = load_f16(b);
      offset[0] = load_f16(b + 2);
      unpack_nibbles(b + 8, q);
      add_fifth_bits(b + 4, q);
      return;
    case DType::kQ8_0:
      unpack_q8_0(b, q, scale, offset);
      return;
    case DType::kQ4_K:
      unpack_k_scales(b, scale, offset);
      unpack_k_nibbles(b + 16, q);
      return;
    case DType::kQ5_K:
      unpack_q5_k(b, q, scale, offset);
      return;
    case DType::kQ6_K:
      unpack_q6_k(b, q, scale, offset);
      return;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  RIFT_CHECK(false, "{} has no blocks", to_string(type));
}

void dequantize(DType type, const std::byte* from, std::int64_t count, float* out) {
  if (type == DType::kF32) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * sizeof(float));
  } else if (type == DType::kF16) {
    widen(from, count, out, [](std::uint16_t h) { return f16_to_f32(h); });
  } else if (type == DType::kBF16) {
    widen(from, count, out, [](std::uint16_t h) { return bf16_to_f32(h); });
  } else {
    dequantize_blocks(type, from, count, out);
  }
}

}  // namespace rift::kernels
