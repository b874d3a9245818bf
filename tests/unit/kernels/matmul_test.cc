// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include "kernels/ops.h"
#include "kernels/ref/matmul.h"
#include "tests/unit/kernels/fixture.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rift::kernels {
namespace {

using Matmul = EveryTarget;
RIFT_FOR_EVERY_TARGET(Matmul);

constexpr MatmulMode kModes[] = {MatmulMode::kExact, MatmulMode::kQuantized};

std::vector<float> multiply(MatView<const float> x,
                            const WeightView& w,
                            MatmulMode mode,
                            ThreadPool& pool) {
  std::vector<float> y(static_cast<std::size_t>(x.rows * w.rows), 1e30F);
  Activations activations;
  activations.reserve(x.rows, x.cols);
  activations.prepare(x, mode, pool);
  matmul(activations, w, {y.data(), x.rows, w.rows}, pool);
  return y;
}

/// Compares one shape with the twin. `shift` bytes misalign the weights.
void compare(
    DType type, MatmulMode mode, std::int64_t t, std::int64_t n, std::int64_t cols, int shift) {
  SCOPED_TRACE(testing::Message() << to_string(type) << (mode == MatmulMode::kExact ? "" : " q8")
                                  << " T=" << t << " n=" << n << " cols=" << cols);
  Random random(static_cast<unsigned>(t * 1000003 + n * 101 + cols));
  std::vector<std::byte> weights = random_weights(type, n, cols, random);
  weights.insert(weights.begin(), static_cast<std::size_t>(shift), std::byte{0x55});
  const WeightView w{type, n, cols, weights.data() + shift};
  const std::int64_t stride = cols + 5;
  const std::vector<float> x = random_floats(static_cast<std::size_t>(t * stride), random);
  const MatView<const float> view{x.data(), t, cols, stride};
  ThreadPool pool(2);
  const std::vector<float> y = multiply(view, w, mode, pool);
  const ref::MatmulResult expected = ref::matmul(view, w, mode);
  for (std::size_t i = 0; i < y.size(); ++i) {
    // Of up to `cols` roundings the square root of their number stays; 8 for what rounds once per
    // group or weight. `magnitude` grows with the largest weight where an offset is added apart.
    const double tolerance = kEps * expected.magnitude[i] * (std::sqrt(cols) + 8.0) + 1e-30;
    ASSERT_NEAR(y[i], expected.y[i], tolerance) << "element " << i;
  }
}

TEST_P(Matmul, AgreesWithTheTwinForEveryTypeAndShape) {
  for (const DType type : kAllTypes) {
    const std::int64_t block = block_elements(type);
    for (const MatmulMode mode : kModes) {
      for (const std::int64_t n : {1, 7, 8, 9, 33}) {
        compare(type, mode, 3, n, 2 * block, 1);
      }
      for (const std::int64_t blocks : {1, 3, 4, 5, 9}) {
        compare(type, mode, 2, 10, blocks * block, 0);
        compare(type, mode, 1, 10, blocks * 256, 3);
      }
      for (const std::int64_t t : {1, 2, 4, 5, 7, 64, 65, 130}) {
        compare(type, mode, t, 9, 256, 2);
      }
    }
  }
}

TEST_P(Matmul, PackedWeightsGiveTheSameBits) {
  ThreadPool pool(2);
  for (const DType type : kAllTypes) {
    for (const std::int64_t n : {1, 8, 16, 17, 45}) {
      const std::int64_t cols = 1280;
      Random random(static_cast<unsigned>(n));
      const std::vector<std::byte> weights = random_weights(type, n, cols, random);
      const WeightView rows{type, n, cols, weights.data()};
      const bool packs = std::string_view(cpu_target()) != "scalar" && block_elements(type) > 1;
      const std::size_t bytes = packed_bytes(rows);
      ASSERT_EQ(bytes > 0, packs) << to_string(type);
      if (!packs) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << to_string(type) << " n=" << n);
      std::vector<std::byte> memory(bytes + 1);
      const WeightView packed = pack(rows, memory.data() + 1, pool);
      const std::vector<float> x = random_floats(static_cast<std::size_t>(5 * cols), random);
      for (const MatmulMode mode : kModes) {
        const std::vector<float> expected = multiply({x.data(), 5, cols}, rows, mode, pool);
        EXPECT_EQ(multiply({x.data(), 5, cols}, packed, mode, pool), expected);
      }
      std::vector<float> one(static_cast<std::size_t>(cols));
      std::vector<float> other(one.size());
      for (std::int64_t row = 0; row < n; ++row) {
        dequantize_row(rows, row, one.data());
        dequantize_row(packed, row, other.data());
        EXPECT_EQ(other, one) << "row " << row;
      }
    }
  }
}

