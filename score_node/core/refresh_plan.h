// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/working_set_layout.h"
#include "score_node/core/block_mirror.h"
#include "score_node/core/types.h"
#include "transport/messages.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace rift::score_node {

/// A block that the draft node lacks, and the table entry that will name it.
struct Placement {
  transport::TableUpdate update;  // its slot is assigned by next_wave
  float score = 0.0F;
  /// Entry of another head that goes in the same wave, so that the layer's budget holds.
  std::optional<transport::TableUpdate> instead_of{};

  bool operator==(const Placement&) const = default;
};

/// What turns the table of the draft node into a new selection. Value type.
struct RefreshPlan {
  std::vector<Placement> placements;           // most valuable first
  std::vector<transport::TableUpdate> clears;  // entries for which no block is left

  [[nodiscard]] bool empty() const { return placements.empty() && clears.empty(); }
};

/// The difference between what the draft node holds and `selection` [L, G] of the candidates
/// [0, limit). Blocks held with the same count stay where they are. A new block takes its own older
/// version's entry, else an empty one, else that of the least valuable resident of its head; where
/// the table has more entries than a head's budget, that resident's entry before an empty one, and
/// where the heads of a layer share their budget, what one gains is tied to what another one gives
/// up, so that no wave exceeds the budget.
/// Pure. Source: ARCHITECTURE.md, 4.
[[nodiscard]] RefreshPlan plan_refresh(const WorkingSetLayout& layout,
                                       const BlockMirror& mirror,
                                       std::span<const HeadSelection> selection,
                                       std::int32_t limit);

/// Takes as many of the most valuable placements from `plan` as there are free slots, and gives
/// them slots in the order of layer, head and block, so that neighbours lie together. Entries that
/// no placement replaces are cleared with the last ones.
[[nodiscard]] std::vector<transport::TableUpdate> next_wave(
    RefreshPlan& plan, std::span<const std::uint32_t> free_slots);

}  // namespace rift::score_node
