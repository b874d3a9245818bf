// SPDX-License-Identifier: Apache-2.0
#include "policy/triattention.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace rift::policy {
namespace {

/// Mean of the rotations by frequency * (N - 1 + 2^i).
struct Turn {
  double cos = 0.0;
  double sin = 0.0;
};

Turn mean_turn(double frequency, std::int32_t tokens) {
  Turn turn;
  for (int i = 0; i < kTriOffsets; ++i) {
    const double angle = frequency * static_cast<double>(std::int64_t{tokens} - 1 + (1 << i));
    turn.cos += std::cos(angle) / kTriOffsets;
    turn.sin += std::sin(angle) / kTriOffsets;
  }
  return turn;
}

/// (x - mean) / deviation; zeros where nothing differs.
void standardise(std::span<float> x) {
  double mean = 0.0;
  for (const float value : x) {
    mean += static_cast<double>(value) / static_cast<double>(x.size());
  }
  double variance = 0.0;
  for (const float value : x) {
    const double from_mean = static_cast<double>(value) - mean;
    variance += from_mean * from_mean / static_cast<double>(x.size());
  }
  for (float& value : x) {
    value = static_cast<float>(
        variance > 0.0 ? (static_cast<double>(value) - mean) / std::sqrt(variance) : 0.0);
  }
}

}  // namespace

void triattention_scores(const kernels::KeyPlane& keys,
                         const QueryCentres& centres,
                         std::span<const float> frequencies,
                         kernels::RopePairs pairs,
                         std::span<float> scores) {
  const std::int64_t group = centres.mean.rows;
  const std::int64_t dim = keys.head_dim;
  const std::int64_t half = dim / 2;
  RIFT_CHECK(centres.mean.cols == dim && centres.length.cols == half &&
                 centres.length.rows == group && std::ssize(frequencies) == half &&
                 std::ssize(scores) == keys.count && group >= 1,
             "centres [{}, {}] for a head dimension of {}",
             group,
             centres.mean.cols,
             dim);
  std::vector<float> linear(static_cast<std::size_t>(group * dim));
  std::vector<float> norm(static_cast<std::size_t>(group * half));
  for (std::int64_t f = 0; f < half; ++f) {
    const Turn turn =
        mean_turn(static_cast<double>(frequencies[static_cast<std::size_t>(f)]), keys.count);
    const bool split = pairs == kernels::RopePairs::kHalf;
    const std::int64_t first = split ? f : 2 * f;
    const std::int64_t second = split ? f + half : 2 * f + 1;
    for (std::int64_t h = 0; h < group; ++h) {
      const double a = centres.mean.row(h)[first];
      const double b = centres.mean.row(h)[second];
      float* const out = linear.data() + h * dim;
      out[first] = static_cast<float>(turn.cos * a - turn.sin * b);
      out[second] = static_cast<float>(turn.sin * a + turn.cos * b);
      norm[static_cast<std::size_t>(h * half + f)] =
          static_cast<float>(centres.length.row(h)[f] - std::hypot(a, b));
    }
  }
  std::vector<float> per_head(static_cast<std::size_t>(group) * scores.size());
  const MatView<float> heads(per_head.data(), group, keys.count);
  kernels::pair_scores(keys, pairs, {linear.data(), group, dim}, {norm.data(), group, half}, heads);
  std::fill(scores.begin(), scores.end(), -std::numeric_limits<float>::infinity());
  for (std::int64_t h = 0; h < group; ++h) {
    standardise(heads.row_span(h));
    std::transform(
        scores.begin(), scores.end(), heads.row(h), scores.begin(), [](float a, float b) {
          return std::max(a, b);
        });
  }
}

}  // namespace rift::policy