TEST_P(Matmul, TakesPlainWeightsOfAnyWidth) {
  for (const DType type : kPlainTypes) {
    for (const std::int64_t cols : {1, 3, 7, 16, 31, 33, 255, 257, 1030}) {
      compare(type, MatmulMode::kQuantized, 5, 17, cols, 0);
    }
  }
}

TEST_P(Matmul, SumsOfTheLargestBytesDoNotOverflow) {
  // All quants and activations at their largest magnitude, in every sign.
  for (const DType type : kAllTypes) {
    if (block_elements(type) == 1) {
      continue;
    }
    for (const int fill : {0xFF, 0x80, 0x7F, 0x00}) {
      const std::int64_t cols = 1280;
      std::vector<std::byte> weights(row_bytes(type, cols), static_cast<std::byte>(fill));
      for (std::size_t at = 0; at < weights.size(); at += block_bytes(type)) {
        for (const std::size_t place : f16_places(type)) {
          put_f16(&weights[at + place], 0.01F);
        }
      }
      const WeightView w{type, 1, cols, weights.data()};
      for (const float sign : {1.0F, -1.0F}) {
        const std::vector<float> x(static_cast<std::size_t>(cols), 3.0F * sign);
        ThreadPool pool(1);
        const std::vector<float> y = multiply({x.data(), 1, cols}, w, MatmulMode::kQuantized, pool);
        const ref::MatmulResult expected =
            ref::matmul({x.data(), 1, cols}, w, MatmulMode::kQuantized);
        EXPECT_NEAR(y[0], expected.y[0], 64 * kEps * expected.magnitude[0]) << to_string(type);
      }
    }
  }
}

/// Seventeen rows of activations, their products one at a time, and batches of them.
class Batches {
 public:
  static constexpr std::int64_t kRows = 17;
  static constexpr std::int64_t kOutputs = 45;  // several panels, the last not full

  Batches(DType type, MatmulMode mode)
      : cols_(block_elements(type) == 256 ? 1280 : 1120), mode_(mode) {
    Random random(7);
    weights_ = random_weights(type, kOutputs, cols_, random);
    w_ = {type, kOutputs, cols_, weights_.data()};
    x_ = random_floats(static_cast<std::size_t>(kRows * cols_), random);
    for (std::int64_t t = 0; t < kRows; ++t) {
      const std::vector<float> y = product(t, 1, 1);
      alone_.insert(alone_.end(), y.begin(), y.end());
    }
  }
  [[nodiscard]] bool agree(std::int64_t from, std::int64_t count, int threads) const {
    const std::vector<float> y = product(from, count, threads);
    return std::memcmp(y.data(), alone_.data() + from * kOutputs, y.size() * sizeof(float)) == 0;
  }

 private:
  [[nodiscard]] std::vector<float> product(std::int64_t from,
                                           std::int64_t count,
                                           int threads) const {
    ThreadPool pool(threads);
    return multiply({x_.data() + from * cols_, count, cols_}, w_, mode_, pool);
  }

  std::int64_t cols_;
  MatmulMode mode_;
  std::vector<std::byte> weights_;
  WeightView w_;
  std::vector<float> x_;
  std::vector<float> alone_;
};

TEST_P(Matmul, ARowHasTheSameBitsInEveryBatchPositionAndThreadCount) {
  for (const DType type : kAllTypes) {
    for (const MatmulMode mode : kModes) {
      SCOPED_TRACE(testing::Message() << to_string(type) << " mode " << static_cast<int>(mode));
      const Batches batches(type, mode);
      for (const std::int64_t count : {2, 3, 4, 5, 6, 7, 8, 12, 17}) {
        EXPECT_TRUE(batches.agree(0, count, 2)) << "first " << count;
      }
      for (const std::int64_t from : {1, 2, 3, 5, 9, 13}) {
        EXPECT_TRUE(batches.agree(from, Batches::kRows - from, 3)) << "from " << from;
      }
      EXPECT_TRUE(batches.agree(0, Batches::kRows, 1));
    }
  }
}

TEST_P(Matmul, ARowHasTheSameBitsBeyondOneTileOfRows) {
  constexpr std::int64_t kRows = 150;
  constexpr std::int64_t kCols = 512;
  Random random(9);
  const std::vector<std::byte> weights = random_weights(DType::kQ4_K, 11, kCols, random);
  const WeightView w{DType::kQ4_K, 11, kCols, weights.data()};
  const std::vector<float> x = random_floats(kRows * kCols, random);
  ThreadPool pool(2);
  for (const MatmulMode mode : kModes) {
    const std::vector<float> all = multiply({x.data(), kRows, kCols}, w, mode, pool);
    for (const std::int64_t t : {0, 63, 64, 127, 128, 149}) {
      const std::vector<float> y = multiply({x.data() + t * kCols, 1, kCols}, w, mode, pool);
      EXPECT_EQ(std::memcmp(y.data(), all.data() + t * 11, 11 * sizeof(float)), 0) << "row " << t;
    }
  }
}

}  // namespace
}  // namespace rift::kernels
