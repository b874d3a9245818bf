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
  HeadPlan(std::span<const BlockMirror::Entry> entries,
           const HeadSelection& selection,
           bool residents_first)
      : entries_(entries),
        selection_(selection),
        residents_first_(residents_first),
        taken_(entries.size()) {
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

  /// Entries that a new block may take: empty ones and residents, the least valuable first.
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
        return full_a != full_b && full_a == residents_first_;
      }
      return score(entries_[a].block) < score(entries_[b].block);
    });
    return vacant;
  }

  std::span<const BlockMirror::Entry> entries_;
  const HeadSelection& selection_;
  bool residents_first_;
  std::vector<bool> taken_;                          // entries whose block stays or is renewed
  std::map<std::uint32_t, std::uint32_t> resident_;  // block -> entry
};

/// Every block that makes a head hold more takes with it one that another head of the layer holds
/// no longer: the most valuable gains with the least valuable losses.
void tie_gains_to_losses(const BlockMirror& mirror,
                         std::span<const HeadSelection> selection,
                         std::int32_t heads,
                         RefreshPlan& plan) {
  const auto value = [&](const TableUpdate& clear) {
    const std::vector<float>& scores =
        selection[static_cast<std::size_t>(clear.layer * heads + clear.head)].scores;
    return clear.block < scores.size() ? comparable(scores[clear.block])
                                       : -std::numeric_limits<float>::infinity();
  };
  std::map<std::uint16_t, std::vector<TableUpdate>> losses;  // of a layer, most valuable first
  for (const TableUpdate& clear : plan.clears) {
    losses[clear.layer].push_back(clear);
  }
  for (auto& [layer, clears] : losses) {
    std::stable_sort(clears.begin(), clears.end(), [&](const auto& a, const auto& b) {
      return value(a) > value(b);
    });
  }
  std::vector<Placement*> gains;
  for (Placement& placement : plan.placements) {
    const TableUpdate& u = placement.update;
    if (mirror.head(u.layer, u.head)[u.entry].count == 0) {
      gains.push_back(&placement);
    }
  }
  std::stable_sort(gains.begin(), gains.end(), [](const Placement* a, const Placement* b) {
    return a->score > b->score;
  });
  for (Placement* gain : gains) {
    std::vector<TableUpdate>& clears = losses[gain->update.layer];
    if (!clears.empty()) {
      gain->instead_of = clears.back();
      clears.pop_back();
    }
  }
  plan.clears.clear();
  for (const auto& [layer, clears] : losses) {
    plan.clears.insert(plan.clears.end(), clears.begin(), clears.end());
  }
}

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
    HeadPlan(mirror.head(i / heads, i % heads),
             selection[static_cast<std::size_t>(i)],
             layout.extra_entries > 0)
        .place(layout, limit, where, plan);
  }
  if (layout.shares_heads()) {
    tie_gains_to_losses(mirror, selection, heads, plan);
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
  for (std::size_t i = 0; i < count; ++i) {
    if (plan.placements[i].instead_of) {
      updates.push_back(*plan.placements[i].instead_of);
    }
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
