// SPDX-License-Identifier: Apache-2.0
#include "kernels/key_scores.h"

#include "kernels/ops.h"
#include "tests/unit/kernels/fixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace rift::kernels {
namespace {

using KeyScores = EveryTarget;
RIFT_FOR_EVERY_TARGET(KeyScores);

constexpr std::int32_t kCounts[] = {1, 3, 7, 8, 31, 32, 33, 100};
constexpr std::int32_t kDims[] = {8, 16, 64, 128};

/// Random keys as stored, and the same numbers in f32.
struct Keys {
  Keys(DType type, std::int32_t n, std::int32_t d, Random& random)
      : bytes(random_weights(type, n, d, random)),
        floats(static_cast<std::size_t>(n) * static_cast<std::size_t>(d)),
        plane{bytes.data(), type, n, d} {
    load_as(type, bytes.data(), floats.data(), std::int64_t{n} * d);
  }

  [[nodiscard]] double at(std::int32_t j, std::int32_t d) const {
    return static_cast<double>(
        floats[static_cast<std::size_t>(j) * static_cast<std::size_t>(plane.head_dim) +
               static_cast<std::size_t>(d)]);
  }

  std::vector<std::byte> bytes;
  std::vector<float> floats;
  KeyPlane plane;
};

template <typename Body>
void for_every_shape(const Body& body) {
  Random random(3);
  for (const DType type : kPlainTypes) {
    for (const std::int32_t n : kCounts) {
      for (const std::int32_t d : kDims) {
        SCOPED_TRACE(testing::Message() << to_string(type) << " N=" << n << " D=" << d);
        const Keys keys(type, n, d, random);
        body(keys, random);
      }
    }
  }
}

// Sums of n products of magnitude m in f32: 4 eps sqrt(n) m, and a little for what cancels.
double tolerance(double n, double magnitude) { return 4.0 * kEps * std::sqrt(n) * magnitude; }

TEST_P(KeyScores, QuadraticFormsAgreeWithTheFormula) {
  for_every_shape([](const Keys& keys, Random& random) {
    const auto dim = static_cast<std::size_t>(keys.plane.head_dim);
    const std::vector<float> linear = random_floats(dim, random);
    const std::vector<float> matrix = random_floats(dim * dim, random);
    std::vector<float> out(static_cast<std::size_t>(keys.plane.count));
    quadratic_scores(keys.plane, linear, matrix, out);
    for (std::int32_t j = 0; j < keys.plane.count; ++j) {
      double sum = 0.0;
      double size = 0.0;
      for (std::size_t a = 0; a < dim; ++a) {
        const double key = keys.at(j, static_cast<std::int32_t>(a));
        sum += static_cast<double>(linear[a]) * key;
        size += std::abs(static_cast<double>(linear[a]) * key);
        for (std::size_t b = 0; b < dim; ++b) {
          const double term = key * static_cast<double>(matrix[a * dim + b]) *
                              keys.at(j, static_cast<std::int32_t>(b));
          sum += term;
          size += std::abs(term);
        }
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(j)], sum, tolerance(1.0, size)) << "key " << j;
    }
  });
}

TEST_P(KeyScores, PairScoresAgreeWithTheFormulaInBothLayouts) {
  constexpr std::int32_t kRows = 3;
  for_every_shape([](const Keys& keys, Random& random) {
    const std::int32_t dim = keys.plane.head_dim;
    const std::int32_t half = dim / 2;
    const std::vector<float> linear = random_floats(static_cast<std::size_t>(kRows * dim), random);
    const std::vector<float> norm = random_floats(static_cast<std::size_t>(kRows * half), random);
    std::vector<float> out(static_cast<std::size_t>(kRows * keys.plane.count));
    for (const RopePairs pairs : {RopePairs::kHalf, RopePairs::kInterleaved}) {
      pair_scores(keys.plane,
                  pairs,
                  {linear.data(), kRows, dim},
                  {norm.data(), kRows, half},
                  {out.data(), kRows, keys.plane.count});
      for (std::int32_t i = 0; i < kRows; ++i) {
        for (std::int32_t j = 0; j < keys.plane.count; ++j) {
          double sum = 0.0;
          double size = 0.0;
          for (std::int32_t d = 0; d < dim; ++d) {
            const double term =
                static_cast<double>(linear[static_cast<std::size_t>(i * dim + d)]) * keys.at(j, d);
            sum += term;
            size += std::abs(term);
          }
          for (std::int32_t f = 0; f < half; ++f) {
            const bool split = pairs == RopePairs::kHalf;
            const double a = keys.at(j, split ? f : 2 * f);
            const double b = keys.at(j, split ? f + half : 2 * f + 1);
            const double term = static_cast<double>(norm[static_cast<std::size_t>(i * half + f)]) *
                                std::hypot(a, b);
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(
              out[static_cast<std::size_t>(i * keys.plane.count + j)], sum, tolerance(1.0, size))
              << "row " << i << " key " << j;
        }
      }
    }
  });
}

TEST_P(KeyScores, SquaredNormsAgreeWithTheFormula) {
  for_every_shape([](const Keys& keys, Random&) {
    std::vector<float> out(static_cast<std::size_t>(keys.plane.count));
    squared_norms(keys.plane, out);
    for (std::int32_t j = 0; j < keys.plane.count; ++j) {
      double sum = 0.0;
      for (std::int32_t d = 0; d < keys.plane.head_dim; ++d) {
        sum += keys.at(j, d) * keys.at(j, d);
      }
      ASSERT_NEAR(out[static_cast<std::size_t>(j)], sum, 2.0 * kEps * sum);
    }
  });
}

}  // namespace
}  // namespace rift::kernels
