// SPDX-License-Identifier: Apache-2.0
#include "policy/h2o.h"

#include "common/check.h"
#include "policy/selection.h"

#include <algorithm>
#include <cstddef>

namespace rift::policy {

H2oBudget h2o_budget(std::int32_t budget) { return {budget / 2, budget - budget / 2}; }

void H2oHead::start(std::span<const float> sums) {
  const auto tokens = static_cast<Position>(sums.size());
  const Position limit = std::max(0, tokens - budget_.recent);
  entries_.clear();
  for (const std::int32_t j : top_k(sums.first(static_cast<std::size_t>(limit)), budget_.heavy)) {
    entries_.push_back({j, sums[static_cast<std::size_t>(j)]});
  }
  for (Position j = limit; j < tokens; ++j) {
    entries_.push_back({j, sums[static_cast<std::size_t>(j)]});
  }
}

void H2oHead::start(const H2oBudget& budget, std::span<const Entry> entries) {
  RIFT_CHECK(std::ssize(entries) <= std::int64_t{budget.heavy} + budget.recent,
             "{} entries for a budget of {} + {}",
             entries.size(),
             budget.heavy,
             budget.recent);
  budget_ = budget;
  entries_.assign(entries.begin(), entries.end());
}

std::optional<Position> H2oHead::step(Position position, std::span<const float> probabilities) {
  RIFT_CHECK(probabilities.size() == entries_.size() + 1 &&
                 (entries_.empty() || entries_.back().position < position),
             "{} probabilities for {} entries and position {}",
             probabilities.size(),
             entries_.size(),
             position);
  entries_.push_back({position, 0.0F});
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].score += probabilities[i];
  }
  if (std::ssize(entries_) <= std::int64_t{budget_.heavy} + budget_.recent) {
    return std::nullopt;
  }
  // Ascending: those that may go come first. More than the budget are held, so there is one.
  const auto old = std::partition_point(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.position <= position - budget_.recent;
  });
  const auto least = std::min_element(
      entries_.begin(), old, [](const Entry& a, const Entry& b) { return a.score < b.score; });
  const Position evicted = least->position;
  entries_.erase(least);
  return evicted;
}

}  // namespace rift::policy
