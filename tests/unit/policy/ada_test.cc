// SPDX-License-Identifier: Apache-2.0
#include "policy/ada.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace rift::policy {
namespace {

constexpr Signals kCalm{.age = 100,
                        .acceptance = 5.0,
                        .acceptance_base = 5.0,
                        .entropy = 1.0,
                        .entropy_base = 1.0,
                        .drift = 0.1};

TEST(Ada, AndNeedsEveryConditionThatIsOn) {
  const AdaSpec spec{.acceptance_low = 3.0F, .drift_high = 0.25F, .gate = AdaGate::kAnd};
  Signals signals = kCalm;
  signals.acceptance = 2.0;
  EXPECT_FALSE(decide(spec, signals).refresh);
  signals.drift = 0.5;
  EXPECT_EQ(decide(spec, signals).rule, AdaRule::kAll);
  EXPECT_TRUE(decide(spec, signals).refresh);
  signals.acceptance = 4.0;
  EXPECT_FALSE(decide(spec, signals).refresh);
}

TEST(Ada, AndWithoutConditionsNeverRefreshesBeforeTheMaximumAge) {
  const AdaSpec spec{.max_age = 200, .gate = AdaGate::kAnd};
  Signals signals = kCalm;
  EXPECT_FALSE(decide(spec, signals).refresh);
  signals.age = 200;
  EXPECT_EQ(decide(spec, signals).rule, AdaRule::kMaxAge);
}

TEST(Ada, ScoreIsTheWeightedSumAndNeverFallsWhenASignalGetsWorse) {
  const AdaSpec spec{
      .gate = AdaGate::kScore, .weights = {0.5F, 0.25F, 1.0F, 2.0F, 4.0F}, .score_threshold = 1.0F};
  Signals signals = kCalm;
  // -0.5 * 5 + 0.25 * 1 + 1 * 0 + 2 * 0 + 4 * 0.1
  EXPECT_NEAR(ada_score(spec, signals), -1.85, 1e-6);
  EXPECT_FALSE(decide(spec, signals).refresh);
  double last = ada_score(spec, signals);
  for (const auto& worsen : std::vector<void (*)(Signals&)>{
           [](Signals& s) { s.acceptance -= 1.0; },  // low and dropped
           [](Signals& s) { s.entropy += 0.5; },
           [](Signals& s) { s.drift += 0.2; },
       }) {
    worsen(signals);
    EXPECT_GT(ada_score(spec, signals), last);
    last = ada_score(spec, signals);
  }
  EXPECT_EQ(decide(spec, signals).rule, AdaRule::kScore);
}

TEST(Ada, BasesAreThoseOfTheFirstStrideAfterARefresh) {
  AdaState state({.stride = 4, .min_age = 4, .entropy_rise = 1.0F}, 10);
  const auto stride = [&](std::int32_t committed, float value) {
    state.on_step(4, std::array{value, value}, 0.0);
    EXPECT_TRUE(state.stride_over(committed));
    return state.end_stride(committed, true);
  };
  EXPECT_FALSE(stride(14, 1.0F).refresh);  // the base
  EXPECT_FALSE(stride(18, 1.9F).refresh);
  EXPECT_EQ(stride(22, 2.0F).rule, AdaRule::kEntropyRise);
  EXPECT_FALSE(stride(26, 2.5F).refresh);  // a new base
  EXPECT_FALSE(stride(30, 3.4F).refresh);
  EXPECT_TRUE(stride(34, 3.5F).refresh);
}

TEST(Ada, NothingIsDecidedWhileARefreshIsImpossible) {
  AdaState state({.stride = 4, .min_age = 1, .max_age = 8}, 0);
  state.on_step(8, {}, 0.0);
  EXPECT_FALSE(state.end_stride(8, false).refresh);
  EXPECT_EQ(state.signals().age, 8);
  EXPECT_FALSE(state.stride_over(11));
  EXPECT_TRUE(state.stride_over(12));
  EXPECT_TRUE(state.end_stride(12, true).refresh);
  EXPECT_FALSE(state.end_stride(16, true).refresh);  // age 4
  EXPECT_EQ(state.signals().age, 4);
}

TEST(QueryDrift, ForgetsRowsThatWereNotSettled) {
  // One layer, one head of two dimensions: angles are easy.
  QueryDrift drift({1, 1, 1, 2}, 3);
  const auto put = [&](std::int32_t row, float x, float y) {
    drift.put(row, 0, std::array{x, y}.data());
  };
  put(0, 1.0F, 0.0F);
  drift.settle(1);
  drift.next_stride(false);
  put(0, 1.0F, 0.0F);
  put(1, 0.0F, 5.0F);  // a draft that is rejected
  put(2, 0.0F, 5.0F);
  EXPECT_GT(drift.drift(3), 0.5);
  EXPECT_NEAR(drift.drift(1), 0.0, 1e-12);
  drift.settle(1);
  EXPECT_NEAR(drift.drift(0), 0.0, 1e-12);
  put(0, 0.0F, 1.0F);
  drift.settle(1);  // (1, 1) against (1, 0): 1 - cos 45 degrees
  EXPECT_NEAR(drift.drift(0), 1.0 - 0.70710678118654752, 1e-12);
  drift.next_stride(false);  // keeps the reference
  put(0, 0.0F, 2.0F);
  EXPECT_NEAR(drift.drift(1), 1.0, 1e-12);
  drift.settle(1);
  drift.next_stride(true);
  put(0, 0.0F, 2.0F);
  EXPECT_NEAR(drift.drift(1), 0.0, 1e-12);
}

}  // namespace
}  // namespace rift::policy
