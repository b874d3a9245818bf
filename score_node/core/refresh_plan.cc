// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/refresh_plan.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace rift::score_node {
namespace {

using transport::TableUpdate;

// NaN is the least of all, as in policy::top_k.
float comparable(float score) {
  return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
}

/// One head's part of a plan.
class HeadPlan {
 public:
  HeadPlan(std::span<const BlockMirror::Entry> entries, const HeadSelection& selection)
      : entries_(entries), selection_(selection), taken_(entries.size()) {
    for (std::uint32_t e = 0; e < entries.size(); ++e) {
      if (entries[e].count > 0) {
        resident_.emplace(entries[e].block, e);
      }
    }
  }

  void place(const WorkingSetLayout& layout,
             std::int32_t limit,
             TableUpdate where,
             RefreshPlan& plan) {
    std::vector<TableUpdate> homeless;
    for (const std::int32_t block : selection_.ranked) {
      const auto b = static_cast<std::uint32_t>(block);
      const std::int32_t count = std::min(layout.block, limit - block * layout.block);
      where.block = b;
      where.count = static_cast<std::uint16_t>(count);
      const auto found = resident_.find(b);
      if (found == resident_.end()) {
        homeless.push_back(where);
        continue;
      }
      const BlockMirror::Entry& entry = entries_[found->second];
      taken_[found->second] = true;
      if (entry.count != count || entry.stale) {
        where.entry = found->second;
        plan.placements.push_back({where, score(b)});
      }
    }
    const std::vector<std::uint32_t> vacant = vacant_entries();
    RIFT_CHECK(homeless.size() <= vacant.size(),
               "{} blocks for {} entries",
               homeless.size(),
               vacant.size());
    for (std::size_t i = 0; i < homeless.size(); ++i) {
      homeless[i].entry = vacant[i];
      plan.placements.push_back({homeless[i], score(homeless[i].block)});
    }
    for (std::size_t i = homeless.size(); i < vacant.size(); ++i) {
      const BlockMirror::Entry& entry = entries_[vacant[i]];
      if (entry.count > 0) {
        plan.clears.push_back({where.layer, where.head, vacant[i], entry.slot, entry.block, 0});
      }
    }
  }

 private:
  [[nodiscard]] float score(std::uint32_t block) const {
    return block < selection_.scores.size() ? comparable(selection_.scores[block])
                                            : -std::numeric_limits<float>::infinity();
  }

  /// Entries that a new block may take: empty ones, then the least valuable residents.
  [[nodiscard]] std::vector<std::uint32_t> vacant_entries() const {
    std::vector<std::uint32_t> vacant;
    for (std::uint32_t e = 0; e < entries_.size(); ++e) {
      if (!taken_[e]) {
        vacant.push_back(e);
      }
    }
    std::stable_sort(vacant.begin(), vacant.end(), [this](std::uint32_t a, std::uint32_t b) {
      const bool full_a = entries_[a].count > 0;
      const bool full_b = entries_[b].count > 0;
      if (!full_a || !full_b) {
        return !full_a && full_b;
      }
      return score(entries_[a].block) < score(entries_[b].block);
    });
    return vacant;
  }

  std::span<const BlockMirror::Entry> entries_;
  const HeadSelection& selection_;
  std::vector<bool> taken_;                          // entries whose block stays or is renewed
  std::map<std::uint32_t, std::uint32_t> resident_;  // block -> entry
};

}  // namespace

RefreshPlan plan_refresh(const WorkingSetLayout& layout,
                         const BlockMirror& mirror,
                         std::span<const HeadSelection> selection,
                         std::int32_t limit) {
  RefreshPlan plan;
  const std::int32_t heads = layout.geometry.kv_heads;
  for (std::int32_t i = 0; i < layout.geometry.layers * heads; ++i) {
    TableUpdate where;
    where.layer = static_cast<std::uint16_t>(i / heads);
    where.head = static_cast<std::uint16_t>(i % heads);
    HeadPlan(mirror.head(i / heads, i % heads), selection[static_cast<std::size_t>(i)])
        .place(layout, limit, where, plan);
  }
  std::sort(plan.placements.begin(), plan.placements.end(), [](const auto& a, const auto& b) {
    const auto place = [](const TableUpdate& u) { return std::tie(u.layer, u.head, u.block); };
    return a.score != b.score ? a.score > b.score : place(a.update) < place(b.update);
  });
  return plan;
}

std::vector<TableUpdate> next_wave(RefreshPlan& plan, std::span<const std::uint32_t> free_slots) {
  const std::size_t count = std::min(plan.placements.size(), free_slots.size());
  std::vector<TableUpdate> updates;
  for (std::size_t i = 0; i < count; ++i) {
    updates.push_back(plan.placements[i].update);
  }
  std::sort(updates.begin(), updates.end(), [](const TableUpdate& a, const TableUpdate& b) {
    return std::tie(a.layer, a.head, a.block) < std::tie(b.layer, b.head, b.block);
  });
  for (std::size_t i = 0; i < count; ++i) {
    updates[i].slot = free_slots[i];
  }
  plan.placements.erase(plan.placements.begin(),
                        plan.placements.begin() + static_cast<std::ptrdiff_t>(count));
  if (plan.placements.empty()) {
    updates.insert(updates.end(), plan.clears.begin(), plan.clears.end());
    plan.clears.clear();
  }
  return updates;
}

}  // namespace rift::score_node
