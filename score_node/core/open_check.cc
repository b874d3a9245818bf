// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/open_check.h"

#include "policy/budget.h"

#include <limits>

namespace rift::score_node {
namespace {

// Bounds what one peer's numbers make this node allocate: a table entry of each slot is kept.
constexpr std::int64_t kMaxSlots = 1 << 23;
constexpr std::uint64_t kMaxOffset = std::uint64_t{1} << 62U;

Status check_geometry(const KvGeometry& got, const KvGeometry& want) {
  if (got == want) {
    return {};
  }
  const auto text = [](const KvGeometry& g) {
    return fmt::format(
        "{} layers x {} KV heads x {} ({})", g.layers, g.kv_heads, g.head_dim, to_string(g.dtype));
  };
  return fail(Errc::kMismatch,
              "the session's KV is {}, this model's is {}: both nodes need the same draft model",
              text(got),
              text(want));
}

/// Whether the block table is what the policy's allocation makes of the slots.
bool fits_allocation(const transport::ScoreOpen& open) {
  const WorkingSetLayout& layout = open.layout;
  // Draft lengths and staging are the draft node's affair.
  const WorkingSetLayout planned =
      policy::plan_layout(open.policy, layout.geometry, open.max_context, 0);
  return layout.sinks == planned.sinks && layout.extra_entries == planned.extra_entries &&
         layout.layer_slots == planned.layer_slots;
}

Status check_layout(const transport::ScoreOpen& open,
                    const policy::BudgetPlan& plan,
                    const OpenLimits& limits) {
  const WorkingSetLayout& layout = open.layout;
  const std::int32_t block = policy::block_size(open.policy);
  if (layout.block != block || layout.slots_per_head != plan.slots_per_head ||
      layout.ring_capacity <= plan.recent || layout.staging_slots < 0) {
    return fail(Errc::kMismatch,
                "layout with blocks of {}, {} slots a head, a ring of {} and {} staging slots does "
                "not fit the policy: blocks of {}, {} slots a head, more than {} in the ring",
                layout.block,
                layout.slots_per_head,
                layout.ring_capacity,
                layout.staging_slots,
                block,
                plan.slots_per_head,
                plan.recent);
  }
  if (!fits_allocation(open)) {
    return fail(Errc::kMismatch,
                "layout with {} sinks and {} extra entries a head does not fit policy {} with "
                "allocation {}",
                layout.sinks,
                layout.extra_entries,
                to_string(open.policy.policy),
                to_string(open.policy.allocation));
  }
  if (policy::refreshes(open.policy) && plan.slots_per_head > 0 && layout.staging_slots == 0) {
    return fail(Errc::kInvalidArgument,
                "policy {} needs at least one staging slot to refresh through",
                to_string(open.policy.policy));
  }
  const std::int64_t heads = std::int64_t{layout.geometry.layers} * layout.geometry.kv_heads;
  const std::int64_t slots = heads * layout.slots_per_head + layout.staging_slots;
  if (slots > kMaxSlots || heads * layout.entries() > kMaxSlots ||
      layout.block > std::numeric_limits<std::uint16_t>::max()) {
    return fail(Errc::kOutOfRange,
                "{} slots of {} positions: at most {} of {}",
                slots,
                layout.block,
                kMaxSlots,
                std::numeric_limits<std::uint16_t>::max());
  }
  if (plan.slots_per_head > 0 && layout.block_bytes() > limits.send_chunk_bytes) {
    return fail(Errc::kOutOfRange,
                "a block has {} bytes, a chunk of the send buffer {}: use smaller blocks",
                layout.block_bytes(),
                limits.send_chunk_bytes);
  }
  if (open.arena_offset > kMaxOffset || layout.total_bytes() > kMaxOffset) {
    return fail(Errc::kOutOfRange, "arena offset {} is out of range", open.arena_offset);
  }
  return {};
}

}  // namespace

Status check_tokens(std::span<const TokenId> tokens, std::int32_t vocab) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab) {
      return fail(Errc::kOutOfRange, "token {} is outside the vocabulary of {}", token, vocab);
    }
  }
  return {};
}

Status check_open(const transport::ScoreOpen& open, const OpenLimits& limits) {
  if (open.tokens.empty()) {
    return fail(Errc::kInvalidArgument, "a session needs at least one token");
  }
  if (std::ssize(open.tokens) > open.max_context) {
    return fail(Errc::kOutOfRange,
                "{} tokens, but the session is for {}",
                open.tokens.size(),
                open.max_context);
  }
  if (Status status = check_geometry(open.layout.geometry, limits.geometry); !status.ok()) {
    return status;
  }
  try {
    const policy::BudgetPlan plan = policy::plan_budget(open.policy, open.max_context);
    if (Status status = check_layout(open, plan, limits); !status.ok()) {
      return status;
    }
  } catch (const Error& error) {  // what the policy says comes from a peer
    return error;
  }
  return check_tokens(open.tokens, limits.vocab);
}

}  // namespace rift::score_node
