// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "kernels/key_scores.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// Future distances of the mean: 2^0 .. 2^16.
inline constexpr int kTriOffsets = 17;

/// Where the queries of the heads of one group lie before RoPE: per pair f the mean vector E[q_f],
/// in the head's layout, and the mean length E[|q_f|].
struct QueryCentres {
  MatView<const double> mean;    // [g, D]
  MatView<const double> length;  // [g, D / 2]
};

/// Scores [N] of one KV head:
///   S_trig(k, t) = sum over f of |E[q_f]| |k_f| cos(w_f (t - p_k) + arg E[q_f] - arg k_f)
///   S_norm(k)    = sum over f of (E[|q_f|] - |E[q_f]|) |k_f|
///   S_h(k)       = mean over d = 2^0 .. 2^16 of S_trig(k, N - 1 + d) + S_norm(k)
/// and the largest of (S_h - mean of S_h) / deviation of S_h over the g heads, both taken over the
/// N keys; a head whose scores do not differ counts 0. k before RoPE in the formula; the cached
/// keys are rotated by their position already, which S_trig cancels.
/// frequencies [D / 2] in radians per position.
/// Source: Mao et al. 2026 (arXiv:2604.04921), TriAttention, equations 6 and 8 to 13; deviation:
/// the centres are of the session's own queries, not of a calibration set.
/// Thread: any. Cost: 1.5 g N D.
void triattention_scores(const kernels::KeyPlane& keys,
                         const QueryCentres& centres,
                         std::span<const float> frequencies,
                         kernels::RopePairs pairs,
                         std::span<float> scores);

}  // namespace rift::policy
