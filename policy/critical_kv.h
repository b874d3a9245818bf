// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// Added to an attention score, so that a key without any can still be chosen for its value.
inline constexpr float kCriticalEpsilon = 1e-4F;

/// Scores of the second stage: (score + 1e-4) * norm. scores, norms, out [N]; norms: mean over the
/// group's query heads of the L1 norm of v_j W_o^h.
/// Source: Feng et al. 2025, CriticalKV, algorithm 1; golden `rift_stat.critical`.
void critical_scores(std::span<const float> scores,
                     std::span<const float> norms,
                     std::span<float> out);

/// The `count` choices of both stages, most valuable first: the floor(count / 2) best by `first`,
/// then the best of the others by `second`. Both [n], of positions or of blocks. Ties go to the
/// lower index, NaN counts as the smallest.
[[nodiscard]] std::vector<std::int32_t> critical_ranked(std::span<const float> first,
                                                        std::span<const float> second,
                                                        std::int32_t count);

}  // namespace rift::policy
