// SPDX-License-Identifier: Apache-2.0
#include "eval/statistics.h"

#include "tests/unit/eval/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace rift::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Setting setting(Policy policy, std::int32_t draft_len, float temperature) {
  Setting s;
  s.policy.policy = policy;
  s.draft_len = draft_len;
  s.temperature = temperature;
  return s;
}

constexpr BootstrapOptions kOptions;

TEST(AcceptedLength, IsPooledOverStepsAndAveragedOverPrompts) {
  // 8 tokens in 2 steps, 4 tokens in 4 steps.
  const std::vector<Measurement> runs{run_of({5, 3}), run_of({1, 1, 1, 1})};
  EXPECT_DOUBLE_EQ(pooled_accepted_length(runs), 2.0);
  EXPECT_DOUBLE_EQ(mean_accepted_length(runs), 2.5);
}

TEST(AcceptedLength, LeavesOutPromptsThatHaveNotRun) {
  const std::vector<Measurement> runs{run_of({5, 3}), Measurement{}};
  EXPECT_DOUBLE_EQ(pooled_accepted_length(runs), 4.0);
  EXPECT_DOUBLE_EQ(mean_accepted_length(runs), 4.0);
  EXPECT_EQ(accepted_length_interval(runs, kOptions), (Interval{4.0, 4.0}));
  EXPECT_EQ(pooled_accepted_length({}), 0.0);
  EXPECT_EQ(mean_accepted_length({}), 0.0);
  EXPECT_EQ(accepted_length_interval({}, kOptions), (Interval{0.0, 0.0}));
}

TEST(Bootstrap, OfTwoPromptsReachesFromOneToTheOther) {
  // A quarter of all resamples is {a, a}, a quarter {b, b}.
  const std::vector<Measurement> runs{run_of(10, 2), run_of(10, 4)};
  EXPECT_EQ(accepted_length_interval(runs, kOptions), (Interval{2.0, 4.0}));
}

TEST(Bootstrap, OfAMeanAgreesWithTheNormalApproximation) {
  constexpr std::size_t kItems = 400;
  std::vector<double> values(kItems);
  std::iota(values.begin(), values.end(), 0.0);
  const Interval interval = bootstrap(kItems,
                                      [&](std::span<const std::size_t> drawn) {
                                        double sum = 0.0;
                                        for (const std::size_t i : drawn) {
                                          sum += values[i];
                                        }
                                        return sum / static_cast<double>(drawn.size());
                                      },
                                      {.resamples = 4000, .seed = 7});
  // Mean 199.5; variance of 0..n-1 is (n^2 - 1) / 12.
  const double error = std::sqrt((400.0 * 400.0 - 1.0) / 12.0 / 400.0);
  EXPECT_NEAR(interval.low, 199.5 - 1.96 * error, 0.15 * error);
  EXPECT_NEAR(interval.high, 199.5 + 1.96 * error, 0.15 * error);
}

TEST(Bootstrap, RepeatsForASeedAndDiffersForAnother) {
  const std::vector<Measurement> runs{
      run_of({5, 3, 2}), run_of({1, 4}), run_of({2, 2, 7}), run_of({9}), run_of({3, 1, 1})};
  const Interval first = accepted_length_interval(runs, {.resamples = 50, .seed = 3});
  EXPECT_EQ(first, accepted_length_interval(runs, {.resamples = 50, .seed = 3}));
  EXPECT_NE(first, accepted_length_interval(runs, {.resamples = 50, .seed = 4}));
}

TEST(Bootstrap, PairsTakeThePromptsOwnVariationOut) {
  const std::vector<Measurement> a{run_of(10, 3), run_of(10, 7), run_of(10, 5)};
  const std::vector<Measurement> b{run_of(10, 2), run_of(10, 6), run_of(10, 4)};
  const Interval paired = accepted_length_difference(a, b, Pairing::kPaired, kOptions);
  EXPECT_NEAR(paired.low, 1.0, 1e-12);  // two quotients, each rounded once
  EXPECT_NEAR(paired.high, 1.0, 1e-12);
  const Interval unpaired = accepted_length_difference(a, b, Pairing::kUnpaired, kOptions);
  EXPECT_LT(unpaired.low, 0.0);
  EXPECT_GT(unpaired.high, 2.0);
}

