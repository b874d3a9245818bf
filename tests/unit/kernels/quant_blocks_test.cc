// SPDX-License-Identifier: Apache-2.0
// One block of each format built element by element from its definition, bit by bit.
#include "kernels/matmul.h"
#include "tests/unit/kernels/fixture.h"

#include <gtest/gtest.h>

namespace rift::kernels {
namespace {

constexpr float kScale = 0.375F;  // f16 holds both exactly
constexpr float kMin = -1.25F;

/// A block under construction.
class Block {
 public:
  explicit Block(DType type) : type_(type), bytes_(block_bytes(type)) {}

  void f16(std::size_t at, float value) { put_f16(&bytes_[at], value); }
  /// Writes the low `width` bits of value at bit `shift` of byte `at`.
  void bits(std::size_t at, unsigned shift, unsigned width, unsigned value) {
    bytes_[at] |= static_cast<std::byte>((value & ((1U << width) - 1U)) << shift);
  }
  [[nodiscard]] std::vector<float> read() const {
    const std::int64_t cols = block_elements(type_);
    // Second of three rows, so that the row's place counts too.
    std::vector<std::byte> rows(bytes_.size(), std::byte{0xFF});
    rows.insert(rows.end(), bytes_.begin(), bytes_.end());
    rows.insert(rows.end(), bytes_.size(), std::byte{0xFF});
    std::vector<float> out(static_cast<std::size_t>(cols));
    dequantize_row({type_, 3, cols, rows.data()}, 1, out.data());
    return out;
  }

 private:
  DType type_;
  std::vector<std::byte> bytes_;
};

/// Some number below `limit` for element i, without a simple period.
unsigned quant(unsigned i, unsigned limit) { return (i * 37U + i / 5U + 11U) % limit; }

TEST(QuantBlocks, Q4HasTheLowHalfInTheLowNibbles) {
  Block symmetric(DType::kQ4_0);
  Block affine(DType::kQ4_1);
  symmetric.f16(0, kScale);
  affine.f16(0, kScale);
  affine.f16(2, kMin);
  for (unsigned i = 0; i < 32; ++i) {
    symmetric.bits(2 + i % 16, i < 16 ? 0 : 4, 4, quant(i, 16));
    affine.bits(4 + i % 16, i < 16 ? 0 : 4, 4, quant(i, 16));
  }
  for (unsigned i = 0; i < 32; ++i) {
    const auto q = static_cast<float>(quant(i, 16));
    EXPECT_EQ(symmetric.read()[i], kScale * (q - 8.0F));
    EXPECT_EQ(affine.read()[i], kScale * q + kMin);
  }
}

TEST(QuantBlocks, Q5KeepsFifthBitsInOneWord) {
  Block symmetric(DType::kQ5_0);
  Block affine(DType::kQ5_1);
  symmetric.f16(0, kScale);
  affine.f16(0, kScale);
  affine.f16(2, kMin);
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned q = quant(i, 32);
    symmetric.bits(2 + i / 8, i % 8, 1, q >> 4U);
    symmetric.bits(6 + i % 16, i < 16 ? 0 : 4, 4, q);
    affine.bits(4 + i / 8, i % 8, 1, q >> 4U);
    affine.bits(8 + i % 16, i < 16 ? 0 : 4, 4, q);
  }
  for (unsigned i = 0; i < 32; ++i) {
    const auto q = static_cast<float>(quant(i, 32));
    EXPECT_EQ(symmetric.read()[i], kScale * (q - 16.0F));
    EXPECT_EQ(affine.read()[i], kScale * q + kMin);
  }
}

TEST(QuantBlocks, Q8IsSignedBytes) {
  Block block(DType::kQ8_0);
  block.f16(0, kScale);
  for (unsigned i = 0; i < 32; ++i) {
    block.bits(2 + i, 0, 8, quant(i, 256));
  }
  for (unsigned i = 0; i < 32; ++i) {
    const auto q = static_cast<float>(quant(i, 256));
    EXPECT_EQ(block.read()[i], kScale * (q < 128.0F ? q : q - 256.0F));
  }
}

/// Eight 6-bit scales and minima in the 12 bytes from `at`: those of groups 0-3 in the low bits of
/// bytes 0-3 and 4-7; of groups 4-7 four bits in bytes 8-11 and two at the top of the others.
void put_k_scales(Block& block, std::size_t at) {
  for (unsigned j = 0; j < 8; ++j) {
    const unsigned scale = quant(j, 64);
    const unsigned min = quant(j + 8, 64);
    if (j < 4) {
      block.bits(at + j, 0, 6, scale);
      block.bits(at + 4 + j, 0, 6, min);
    } else {
      block.bits(at + 4 + j, 0, 4, scale);
      block.bits(at + 4 + j, 4, 4, min);
      block.bits(at + j - 4, 6, 2, scale >> 4U);
      block.bits(at + j, 6, 2, min >> 4U);
    }
  }
}

float k_value(unsigned i, unsigned q) {
  const auto scale = static_cast<float>(quant(i / 32, 64));
  const auto min = static_cast<float>(quant(i / 32 + 8, 64));
  return kScale * scale * static_cast<float>(q) - kMin * min;
}

TEST(QuantBlocks, Q4KHasTwoGroupsPerThirtyTwoBytes) {
  Block block(DType::kQ4_K);
  block.f16(0, kScale);
  block.f16(2, kMin);
  put_k_scales(block, 4);
  for (unsigned i = 0; i < 256; ++i) {
    block.bits(16 + i / 64 * 32 + i % 32, i % 64 < 32 ? 0 : 4, 4, quant(i, 16));
  }
  const std::vector<float> values = block.read();
  for (unsigned i = 0; i < 256; ++i) {
    EXPECT_EQ(values[i], k_value(i, quant(i, 16))) << i;
  }
}

TEST(QuantBlocks, Q5KHasABitPlanePerGroup) {
  Block block(DType::kQ5_K);
  block.f16(0, kScale);
  block.f16(2, kMin);
  put_k_scales(block, 4);
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned q = quant(i, 32);
    block.bits(16 + i % 32, i / 32, 1, q >> 4U);
    block.bits(48 + i / 64 * 32 + i % 32, i % 64 < 32 ? 0 : 4, 4, q);
  }
  const std::vector<float> values = block.read();
  for (unsigned i = 0; i < 256; ++i) {
    EXPECT_EQ(values[i], k_value(i, quant(i, 32))) << i;
  }
}

