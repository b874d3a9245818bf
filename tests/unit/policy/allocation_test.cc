// SPDX-License-Identifier: Apache-2.0
#include "policy/allocation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace rift::policy {
namespace {

using testing::Each;
using testing::ElementsAre;

using Scores = std::vector<std::vector<float>>;

std::int32_t sum(const std::vector<std::int32_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), 0);
}

TEST(AdaKv, BetterHeadsGetMore) {
  const Scores scores{{9, 8, 7, 6}, {5, 1, 1, 1}};
  EXPECT_THAT(ada_kv_counts(scores, 2, {0, 1}, AdaKvRule::kFloor), ElementsAre(4, 0));
  EXPECT_THAT(ada_kv_counts(scores, 2, {1, 2}, AdaKvRule::kFloor), ElementsAre(3, 1));
  EXPECT_THAT(ada_kv_counts(scores, 2, {1, 1}, AdaKvRule::kFloor), ElementsAre(2, 2));
  // Shares 0.5 * 4 + 0.5 * 2 and 0.5 * 0 + 0.5 * 2.
  EXPECT_THAT(ada_kv_counts(scores, 2, {1, 2}, AdaKvRule::kMix), ElementsAre(3, 1));
}

TEST(AdaKv, TiesGoToTheLowerHead) {
  const Scores equal{{1, 1, 1}, {1, 1, 1}};
  EXPECT_THAT(ada_kv_counts(equal, 1, {0, 1}, AdaKvRule::kFloor), ElementsAre(2, 0));
  // Three heads, shares 1.5, 1.0 and 0.5: the unit that rounding leaves goes to the first 0.5.
  const Scores three{{5, 5}, {4, 4}, {1, 1}};
  EXPECT_THAT(ada_kv_counts(three, 1, {1, 2}, AdaKvRule::kMix), ElementsAre(2, 1, 0));
}

TEST(AdaKv, NanLosesAgainstEverything) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Scores scores{{nan, nan, nan}, {-1, -2, -3}};
  EXPECT_THAT(ada_kv_counts(scores, 1, {0, 1}, AdaKvRule::kFloor), ElementsAre(0, 2));
}

TEST(AdaKv, NoHeadGetsMoreThanItHas) {
  const Scores scores{{3, 2}, {1, 1}};
  for (const AdaKvRule rule : {AdaKvRule::kFloor, AdaKvRule::kMix}) {
    EXPECT_THAT(ada_kv_counts(scores, 10, {1, 5}, rule), ElementsAre(2, 2));
    EXPECT_THAT(ada_kv_counts(scores, 0, {1, 5}, rule), ElementsAre(0, 0));
    EXPECT_THAT(ada_kv_counts(Scores(3), 4, {1, 5}, rule), ElementsAre(0, 0, 0));
  }
}

TEST(AdaKv, TheLayersTotalStaysAndFloorsHold) {
  std::mt19937 random(5);
  std::uniform_int_distribution<int> value(0, 9);  // many ties
  for (int trial = 0; trial < 300; ++trial) {
    Scores scores(static_cast<std::size_t>(1 + trial % 5));
    const std::int32_t candidates = 1 + trial % 23;
    for (std::vector<float>& head : scores) {
      for (std::int32_t i = 0; i < candidates; ++i) {
        head.push_back(static_cast<float>(value(random)));
      }
    }
    const std::int32_t count = trial % (candidates + 1);
    for (const AdaKvRule rule : {AdaKvRule::kFloor, AdaKvRule::kMix}) {
      const std::vector<std::int32_t> counts = ada_kv_counts(scores, count, kAdaKvFloor, rule);
      ASSERT_EQ(sum(counts), count * std::ssize(scores)) << trial;
      ASSERT_THAT(counts, Each(testing::AllOf(testing::Ge(count / 5), testing::Le(candidates))));
    }
  }
}

TEST(PyramidKv, LayersSumToTheTotalAndNeverRise) {
  for (const std::int32_t layers : {1, 2, 3, 24, 28, 80}) {
    for (const std::int32_t count : {0, 1, 2, 7, 64, 1000}) {
      for (const std::int32_t available : {0, 1, 50, 1500, std::numeric_limits<int>::max()}) {
        const auto counts = pyramid_kv_counts(layers, count, kPyramidKvBeta, available);
        ASSERT_EQ(sum(counts), layers * count) << layers << " layers of " << count;
        ASSERT_TRUE(std::is_sorted(counts.rbegin(), counts.rend()));
        if (available > count) {
          ASSERT_LE(counts.front(), available);
        }
      }
    }
  }
}

TEST(PyramidKv, AShortPromptIsSharedEqually) {
  EXPECT_THAT(pyramid_kv_counts(3, 10, kPyramidKvBeta, 10), ElementsAre(10, 10, 10));
  EXPECT_THAT(pyramid_kv_counts(3, 10, kPyramidKvBeta, 12), ElementsAre(12, 10, 8));
}

}  // namespace
}  // namespace rift::policy