TEST(Bootstrap, UnpairedSamplesMayDifferInSize) {
  const std::vector<Measurement> a{run_of(10, 3), run_of(10, 3)};
  const std::vector<Measurement> b{run_of(10, 2)};
  EXPECT_EQ(accepted_length_difference(a, b, Pairing::kUnpaired, kOptions), (Interval{1.0, 1.0}));
  EXPECT_EQ(accepted_length_difference(a, {}, Pairing::kUnpaired, kOptions), (Interval{0.0, 0.0}));
}

TEST(Retention, ComparesThePromptsThatBothRan) {
  const std::vector<Measurement> runs{run_of(10, 3), run_of(10, 9), Measurement{}};
  const std::vector<Measurement> full{run_of(10, 4), Measurement{}, run_of(10, 9)};
  const auto r = retention(runs, full, kOptions);
  ASSERT_TRUE(r);
  EXPECT_DOUBLE_EQ(r->share, 0.75);
  EXPECT_EQ(r->interval, (Interval{0.75, 0.75}));
  const std::vector<Measurement> nothing(3);
  EXPECT_FALSE(retention(nothing, full, kOptions));
}

TEST(Retention, TakesTheFullRowOfTheSameDraftLengthAndTemperature) {
  Evaluation e;
  e.rows = {{setting(Policy::kFull, 7, 0.0F), {}},
            {setting(Policy::kFull, 11, 1.0F), {}},
            {setting(Policy::kSwa, 11, 0.0F), {}},
            {setting(Policy::kFull, 11, 0.0F), {}}};
  EXPECT_EQ(full_kv_row(e, setting(Policy::kSwa, 11, 0.0F)), &e.rows[3]);
  EXPECT_EQ(full_kv_row(e, setting(Policy::kSwa, 7, 0.0F)), &e.rows[0]);
  EXPECT_EQ(full_kv_row(e, setting(Policy::kSwa, 5, 0.0F)), nullptr);
}

TEST(AcceptanceByPosition, AddsPromptsOfDifferentDraftLengths) {
  Measurement a;
  a.drafted_per_position = {4, 4};
  a.accepted_per_position = {3, 1};
  Measurement b;
  b.drafted_per_position = {2, 2, 2};
  b.accepted_per_position = {0, 0, 0};
  const std::vector<Measurement> runs{a, b};
  const auto positions = acceptance_by_position(runs);
  EXPECT_THAT(
      positions,
      ElementsAre(PositionAcceptance{6, 3}, PositionAcceptance{6, 1}, PositionAcceptance{2, 0}));
  EXPECT_DOUBLE_EQ(positions[0].rate(), 0.5);
  EXPECT_EQ(PositionAcceptance{}.rate(), 0.0);
  EXPECT_THAT(acceptance_by_position({}), IsEmpty());
}

TEST(Buckets, HoldTheStepsThatBeganInThem) {
  // Steps begin at 0, 3, 8; 0, 20.
  const std::vector<Measurement> runs{run_of({3, 5, 2}), run_of({20, 4})};
  EXPECT_THAT(
      accepted_length_by_position(runs, 8),
      ElementsAre(Bucket{0, 8, 28.0 / 3.0, 3}, Bucket{8, 16, 2.0, 1}, Bucket{16, 24, 4.0, 1}));
}

TEST(Buckets, OfOutputLengthsStartAtZero) {
  const std::vector<Measurement> runs{run_of({3, 5, 2}), run_of({20, 4})};
  const std::vector<std::int32_t> ends{3, 9, 100};
  EXPECT_THAT(accepted_length_by_output(runs, ends),
              ElementsAre(Bucket{0, 3, 11.5, 2}, Bucket{0, 9, 7.5, 4}, Bucket{0, 100, 6.8, 5}));
}