TEST(QuantBlocks, Q6KHasSignedScalesPerSixteen) {
  Block block(DType::kQ6_K);
  block.f16(208, kScale);
  for (unsigned j = 0; j < 16; ++j) {
    block.bits(192 + j, 0, 8, quant(j, 256));
  }
  for (unsigned i = 0; i < 256; ++i) {
    const unsigned q = quant(i, 64);
    const unsigned half = i / 128;
    const unsigned quarter = i % 128 / 32;
    block.bits(64 * half + quarter % 2 * 32 + i % 32, quarter < 2 ? 0 : 4, 4, q);
    block.bits(128 + 32 * half + i % 32, 2 * quarter, 2, q >> 4U);
  }
  const std::vector<float> values = block.read();
  for (unsigned i = 0; i < 256; ++i) {
    const auto scale = static_cast<float>(quant(i / 16, 256));
    const float is_signed = scale < 128.0F ? scale : scale - 256.0F;
    EXPECT_EQ(values[i], kScale * is_signed * (static_cast<float>(quant(i, 64)) - 32.0F)) << i;
  }
}

TEST(QuantBlocks, PlainTypesAreWidened) {
  const float f32[] = {1.5F, -2.0F};
  const std::uint16_t f16[] = {0x3E00, 0xC000};
  const std::uint16_t bf16[] = {0x3FC0, 0xC000};
  float out[2] = {};
  for (const auto& [type, data] : {std::pair<DType, const void*>{DType::kF32, f32},
                                   {DType::kF16, f16},
                                   {DType::kBF16, bf16}}) {
    dequantize_row({type, 1, 2, static_cast<const std::byte*>(data)}, 0, out);
    EXPECT_EQ(out[0], 1.5F);
    EXPECT_EQ(out[1], -2.0F);
  }
}

}  // namespace
}  // namespace rift::kernels
