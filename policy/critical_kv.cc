// SPDX-License-Identifier: Apache-2.0
#include "policy/critical_kv.h"

#include "common/check.h"
#include "policy/selection.h"

#include <cstddef>
#include <limits>

namespace rift::policy {

void critical_scores(std::span<const float> scores,
                     std::span<const float> norms,
                     std::span<float> out) {
  RIFT_CHECK(scores.size() == norms.size() && scores.size() == out.size(),
             "scores [{}], norms [{}], out [{}]",
             scores.size(),
             norms.size(),
             out.size());
  for (std::size_t j = 0; j < scores.size(); ++j) {
    out[j] = (scores[j] + kCriticalEpsilon) * norms[j];
  }
}

std::vector<std::int32_t> critical_ranked(std::span<const float> first,
                                          std::span<const float> second,
                                          std::int32_t count) {
  RIFT_CHECK(first.size() == second.size(), "{} and {} scores", first.size(), second.size());
  std::vector<std::int32_t> ranked = top_k_ranked(first, count / 2);
  std::vector<bool> taken(first.size());
  for (const std::int32_t i : ranked) {
    taken[static_cast<std::size_t>(i)] = true;
  }
  // Every index is ranked once: those of the first stage are skipped, not made the worst, as a NaN
  // among the others would then come after them.
  for (const std::int32_t i : top_k_ranked(second, std::numeric_limits<std::int32_t>::max())) {
    if (static_cast<std::int32_t>(ranked.size()) >= count) {
      break;
    }
    if (!taken[static_cast<std::size_t>(i)]) {
      ranked.push_back(i);
    }
  }
  return ranked;
}

}  // namespace rift::policy
