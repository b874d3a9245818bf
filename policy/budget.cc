// SPDX-License-Identifier: Apache-2.0
#include "policy/budget.h"

#include "common/error.h"
#include "policy/allocation.h"
#include "policy/sinks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace rift::policy {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

void require(bool ok, const char* name, double value, const char* rule) {
  if (!ok) {
    throw fail(Errc::kInvalidArgument, "{} is {}: it must be {}", name, value, rule);
  }
}

void validate(const PolicySpec& spec) {
  require(spec.budget >= 1, "budget", spec.budget, "at least 1 position");
  require(spec.block >= 1, "block", spec.block, "at least 1 position");
  // Written so that NaN is refused too.
  require(spec.rho >= 0.0F && spec.rho <= 1.0F, "rho", spec.rho, "between 0 and 1");
  require(spec.delta >= 1, "delta", spec.delta, "at least 1 token");
  require(spec.window >= 1, "window", spec.window, "at least 1 query");
  require(spec.staging_percent >= 0 && spec.staging_percent <= 100,
          "staging_percent",
          spec.staging_percent,
          "between 0 and 100");
  require(spec.pool_width >= 1 && spec.pool_width % 2 == 1, "pool_width", spec.pool_width, "odd");
  require(spec.refresh_lag >= -1, "refresh_lag", spec.refresh_lag, "at least -1");
  const AdaSpec& ada = spec.ada;
  require(ada.stride >= 1, "ada stride", ada.stride, "at least 1 token");
  require(ada.min_age >= 1, "ada min_age", ada.min_age, "at least 1 token");
  require(ada.max_age >= ada.min_age, "ada max_age", ada.max_age, "at least min_age");
  for (const float weight : ada.weights) {
    require(weight >= 0.0F && weight <= std::numeric_limits<float>::max(),
            "an ada weight",
            weight,
            "finite and not negative");
  }
}

// floor(rho B) of the decimal number that was written: 0.7F lies below 0.7 and would give 6 of 10.
// Half a unit in the last place of a float in [0.5, 1) is 2^-25.
std::int32_t recent_share(float rho, std::int32_t budget) {
  const double b = budget;
  const double slack = std::min(std::ldexp(b, -25), 0.01);
  return std::min(budget,
                  static_cast<std::int32_t>(std::floor(static_cast<double>(rho) * b + slack)));
}

std::int32_t recent_positions(const PolicySpec& spec, std::int32_t max_context) {
  switch (spec.policy) {
    case Policy::kFull:
      return max_context;
    case Policy::kSwa:
      return spec.budget;
    case Policy::kSnapKv:
      return std::min(spec.window, spec.budget);
    case Policy::kRiftStat:
    case Policy::kRiftDyn:
    case Policy::kRiftAda:
      return recent_share(spec.rho, spec.budget);
    case Policy::kStreamingLlm:
      return std::max(0, spec.budget - kSinks);
    case Policy::kH2o:
      break;
  }
  throw fail(Errc::kUnsupported, "policy {} is not built yet", to_string(spec.policy));
}

void check_entries(const WorkingSetLayout& layout, std::int64_t per_head) {
  const std::int64_t heads = std::int64_t{layout.geometry.layers} * layout.geometry.kv_heads;
  if (per_head > kMaxInt || heads * per_head > kMaxInt) {
    throw fail(Errc::kOutOfRange,
               "a block table of {} heads x {} entries: the limit is {} entries",
               heads,
               per_head,
               kMaxInt);
  }
}

/// Lets heads or layers have more than slots_per_head where others have less.
void allocate(Allocation allocation, WorkingSetLayout& layout) {
  const std::int32_t slots = layout.slots_per_head;
  if (slots == 0 || layout.geometry.layers == 0) {
    return;
  }
  switch (allocation) {
    case Allocation::kUniform:
      break;
    case Allocation::kAdaKv: {
      const std::int64_t floor =
          std::int64_t{kAdaKvFloor.numerator} * slots / kAdaKvFloor.denominator;
      const std::int64_t others = layout.geometry.kv_heads - 1;
      const std::int64_t extra = std::max<std::int64_t>(0, others * (slots - floor));
      check_entries(layout, slots + extra);
      layout.extra_entries = static_cast<std::int32_t>(extra);
      break;
    }
    case Allocation::kPyramidKv:
      layout.layer_slots = pyramid_kv_counts(
          layout.geometry.layers, slots, kPyramidKvBeta, std::numeric_limits<std::int32_t>::max());
      check_entries(layout, layout.layer_slots.front());
      layout.extra_entries = layout.layer_slots.front() - slots;
      break;
  }
}

}  // namespace

std::int32_t block_size(const PolicySpec& spec) {
  return spec.policy == Policy::kH2o ? 1 : spec.block;
}

Selector selector(const PolicySpec& spec) {
  return spec.policy == Policy::kH2o ? Selector::kH2o : spec.selector;
}

bool selects(const PolicySpec& spec) {
  return spec.policy != Policy::kFull && spec.policy != Policy::kSwa &&
         spec.policy != Policy::kStreamingLlm;
}

bool refreshes(const PolicySpec& spec) {
  return spec.policy == Policy::kRiftDyn || spec.policy == Policy::kRiftAda;
}

BudgetPlan plan_budget(const PolicySpec& spec, std::int32_t max_context) {
  validate(spec);
  require(max_context >= 1, "max_context", max_context, "at least 1 position");
  BudgetPlan plan;
  plan.recent = recent_positions(spec, max_context);
  if (spec.policy == Policy::kStreamingLlm) {
    plan.sinks = std::min(kSinks, spec.budget);
  }
  if (selects(spec)) {
    const std::int32_t selected = spec.budget - plan.recent;
    plan.slots_per_head = selected / block_size(spec);
    plan.unused = selected % block_size(spec);
  }
  return plan;
}

WorkingSetLayout plan_layout(const PolicySpec& spec,
                             const KvGeometry& geometry,
                             std::int32_t max_context,
                             std::int32_t max_draft_len) {
  const BudgetPlan plan = plan_budget(spec, max_context);
  require(max_draft_len >= 0, "max_draft_len", max_draft_len, "at least 0");
  const std::int64_t heads = std::int64_t{geometry.layers} * geometry.kv_heads;
  const std::int64_t selected = heads * plan.slots_per_head;
  std::int64_t staging = 0;
  if (refreshes(spec) && plan.slots_per_head > 0) {
    staging = std::max((selected * spec.staging_percent + 99) / 100, heads);
  }
  const std::int64_t ring = std::int64_t{plan.recent} + max_draft_len + 1;
  if (selected + staging > kMaxInt || ring > kMaxInt) {
    throw fail(
        Errc::kOutOfRange,
        "budget {} in blocks of {} over {} layers x {} KV heads needs {} slots and a ring of "
        "{} positions: the limit of each is {}",
        spec.budget,
        block_size(spec),
        geometry.layers,
        geometry.kv_heads,
        selected + staging,
        ring,
        kMaxInt);
  }
  WorkingSetLayout layout;
  layout.geometry = geometry;
  layout.block = block_size(spec);
  layout.slots_per_head = plan.slots_per_head;
  layout.staging_slots = static_cast<std::int32_t>(staging);
  layout.ring_capacity = static_cast<std::int32_t>(ring);
  layout.sinks = plan.sinks;
  allocate(spec.allocation, layout);
  return layout;
}

}  // namespace rift::policy
