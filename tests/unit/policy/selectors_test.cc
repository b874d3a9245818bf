// SPDX-License-Identifier: Apache-2.0
#include "policy/critical_kv.h"
#include "policy/curdkv.h"
#include "policy/expected_attention.h"
#include "policy/h2o.h"
#include "policy/retained_mass.h"
#include "policy/sinks.h"
#include "policy/triattention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

namespace rift::policy {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Sinks, AreTheFirstFourAsFarAsThereAre) {
  std::vector<float> scores{9, 8, 7};
  mark_sinks(scores);
  EXPECT_THAT(scores, Each(kInfinity));
  scores.assign(6, 1.0F);
  mark_sinks(scores);
  EXPECT_THAT(scores, ElementsAre(kInfinity, kInfinity, kInfinity, kInfinity, 1, 1));
  mark_sinks({});
}

TEST(CriticalKv, HalfIsChosenByAttentionTheRestByWhatValuesAdd) {
  const std::vector<float> first{5, 4, 3, 2, 1};
  const std::vector<float> second{1, 2, 3, 9, 8};
  EXPECT_THAT(critical_ranked(first, second, 4), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(critical_ranked(first, second, 3), ElementsAre(0, 3, 4));
  EXPECT_THAT(critical_ranked(first, second, 1), ElementsAre(3));
  EXPECT_THAT(critical_ranked(first, second, 0), IsEmpty());
  EXPECT_THAT(critical_ranked(first, second, 9), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(critical_ranked({}, {}, 3), IsEmpty());
}

TEST(CriticalKv, TiesGoToTheLowerIndexAndNanComesLast) {
  const std::vector<float> equal{1, 1, 1, 1};
  EXPECT_THAT(critical_ranked(equal, equal, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(critical_ranked(equal, std::vector<float>{kNan, kNan, 1, kNan}, 4),
              ElementsAre(0, 1, 2, 3));
}

TEST(CriticalKv, AKeyWithoutAttentionStillCountsByItsValue) {
  std::vector<float> out(2);
  critical_scores(std::vector<float>{0, 0}, std::vector<float>{10, 20}, out);
  EXPECT_THAT(out, ElementsAre(testing::FloatEq(1e-3F), testing::FloatEq(2e-3F)));
}

TEST(ExpectedAttention, AHistoryOfSinksAloneIsKept) {
  const std::vector<float> keys(3 * 8, 1.0F);
  const std::vector<double> mean(8);
  const std::vector<double> covariance(64);
  std::vector<float> scores(3);
  add_expected_attention({keys.data(), DType::kF32, 3, 8},
                         {mean, covariance},
                         mean_rotation(std::vector<float>(4, 1.0F), 3, kExpectedPositions),
                         kernels::RopePairs::kHalf,
                         1.0F,
                         scores);
  finish_expected_attention(1, {}, scores);
  EXPECT_THAT(scores, Each(kInfinity));
}

TEST(ExpectedAttention, QueriesWithoutADirectionAttendEqually) {
  std::vector<float> keys(14 * 8);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<float>(i % 5);
  }
  const std::vector<double> mean(8);
  const std::vector<double> covariance(64);
  std::vector<float> scores(14);
  for (const auto pairs : {kernels::RopePairs::kHalf, kernels::RopePairs::kInterleaved}) {
    add_expected_attention({keys.data(), DType::kF32, 14, 8},
                           {mean, covariance},
                           mean_rotation(std::vector<float>(4, 1.0F), 14, kExpectedPositions),
                           pairs,
                           1.0F,
                           scores);
  }
  finish_expected_attention(2, {}, scores);
  EXPECT_THAT(std::vector<float>(scores.begin() + kSinks, scores.end()),
              Each(testing::FloatNear(0.1F, 1e-6F)));
}

TEST(CurDkv, ScoresAreSharesOfTheProducts) {
  std::vector<float> out(3);
  curdkv_scores(std::vector<float>{1, 2, 3}, std::vector<float>{4, 0, 2}, out);
  EXPECT_THAT(out, ElementsAre(0.4F, 0.0F, 0.6F));
  curdkv_scores(std::vector<float>(3), std::vector<float>(3), out);
  EXPECT_THAT(out, Each(0.0F));
}

TEST(CurDkv, LeveragesOfOrthogonalRowsAreOne) {
  // Three directions in four rows: the last two share theirs 1 : 9.
  const std::vector<float> x{2, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 3};
  const std::vector<float> leverage = statistical_leverage({x.data(), 4, 3}, 3);
  EXPECT_THAT(leverage,
              ElementsAre(testing::FloatEq(1.0F),
                          testing::FloatEq(1.0F),
                          testing::FloatEq(0.1F),
                          testing::FloatEq(0.9F)));
  // The largest direction alone is the second row's.
  EXPECT_THAT(statistical_leverage({x.data(), 4, 3}, 1),
              ElementsAre(0, testing::FloatEq(1.0F), 0, 0));
}

TEST(CurDkv, LeverageIgnoresDirectionsThatNoRowHas) {
  const std::vector<float> x{1, 1, 1, 1, -1, -1};
  const std::vector<float> leverage = statistical_leverage({x.data(), 3, 2}, 2);
  EXPECT_THAT(leverage, Each(testing::FloatNear(1.0F / 3.0F, 1e-6F)));
}

TEST(TriAttention, KeysThatAreAllTheSameScoreNothing) {
  const std::vector<float> keys(5 * 8);
  const std::vector<double> mean(8, 1.0);
  const std::vector<double> length(4, 2.0);
  std::vector<float> scores(5);
  triattention_scores({keys.data(), DType::kF32, 5, 8},
                      {{mean.data(), 1, 8}, {length.data(), 1, 4}},
                      std::vector<float>(4, 0.5F),
                      kernels::RopePairs::kHalf,
                      scores);
  EXPECT_THAT(scores, Each(0.0F));
}

TEST(H2o, TheBudgetsHalvesAddUp) {
  for (const std::int32_t budget : {1, 2, 3, 64, 101}) {
    EXPECT_EQ(h2o_budget(budget).heavy, budget / 2);
    EXPECT_EQ(h2o_budget(budget).heavy + h2o_budget(budget).recent, budget);
  }
}

std::vector<Position> positions(const H2oHead& head) {
  std::vector<Position> kept;
  for (const H2oHead::Entry& entry : head.entries()) {
    kept.push_back(entry.position);
  }
  return kept;
}

TEST(H2o, ThePromptIsCutToItsHeavyAndRecentPositions) {
  H2oHead head({2, 2});
  head.start(std::vector<float>{1, 5, 2, 5, 9, 9});
  EXPECT_THAT(positions(head), ElementsAre(1, 3, 4, 5));
  head.start(std::vector<float>{1, 5});
  EXPECT_THAT(positions(head), ElementsAre(0, 1));
  head.start(std::vector<float>{});
  EXPECT_THAT(positions(head), IsEmpty());
}

TEST(H2o, EvictsTheLeastOfThoseThatAreNoLongerRecent) {
  H2oHead head({1, 2});
  head.start(std::vector<float>{3, 1, 1});
  // Position 1 leaves the recent window with 1.5 against 3.5: it goes, though 2 has less.
  EXPECT_EQ(head.step(3, std::vector<float>{0.5F, 0.5F, 0, 0}), std::optional(1));
  EXPECT_THAT(positions(head), ElementsAre(0, 2, 3));
  // Equal sums: the lower position goes.
  EXPECT_EQ(head.step(4, std::vector<float>{0, 2.5F, 0, 0}), std::optional(0));
  EXPECT_THAT(positions(head), ElementsAre(2, 3, 4));
}

TEST(H2o, NothingIsEvictedBeforeTheBudgetIsFull) {
  H2oHead head({2, 2});
  std::vector<float> p;
  for (Position t = 0; t < 4; ++t) {
    p.push_back(0.0F);
    EXPECT_EQ(head.step(t, p), std::nullopt);
  }
  p.push_back(0.0F);
  EXPECT_EQ(head.step(4, p), std::optional(0));
}

TEST(H2o, ABudgetOfOneKeepsTheNewest) {
  H2oHead head(h2o_budget(1));
  head.start(std::vector<float>{9, 1});
  EXPECT_THAT(positions(head), ElementsAre(1));
  EXPECT_EQ(head.step(2, std::vector<float>{1, 0}), std::optional(1));
}

TEST(H2o, ACopyGoesBackToBeforeRejectedSteps) {
  H2oHead head({2, 2});
  head.start(std::vector<float>{1, 5, 2, 5, 9, 9});
  const H2oHead before = head;
  for (Position t = 6; t < 12; ++t) {
    static_cast<void>(head.step(t, std::vector<float>{0.1F, 0.2F, 0.3F, 0.2F, 0.2F}));
  }
  EXPECT_FALSE(head == before);
  head = before;
  EXPECT_EQ(head.step(6, std::vector<float>{1, 0, 0, 0, 0}), std::optional(3));
}

TEST(RetainedMass, CountsTheOwnKeyAndWhatIsKept) {
  // Logits 0, ln 2, ln 3 and, of the own key, ln 4.
  const std::vector<float> keys{0, std::log(2.0F), std::log(3.0F), std::log(4.0F)};
  const std::vector<float> q{1};
  const MatView<const float> k(keys.data(), 4, 1);
  EXPECT_NEAR(retained_mass(q, k, {}, 1.0F), 0.4, 1e-6);
  EXPECT_NEAR(retained_mass(q, k, std::vector<Position>{1, 2}, 1.0F), 0.9, 1e-6);
  EXPECT_NEAR(retained_mass(q, k, std::vector<Position>{0, 1, 2}, 1.0F), 1.0, 1e-12);
}

}  // namespace
}  // namespace rift::policy
