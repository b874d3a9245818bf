// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace rift::policy {

/// Positions 0..3: the attention sinks, kept whatever their score (Xiao et al. 2024, StreamingLLM,
/// section 3.2).
inline constexpr std::int32_t kSinks = 4;

/// Gives the sinks among scores [N] the score +infinity, so that their blocks are chosen first.
inline void mark_sinks(std::span<float> scores) {
  const auto sinks = std::min<std::size_t>(kSinks, scores.size());
  std::fill_n(scores.begin(), sinks, std::numeric_limits<float>::infinity());
}

}  // namespace rift::policy
