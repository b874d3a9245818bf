// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"
#include "common/working_set_layout.h"

#include <cstdint>

namespace rift::policy {

/// How a budget is divided (ARCHITECTURE.md, 4). sinks + recent + slots * P + unused == B; for
/// kFull the recent window is the whole context. With an allocation other than kUniform
/// slots_per_head is the mean over the heads of a layer (kAdaKv) or over the layers (kPyramidKv).
struct BudgetPlan {
  std::int32_t recent = 0;          // r
  std::int32_t slots_per_head = 0;  // floor(k / P)
  std::int32_t unused = 0;          // what rounding leaves over
  std::int32_t sinks = 0;           // first positions, kept besides the recent ones

  bool operator==(const BudgetPlan&) const = default;
};

/// Errors (thrown): kInvalidArgument for budget < 1, block < 1, rho outside [0, 1], delta < 1,
/// window < 1, staging_percent outside [0, 100], an even pool_width, refresh_lag < -1, a stride,
/// age or weight of RIFT-ada out of range; the message names the value.
[[nodiscard]] BudgetPlan plan_budget(const PolicySpec& spec, std::int32_t max_context);

/// Layout of a session's working set under `spec`.
/// ring_capacity = recent + max_draft_len + 1; staging_slots = staging_percent of all selected
/// slots, rounded up, at least one per layer and head where there are slots at all; 0 where the
/// policy never refreshes (the first working set needs none). The slots are as many for every
/// allocation; kAdaKv lets a head's table have up to what its layer's floors leave, kPyramidKv
/// gives every layer its share (policy/allocation.h), in blocks and for a prompt of any length.
/// Errors (thrown): as plan_budget; kOutOfRange when the slots do not fit 31 bits.
[[nodiscard]] WorkingSetLayout plan_layout(const PolicySpec& spec,
                                           const KvGeometry& geometry,
                                           std::int32_t max_context,
                                           std::int32_t max_draft_len);

/// P of the session's block table: H2O evicts single positions, whatever block is asked for.
[[nodiscard]] std::int32_t block_size(const PolicySpec& spec);

/// What scores the candidates of a policy that selects: H2O has its own.
[[nodiscard]] Selector selector(const PolicySpec& spec);

/// Whether the policy selects blocks at all / again after the prompt.
[[nodiscard]] bool selects(const PolicySpec& spec);
[[nodiscard]] bool refreshes(const PolicySpec& spec);

}  // namespace rift::policy