TEST(Buckets, OfMassAreMeansOfSamples) {
  Measurement m;
  m.mass = {{0, 0.5F}, {31, 0.75F}, {32, 0.25F}};
  const std::vector<Measurement> runs{m};
  EXPECT_THAT(mass_by_position(runs, 32),
              ElementsAre(Bucket{0, 32, 0.625, 2}, Bucket{32, 64, 0.25, 1}));
}

TEST(Buckets, WidthKeepsTheirNumberSmall) {
  EXPECT_EQ(bucket_width(0, 16), 32);
  EXPECT_EQ(bucket_width(511, 16), 32);  // 16 buckets
  EXPECT_EQ(bucket_width(512, 16), 64);  // 32-token buckets would be 17
  EXPECT_EQ(bucket_width(4096, 16), 512);
  EXPECT_EQ(bucket_width(2147483647, 1), 1 << 24);
}

TEST(Summary, CountsRefreshesAndBytesPerCommittedToken) {
  Measurement a = run_of({5, 5});
  a.first_set_bytes = 1000;
  a.refresh_bytes = 400;
  a.refresh_positions = {2};
  a.refresh_lags = {4};
  a.refresh_seconds = {0.5};
  a.mass = {{0, 0.5F}, {8, 1.0F}};
  a.seconds = 2.0;
  Measurement b = run_of({10, 20});
  b.first_set_bytes = 1000;
  b.refresh_bytes = 600;
  b.refresh_positions = {2, 9};
  b.refresh_lags = {6, 8};
  b.refresh_seconds = {0.25, 1.0};
  b.seconds = 3.0;
  Evaluation e;
  e.rows = {{setting(Policy::kRiftDyn, 11, 0.0F), {a, b, Measurement{}}},
            {setting(Policy::kFull, 11, 0.0F), {run_of({10}), run_of({20, 20}), run_of({1})}}};
  const RowSummary s = summarise(e, e.rows[0], kOptions);
  EXPECT_EQ(s.prompts, 2);
  EXPECT_EQ(s.steps, 4);
  EXPECT_EQ(s.committed, 40);
  EXPECT_DOUBLE_EQ(s.pooled, 10.0);
  EXPECT_DOUBLE_EQ(s.mean, 10.0);
  EXPECT_EQ(s.refreshes, 3);
  EXPECT_DOUBLE_EQ(s.refreshes_per_1k, 75.0);
  EXPECT_DOUBLE_EQ(s.first_set_bytes_per_token, 50.0);
  EXPECT_DOUBLE_EQ(s.refresh_bytes_per_token, 25.0);
  EXPECT_DOUBLE_EQ(s.bytes_per_token(), 75.0);
  EXPECT_DOUBLE_EQ(s.mass.value(), 0.75);
  EXPECT_DOUBLE_EQ(s.lag.value(), 6.0);
  EXPECT_DOUBLE_EQ(s.refresh_seconds_p50.value(), 0.5);
  EXPECT_DOUBLE_EQ(s.refresh_seconds_p99.value(), 1.0);
  EXPECT_DOUBLE_EQ(s.seconds, 5.0);
  ASSERT_TRUE(s.retention);
  EXPECT_DOUBLE_EQ(s.retention->share, 10.0 / (50.0 / 3.0));
}

TEST(Summary, OfARowThatHasNotRunIsEmpty) {
  Evaluation e;
  e.rows = {{setting(Policy::kSwa, 11, 0.0F), {Measurement{}}}};
  const RowSummary s = summarise(e, e.rows[0], kOptions);
  EXPECT_EQ(s.prompts, 0);
  EXPECT_EQ(s.pooled, 0.0);
  EXPECT_EQ(s.bytes_per_token(), 0.0);
  EXPECT_EQ(s.refreshes_per_1k, 0.0);
  EXPECT_FALSE(s.retention);
  EXPECT_FALSE(s.mass);
  EXPECT_FALSE(s.lag);
  EXPECT_FALSE(s.refresh_seconds_p50);
}

}  // namespace
}  // namespace rift::eval
