// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

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
    // Each of `cols` products is added with one rounding; 2 covers scales, 4 the offset's part.
    const double tolerance = 4.0 * kEps * expected.magnitude[i] * (std::sqrt(cols) + 8.0) + 1e-30;
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

TEST_P(Matmul, ARowHasTheSameBitsInEveryBatchPositionAndThreadCount) {
  constexpr std::int64_t kRows = 17;
  for (const DType type : kAllTypes) {
    Random random(7);
    const std::int64_t cols = block_elements(type) == 256 ? 1280 : 1120;
    const std::vector<std::byte> weights = random_weights(type, 29, cols, random);
    const WeightView w{type, 29, cols, weights.data()};
    const std::vector<float> x = random_floats(static_cast<std::size_t>(kRows * cols), random);
    for (const MatmulMode mode : kModes) {
      ThreadPool one(1);
      std::vector<float> alone;
      for (std::int64_t t = 0; t < kRows; ++t) {
        const std::vector<float> y = multiply({x.data() + t * cols, 1, cols}, w, mode, one);
        alone.insert(alone.end(), y.begin(), y.end());
      }
      for (const int threads : {1, 2, 3}) {
        ThreadPool pool(threads);
        for (std::int64_t begin = 0; begin < kRows; ++begin) {
          const std::int64_t count = threads == 1 ? kRows - begin : kRows;
          const std::int64_t from = threads == 1 ? begin : 0;
          const std::vector<float> y =
              multiply({x.data() + from * cols, count, cols}, w, mode, pool);
          ASSERT_EQ(std::memcmp(y.data(), alone.data() + from * 29, y.size() * sizeof(float)), 0)
              << to_string(type) << " T=" << count << " from " << from << " threads " << threads;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rift::kernels
