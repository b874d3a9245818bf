// SPDX-License-Identifier: Apache-2.0
#include "policy/expected_attention.h"

#include "common/check.h"
#include "policy/sinks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rift::policy {
namespace {

/// Rotates pairs of x, whose elements are `stride` apart: x = R x.
void rotate(const MeanRotation& rotation, kernels::RopePairs pairs, double* x, std::size_t stride) {
  const std::size_t half = rotation.cos.size();
  for (std::size_t f = 0; f < half; ++f) {
    const bool split = pairs == kernels::RopePairs::kHalf;
    double& a = x[(split ? f : 2 * f) * stride];
    double& b = x[(split ? f + half : 2 * f + 1) * stride];
    const double rotated = rotation.cos[f] * a - rotation.sin[f] * b;
    b = rotation.sin[f] * a + rotation.cos[f] * b;
    a = rotated;
  }
}

/// Softmax of z [4, N) in place, added to sum.
void add_softmax(std::span<float> z, std::span<float> sum) {
  const float top = *std::max_element(z.begin(), z.end());
  double total = 0.0;
  for (float& x : z) {
    x = std::exp(x - top);
    total += static_cast<double>(x);
  }
  const auto share = static_cast<float>(1.0 / total);
  for (std::size_t j = 0; j < z.size(); ++j) {
    sum[j] += z[j] * share;
  }
}

}  // namespace

MeanRotation mean_rotation(std::span<const float> frequencies, Position first, std::int32_t count) {
  MeanRotation mean{std::vector<double>(frequencies.size()),
                    std::vector<double>(frequencies.size())};
  for (std::size_t f = 0; f < frequencies.size(); ++f) {
    for (std::int32_t i = 0; i < count; ++i) {
      const double angle =
          static_cast<double>(frequencies[f]) * static_cast<double>(std::int64_t{first} + i);
      mean.cos[f] += std::cos(angle) / count;
      mean.sin[f] += std::sin(angle) / count;
    }
  }
  return mean;
}

void add_expected_attention(const kernels::KeyPlane& keys,
                            const QueryMoments& moments,
                            const MeanRotation& rotation,
                            kernels::RopePairs pairs,
                            float scale,
                            std::span<float> sum) {
  const auto dim = static_cast<std::size_t>(keys.head_dim);
  RIFT_CHECK(moments.mean.size() == dim && moments.covariance.size() == dim * dim &&
                 rotation.cos.size() == dim / 2 &&
                 static_cast<std::int64_t>(sum.size()) == keys.count,
             "moments of {} for a head dimension of {}",
             moments.mean.size(),
             dim);
  if (keys.count <= kSinks) {
    return;
  }
  std::vector<double> mean(moments.mean.begin(), moments.mean.end());
  std::vector<double> covariance(moments.covariance.begin(), moments.covariance.end());
  rotate(rotation, pairs, mean.data(), 1);
  for (std::size_t i = 0; i < dim; ++i) {
    rotate(rotation, pairs, covariance.data() + i, dim);  // columns: R S
  }
  for (std::size_t i = 0; i < dim; ++i) {
    rotate(rotation, pairs, covariance.data() + i * dim, 1);  // rows: (R S) R^T
  }
  std::vector<float> linear(dim);
  std::vector<float> matrix(dim * dim);
  const auto by = static_cast<double>(scale);
  std::transform(mean.begin(), mean.end(), linear.begin(), [by](double x) {
    return static_cast<float>(by * x);
  });
  std::transform(covariance.begin(), covariance.end(), matrix.begin(), [by](double x) {
    return static_cast<float>(by * by / 2 * x);
  });
  std::vector<float> z(sum.size());
  kernels::quadratic_scores(keys, linear, matrix, z);
  add_softmax(std::span(z).subspan(kSinks), sum.subspan(kSinks));
}

void finish_expected_attention(std::int32_t group,
                               std::span<const float> value_squares,
                               std::span<float> scores) {
  for (std::size_t j = 0; j < scores.size(); ++j) {
    scores[j] /= static_cast<float>(group);
    if (!value_squares.empty()) {
      scores[j] *= std::sqrt(value_squares[j]);
    }
  }
  mark_sinks(scores);
}

}  // namespace rift::policy
