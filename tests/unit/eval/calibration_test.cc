// SPDX-License-Identifier: Apache-2.0
#include "eval/calibration.h"

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace rift::eval {
namespace {

TEST(Splits, AreDisjointAndHaveEverySequence) {
  for (const std::size_t count : {3U, 4U, 5U, 10U, 37U}) {
    const Splits splits = split_sequences(count, 7);
    std::set<std::size_t> all;
    for (const auto* split : {&splits.calibration, &splits.selection, &splits.confirmation}) {
      EXPECT_FALSE(split->empty()) << count;
      all.insert(split->begin(), split->end());
    }
    EXPECT_EQ(all.size(), count);
    EXPECT_EQ(splits.calibration.size() + splits.selection.size() + splits.confirmation.size(),
              count);
    EXPECT_EQ(split_sequences(count, 7).selection, splits.selection);
  }
  EXPECT_NE(split_sequences(37, 7).calibration, split_sequences(37, 8).calibration);
  EXPECT_THROW((void)split_sequences(2, 7), Error);
}

Measurement run_of(std::vector<std::int32_t> lengths, std::size_t refreshes) {
  Measurement out;
  for (const std::int32_t length : lengths) {
    out.steps.push_back({0, length});
  }
  out.refresh_positions.resize(refreshes);
  return out;
}

TEST(TradeOff, IsPooled) {
  const std::vector<Measurement> runs = {run_of({4, 6}, 1), run_of({10, 10, 10}, 3)};
  const TradeOff all = trade_off(runs);
  EXPECT_DOUBLE_EQ(all.accepted_length, 40.0 / 5.0);
  EXPECT_DOUBLE_EQ(all.refreshes_per_1k, 100.0);
  const std::vector<std::size_t> drawn = {0, 0, 1};
  EXPECT_DOUBLE_EQ(trade_off(runs, drawn).accepted_length, 50.0 / 7.0);
  EXPECT_DOUBLE_EQ(trade_off(runs, drawn).refreshes_per_1k, 100.0);
}

TEST(Compare, ReadsBetweenTheFixedSchedules) {
  // None: 3.0; 10 refreshes: 4.0; 20: 4.5; 40: 4.4, which a best schedule of 4.5 replaces.
  const std::vector<TradeOff> fixed = {{20, 4.5}, {0, 3.0}, {40, 4.4}, {10, 4.0}};
  Comparison c = compare({5, 4.0}, fixed);
  EXPECT_DOUBLE_EQ(c.gain, 0.5);       // 3.5 at 5 refreshes
  EXPECT_DOUBLE_EQ(c.reduction, 0.5);  // 4.0 takes 10
  c = compare({15, 4.25}, fixed);
  EXPECT_DOUBLE_EQ(c.gain, 0.0);
  EXPECT_DOUBLE_EQ(c.reduction, 0.0);
  c = compare({30, 4.25}, fixed);
  EXPECT_DOUBLE_EQ(c.gain, -0.25);
  EXPECT_DOUBLE_EQ(c.reduction, -1.0);
  c = compare({20, 5.0}, fixed);  // better than all of them: against the densest
  EXPECT_DOUBLE_EQ(c.gain, 0.5);
  EXPECT_DOUBLE_EQ(c.reduction, 0.5);
  c = compare({5, 2.5}, fixed);  // worse than no refresh at all
  EXPECT_DOUBLE_EQ(c.gain, -1.0);
  EXPECT_EQ(c.reduction, -std::numeric_limits<double>::infinity());
}

TEST(NonnegativeLeastSquares, SolvesWithAndWithoutActiveBounds) {
  // Exact: 2 a + 3 b.
  std::vector<std::vector<double>> columns = {{1, 0, 1, 2}, {0, 1, 1, -1}};
  std::vector<double> target = {2, 3, 5, 1};
  std::vector<double> x = nonnegative_least_squares(columns, target);
  EXPECT_NEAR(x[0], 2.0, 1e-7);
  EXPECT_NEAR(x[1], 3.0, 1e-7);
  // The free solution is (1, -1): with b held at 0, a = <c, t> / <c, c> of the first column.
  columns = {{1, 1, 0}, {0, 1, 1}};
  target = {1, 0, -1};
  x = nonnegative_least_squares(columns, target);
  EXPECT_NEAR(x[0], 0.5, 1e-9);
  EXPECT_EQ(x[1], 0.0);
}

Measurement with_strides(const std::vector<policy::Signals>& signals) {
  Measurement out;
  for (const policy::Signals& s : signals) {
    Stride& stride = out.strides.emplace_back();
    stride.signals = s;
  }
  return out;
}

TEST(Candidates, StandAtPercentilesOfOldEnoughStrides) {
  std::vector<policy::Signals> signals;
  for (int i = 1; i <= 20; ++i) {
    // Worse from stride to stride; the young ones must not count.
    signals.push_back({.age = 100,
                       .acceptance = 10.0 - 0.25 * i,
                       .acceptance_base = 10.0,
                       .entropy = 1.0 + 0.125 * i,
                       .entropy_base = 1.0,
                       .drift = 0.03125 * i});
    signals.push_back({.age = 3,
                       .acceptance = 0.0,
                       .acceptance_base = 10.0,
                       .entropy = 50.0,
                       .entropy_base = 1.0,
                       .drift = 2.0});
  }
  const std::vector<Measurement> collected = {with_strides(signals)};
  const AdaSpec base{.stride = 8, .min_age = 16, .max_age = 500};
  const std::vector<Candidate> found = candidates(collected, base);
  const auto by_name = [&](const std::string& name) {
    for (const Candidate& candidate : found) {
      if (candidate.name == name) {
        return candidate.ada;
      }
    }
    ADD_FAILURE() << name;
    return AdaSpec{};
  };
  // Nearest rank of 20: p50 is the 10th, p75 the 15th, p90 the 18th worst.
  AdaSpec expected = base;
  expected.acceptance_low = 7.5F;
  EXPECT_EQ(by_name("acceptance_low at p50"), expected);
  expected = base;
  expected.drift_high = 0.46875F;
  EXPECT_EQ(by_name("drift_high at p75"), expected);
  const AdaSpec any = by_name("any signal at p90");
  EXPECT_EQ(any.gate, AdaGate::kOr);
  EXPECT_EQ(any.acceptance_drop, 4.5F);
  EXPECT_EQ(any.entropy_high, 3.25F);
  EXPECT_EQ(any.entropy_rise, 2.25F);
  const AdaSpec both = by_name("entropy_high and drift_high at p50");
  EXPECT_EQ(both.gate, AdaGate::kAnd);
  EXPECT_EQ(both.entropy_high, 2.25F);
  EXPECT_EQ(both.drift_high, 0.3125F);
  EXPECT_EQ(both.acceptance_low, -AdaSpec::kOff);
  for (const Candidate& candidate : found) {
    EXPECT_EQ(candidate.ada.stride, 8);
    EXPECT_EQ(candidate.ada.max_age, 500);
  }
}

TEST(Candidates, FitTheScoreToWhatComesNext) {
  // The next stride's shortfall is 8 times the drift; entropy says nothing.
  std::vector<policy::Signals> signals;
  double shortfall = 0.0;
  for (int i = 0; i < 64; ++i) {
    const double drift = 0.01 * ((i * 37) % 64);
    signals.push_back({.age = 100,
                       .acceptance = 10.0 - shortfall,
                       .acceptance_base = 10.0,
                       .entropy = 1.0 + 0.1 * ((i * 11) % 7),
                       .entropy_base = 1.0,
                       .drift = drift});
    shortfall = 8.0 * drift;
  }
  const std::vector<Measurement> collected = {with_strides(signals)};
  const std::vector<Candidate> found = candidates(collected, {.min_age = 16});
  const auto score = std::find_if(found.begin(), found.end(), [](const Candidate& c) {
    return c.name == "fitted score at p90";
  });
  ASSERT_NE(score, found.end());
  EXPECT_NEAR(score->ada.weights[4], 8.0, 1e-3);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(score->ada.weights[i], 0.0, 1e-3) << i;
  }
  EXPECT_GT(score->ada.score_threshold, 0.0F);
}

TEST(Candidates, NeedStridesThatAreOldEnough) {
  const std::vector<Measurement> young = {with_strides({{.age = 3}})};
  EXPECT_THROW((void)candidates(young, {.min_age = 16}), Error);
}

}  // namespace
}  // namespace rift::eval
