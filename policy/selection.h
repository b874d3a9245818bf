// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// Score of every block [jP, min((j + 1) P, limit)): the mean over its real keys, in double.
/// scores [N] of one KV head; limit = N - r <= N. Result [ceil(limit / P)].
/// Source: golden selection README, `rift_stat.blocks<b>`.
[[nodiscard]] std::vector<float> block_scores(std::span<const float> scores,
                                              std::int32_t block,
                                              std::int32_t limit);

/// Indices of the `count` largest scores (fewer where there are fewer), ascending. Ties go to the
/// lower index; NaN counts as the smallest.
[[nodiscard]] std::vector<std::int32_t> top_k(std::span<const float> scores, std::int32_t count);

/// Same, most valuable first: the order in which a refresh installs blocks.
[[nodiscard]] std::vector<std::int32_t> top_k_ranked(std::span<const float> scores,
                                                     std::int32_t count);

}  // namespace rift::policy
