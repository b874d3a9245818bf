// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "kernels/key_scores.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// Future positions that the expectation is taken over: N .. N + 511.
inline constexpr std::int32_t kExpectedPositions = 512;

/// Mean of RoPE's rotation over a range of positions: the pair f is multiplied by the matrix
/// [[cos, -sin], [sin, cos]][f].
struct MeanRotation {
  std::vector<double> cos;  // [D / 2]
  std::vector<double> sin;  // [D / 2]
};

/// Over positions [first, first + count); frequencies [D / 2] in radians per position.
[[nodiscard]] MeanRotation mean_rotation(std::span<const float> frequencies,
                                         Position first,
                                         std::int32_t count);

/// Mean [D] and biased covariance [D, D] of a query head's queries before RoPE, without those of
/// the sinks.
struct QueryMoments {
  std::span<const double> mean;
  std::span<const double> covariance;
};

/// Adds one query head's expected attention to `sum` [N]: mu' = R mu, S' = R S R^T,
/// z_j = scale mu'.k_j + scale^2 / 2 k_j^T S' k_j, softmax over j in [4, N). The sinks get nothing.
/// Thread: any. Cost: N D^2.
void add_expected_attention(const kernels::KeyPlane& keys,
                            const QueryMoments& moments,
                            const MeanRotation& rotation,
                            kernels::RopePairs pairs,
                            float scale,
                            std::span<float> sum);

/// Scores [N] of one KV head from the sum over its g query heads: their mean, times |v_j| unless
/// value_squares is empty; the sinks get +infinity. value_squares [N]: |v_j|^2.
/// Source: Devoto et al. 2025, Expected Attention; golden `score.expected_attention` and
/// `.novnorm`.
void finish_expected_attention(std::int32_t group,
                               std::span<const float> value_squares,
                               std::span<float> scores);

}  // namespace rift::policy
