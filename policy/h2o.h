// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rift::policy {

/// How H2O divides a budget: the recent half gets what is left over.
struct H2oBudget {
  std::int32_t heavy = 0;   // floor(B / 2)
  std::int32_t recent = 0;  // B - heavy
};
[[nodiscard]] H2oBudget h2o_budget(std::int32_t budget);

/// Which positions one KV head keeps by H2O while it decodes, and the attention that each has
/// gathered: the `heavy` ones with the most of it and the `recent` newest. Value type: a copy is a
/// snapshot to go back to when drafts are rejected.
/// Source: Zhang et al. 2023, H2O, algorithm 1; golden `h2o.*`. Deviation: the prompt is attended
/// in full and cut once.
class H2oHead {
 public:
  struct Entry {
    Position position = 0;
    float score = 0.0F;  // A[j], summed over queries, mean over the group's heads

    bool operator==(const Entry&) const = default;
  };

  /// No later start() with a budget that is not larger allocates.
  explicit H2oHead(const H2oBudget& budget) : budget_(budget) {
    entries_.reserve(static_cast<std::size_t>(budget.heavy) +
                     static_cast<std::size_t>(budget.recent) + 1);
  }

  /// After a prompt of sums.size() tokens: the best of [0, N - recent) and the newest. sums [N].
  void start(std::span<const float> sums);
  /// Under another budget from what was chosen elsewhere: entries in ascending positions, no more
  /// than the budget, of which all but the newest `recent` are at most `heavy`.
  void start(const H2oBudget& budget, std::span<const Entry> entries);

  /// The token at `position`, newer than all, joins and is the query: probabilities
  /// [entries().size() + 1] over the entries and itself, in this order, sum 1. Returns the position
  /// that is evicted, if the budget is exceeded: of those that are no longer recent, the one with
  /// the lowest sum, on equal sums the lower position.
  std::optional<Position> step(Position position, std::span<const float> probabilities);

  /// Ascending positions.
  [[nodiscard]] std::span<const Entry> entries() const { return entries_; }

  bool operator==(const H2oHead& other) const { return entries_ == other.entries_; }

 private:
  H2oBudget budget_;
  std::vector<Entry> entries_;
};

}  // namespace rift::policy
