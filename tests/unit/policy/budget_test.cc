// SPDX-License-Identifier: Apache-2.0
#include "policy/budget.h"

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <tuple>

namespace rift::policy {
namespace {

constexpr std::int32_t kContext = 4096;

PolicySpec spec_with(Policy policy, std::int32_t budget, std::int32_t block, float rho) {
  PolicySpec spec;
  spec.policy = policy;
  spec.budget = budget;
  spec.block = block;
  spec.rho = rho;
  return spec;
}

class BudgetGrid
    : public testing::TestWithParam<std::tuple<Policy, std::int32_t, std::int32_t, float>> {};

TEST_P(BudgetGrid, SplitsTheBudgetWithoutExceedingIt) {
  const auto [policy, budget, block, rho] = GetParam();
  const BudgetPlan plan = plan_budget(spec_with(policy, budget, block, rho), kContext);
  EXPECT_GE(plan.recent, 0);
  EXPECT_GE(plan.slots_per_head, 0);
  EXPECT_GE(plan.unused, 0);
  EXPECT_LT(plan.unused, block);
  EXPECT_EQ(plan.sinks + plan.recent + plan.slots_per_head * block + plan.unused, budget);
}

INSTANTIATE_TEST_SUITE_P(Grid,
                         BudgetGrid,
                         testing::Combine(testing::Values(Policy::kSwa,
                                                          Policy::kStreamingLlm,
                                                          Policy::kSnapKv,
                                                          Policy::kRiftStat,
                                                          Policy::kRiftDyn),
                                          testing::Values(1, 2, 3, 4, 5, 15, 16, 17, 64, 1024),
                                          testing::Values(1, 16, 128),
                                          testing::Values(0.0F, 0.3F, 0.5F, 1.0F)));

TEST(Budget, RecentShareIsTheFloorOfRhoB) {
  const auto recent = [](std::int32_t budget, float rho) {
    return plan_budget(spec_with(Policy::kRiftDyn, budget, 16, rho), kContext).recent;
  };
  EXPECT_EQ(recent(1024, 0.5F), 512);
  EXPECT_EQ(recent(263, 0.5F), 131);
  EXPECT_EQ(recent(1, 0.5F), 0);
  EXPECT_EQ(recent(1, 1.0F), 1);
  EXPECT_EQ(recent(1024, 0.0F), 0);
  // 0.7F lies below 0.7, 0.3F above 0.3: the number that was written counts.
  EXPECT_EQ(recent(10, 0.7F), 7);
  EXPECT_EQ(recent(1000, 0.7F), 700);
  EXPECT_EQ(recent(10, 0.3F), 3);
  EXPECT_EQ(recent(96, 0.3F), 28);
}

TEST(Budget, EveryTenthOfEveryBudgetIsExact) {
  for (std::int32_t tenths = 0; tenths <= 10; ++tenths) {
    const float rho = static_cast<float>(tenths) / 10.0F;
    for (std::int32_t budget = 1; budget <= 2048; ++budget) {
      ASSERT_EQ(plan_budget(spec_with(Policy::kRiftStat, budget, 16, rho), kContext).recent,
                budget * tenths / 10)
          << "rho " << rho << " B " << budget;
    }
  }
}

TEST(Budget, PoliciesDifferInTheirRecentWindow) {
  const auto plan = [](Policy policy, std::int32_t budget) {
    return plan_budget(spec_with(policy, budget, 16, 0.5F), kContext);
  };
  EXPECT_EQ(plan(Policy::kFull, 1024), (BudgetPlan{kContext, 0, 0}));
  EXPECT_EQ(plan(Policy::kSwa, 1024), (BudgetPlan{1024, 0, 0}));
  EXPECT_EQ(plan(Policy::kSnapKv, 1024), (BudgetPlan{64, 60, 0}));
  EXPECT_EQ(plan(Policy::kSnapKv, 32), (BudgetPlan{32, 0, 0}));
  EXPECT_EQ(plan(Policy::kRiftStat, 1030), (BudgetPlan{515, 32, 3}));
  EXPECT_EQ(plan(Policy::kStreamingLlm, 1024), (BudgetPlan{1020, 0, 0, 4}));
  EXPECT_EQ(plan(Policy::kStreamingLlm, 3), (BudgetPlan{0, 0, 0, 3}));
}

TEST(Budget, LayoutCountsRingSlotsAndStaging) {
  const KvGeometry geometry{24, 2, 64, DType::kF16};
  PolicySpec spec = spec_with(Policy::kRiftDyn, 1024, 16, 0.5F);
  spec.staging_percent = 25;
  const WorkingSetLayout layout = plan_layout(spec, geometry, kContext, 11);
  EXPECT_EQ(layout.ring_capacity, 512 + 11 + 1);
  EXPECT_EQ(layout.slots_per_head, 32);
  EXPECT_EQ(layout.staging_slots, 24 * 2 * 32 / 4);
  EXPECT_EQ(layout.block, 16);
  EXPECT_EQ(layout.geometry, geometry);

  spec.staging_percent = 0;  // still enough to move every head at once
  EXPECT_EQ(plan_layout(spec, geometry, kContext, 11).staging_slots, 48);
  spec.budget = 1;  // no slots, nothing to stage
  EXPECT_EQ(plan_layout(spec, geometry, kContext, 11).staging_slots, 0);
  spec = spec_with(Policy::kRiftStat, 1024, 16, 0.5F);  // filled once, while every slot is free
  EXPECT_EQ(plan_layout(spec, geometry, kContext, 11).staging_slots, 0);
}

TEST(Budget, AllocationsMoveSlotsButAddNone) {
  const KvGeometry geometry{24, 2, 64, DType::kF16};
  PolicySpec spec = spec_with(Policy::kRiftDyn, 1024, 16, 0.5F);  // 32 slots a head
  const WorkingSetLayout uniform = plan_layout(spec, geometry, kContext, 11);
  spec.allocation = Allocation::kAdaKv;
  const WorkingSetLayout ada = plan_layout(spec, geometry, kContext, 11);
  EXPECT_EQ(ada.entries(), 2 * 32 - 6);  // the other head keeps floor(0.2 * 32)
  EXPECT_EQ(ada.layer_limit(0), 2 * 32);
  EXPECT_TRUE(ada.shares_heads());
  spec.allocation = Allocation::kPyramidKv;
  const WorkingSetLayout pyramid = plan_layout(spec, geometry, kContext, 11);
  ASSERT_EQ(pyramid.layer_slots.size(), 24U);
  std::int64_t total = 0;
  for (std::int32_t layer = 0; layer < 24; ++layer) {
    EXPECT_LE(pyramid.head_limit(layer), pyramid.entries());
    total += pyramid.layer_limit(layer);
  }
  EXPECT_EQ(total, 24 * 2 * 32);
  EXPECT_EQ(pyramid.entries(), pyramid.layer_slots.front());
  EXPECT_FALSE(pyramid.shares_heads());
  for (const WorkingSetLayout& layout : {ada, pyramid}) {
    EXPECT_EQ(layout.slot_count(), uniform.slot_count());
    EXPECT_EQ(layout.total_bytes(), uniform.total_bytes());
  }
}

TEST(Budget, SinksLieBesideTheRing) {
  const KvGeometry geometry{2, 2, 64, DType::kF16};
  PolicySpec spec = spec_with(Policy::kStreamingLlm, 64, 16, 0.5F);
  const WorkingSetLayout layout = plan_layout(spec, geometry, kContext, 3);
  EXPECT_EQ(layout.sinks, 4);
  EXPECT_EQ(layout.ring_capacity, 60 + 4);
  EXPECT_EQ(layout.slot_count(), 0U);
  EXPECT_EQ(layout.total_bytes(), 4U * 2 * (64 + 4) * 128);
  EXPECT_EQ(layout.key_ring_offset(0, 0), 4U * 128);
  EXPECT_EQ(layout.value_sink_offset(0, 0), 68U * 128);
  EXPECT_EQ(layout.key_sink_offset(0, 1), 2U * 68 * 128);
}

TEST(Budget, WorkingSetDoesNotGrowWithTheContext) {
  const KvGeometry geometry{24, 2, 64, DType::kF16};
  const PolicySpec spec = spec_with(Policy::kRiftDyn, 1024, 16, 0.5F);
  EXPECT_EQ(plan_layout(spec, geometry, 500, 11), plan_layout(spec, geometry, 1 << 20, 11));
}

TEST(Budget, RefusesValuesOutsideTheirRangeAndNamesThem) {
  const auto message = [](auto change) -> std::string {
    PolicySpec spec;
    change(spec);
    try {
      static_cast<void>(plan_budget(spec, kContext));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
      return error.message();
    }
    return "accepted";
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([](PolicySpec& s) { s.budget = 0; }), HasSubstr("budget is 0"));
  EXPECT_THAT(message([](PolicySpec& s) { s.block = -3; }), HasSubstr("block is -3"));
  EXPECT_THAT(message([](PolicySpec& s) { s.rho = 1.5F; }), HasSubstr("rho is 1.5"));
  EXPECT_THAT(message([](PolicySpec& s) { s.rho = std::numeric_limits<float>::quiet_NaN(); }),
              HasSubstr("rho is nan"));
  EXPECT_THAT(message([](PolicySpec& s) { s.delta = 0; }), HasSubstr("delta is 0"));
  EXPECT_THAT(message([](PolicySpec& s) { s.window = 0; }), HasSubstr("window is 0"));
  EXPECT_THAT(message([](PolicySpec& s) { s.staging_percent = 101; }),
              HasSubstr("staging_percent is 101"));
}

TEST(Budget, RefusesALayoutWhoseSlotsOverflow) {
  const KvGeometry geometry{1000, 1000, 64, DType::kF16};
  const PolicySpec spec = spec_with(Policy::kRiftDyn, 1 << 20, 1, 0.5F);
  EXPECT_THROW(static_cast<void>(plan_layout(spec, geometry, kContext, 11)), Error);
}

TEST(Budget, OnlySelectingPoliciesSelectAndOnlyRiftDynRefreshes) {
  const auto of = [](Policy policy) { return spec_with(policy, 64, 16, 0.5F); };
  EXPECT_FALSE(selects(of(Policy::kFull)));
  EXPECT_FALSE(selects(of(Policy::kSwa)));
  EXPECT_FALSE(selects(of(Policy::kStreamingLlm)));
  EXPECT_TRUE(selects(of(Policy::kSnapKv)));
  EXPECT_TRUE(selects(of(Policy::kRiftStat)));
  EXPECT_TRUE(selects(of(Policy::kRiftDyn)));
  EXPECT_FALSE(refreshes(of(Policy::kRiftStat)));
  EXPECT_TRUE(refreshes(of(Policy::kRiftDyn)));
}

}  // namespace
}  // namespace rift::policy
