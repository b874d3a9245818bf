// SPDX-License-Identifier: Apache-2.0
#include "policy/selection.h"

#include "policy/snapkv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace rift::policy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(BlockScores, AShortLastBlockIsAveragedOverItsRealKeys) {
  const std::vector<float> scores{1, 3, 5, 7, 8, 100, 100};
  EXPECT_THAT(block_scores(scores, 2, 5), ElementsAre(2, 6, 8));
  EXPECT_THAT(block_scores(scores, 16, 5), ElementsAre(4.8F));
  EXPECT_THAT(block_scores(scores, 1, 3), ElementsAre(1, 3, 5));
}

TEST(BlockScores, NothingBeforeTheRecentRegionGivesNoBlocks) {
  const std::vector<float> scores{1, 2, 3};
  EXPECT_THAT(block_scores(scores, 16, 0), IsEmpty());
  EXPECT_THAT(block_scores(scores, 16, -5), IsEmpty());
  EXPECT_THAT(block_scores({}, 16, 0), IsEmpty());
}

TEST(TopK, TiesGoToTheLowerIndex) {
  const std::vector<float> scores{1, 2, 2, 2, 0};
  EXPECT_THAT(top_k(scores, 2), ElementsAre(1, 2));
  EXPECT_THAT(top_k(scores, 4), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(top_k_ranked(scores, 5), ElementsAre(1, 2, 3, 0, 4));
}

TEST(TopK, NanIsWorthLessThanAnything) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> scores{kNan, -infinity, kNan, 3, infinity};
  EXPECT_THAT(top_k_ranked(scores, 5), ElementsAre(4, 3, 1, 0, 2));
  EXPECT_THAT(top_k(scores, 3), ElementsAre(1, 3, 4));
}

TEST(TopK, TakesWhatThereIs) {
  const std::vector<float> scores{2, 1};
  EXPECT_THAT(top_k(scores, 10), ElementsAre(0, 1));
  EXPECT_THAT(top_k(scores, 0), IsEmpty());
  EXPECT_THAT(top_k(scores, -1), IsEmpty());
  EXPECT_THAT(top_k({}, 3), IsEmpty());
}

TEST(TopK, AgreesWithPickingTheMaximumAgainAndAgain) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> value(0, 20);  // many ties
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> scores(static_cast<std::size_t>(trial % 37));
    for (float& s : scores) {
      s = static_cast<float>(value(random));
    }
    std::vector<float> left = scores;
    std::vector<std::int32_t> expected;
    const std::int32_t count = trial % 11;
    for (std::int32_t i = 0; i < count && i < std::ssize(scores); ++i) {
      std::size_t best = 0;
      for (std::size_t j = 0; j < left.size(); ++j) {
        best = left[j] > left[best] ? j : best;
      }
      left[best] = -1;
      expected.push_back(static_cast<std::int32_t>(best));
    }
    ASSERT_EQ(top_k_ranked(scores, count), expected);
  }
}

TEST(CombineHeads, AveragesTheGroup) {
  const std::vector<float> per_head{1, 2, 3, 3, 4, 9};
  std::vector<float> out(3);
  combine_heads({per_head.data(), 2, 3}, 1, Pooling::kNone, 1, out);
  EXPECT_THAT(out, ElementsAre(2, 3, 6));
}

TEST(CombineHeads, PoolingLeavesTheWindowAlone) {
  const std::vector<float> per_head{3, 6, 0, 9, 100, 200};
  std::vector<float> out(6);
  combine_heads({per_head.data(), 1, 6}, 2, Pooling::kAverage, 3, out);
  EXPECT_THAT(out, ElementsAre(3, 3, 5, 3, 100, 200));
  combine_heads({per_head.data(), 1, 6}, 2, Pooling::kMax, 3, out);
  EXPECT_THAT(out, ElementsAre(6, 6, 9, 9, 100, 200));
}

TEST(CombineHeads, AWindowAsLongAsTheHistoryIsNotPooled) {
  const std::vector<float> per_head{3, 6};
  std::vector<float> out(2);
  combine_heads({per_head.data(), 1, 2}, 64, Pooling::kAverage, 5, out);
  EXPECT_THAT(out, ElementsAre(3, 6));
}

}  // namespace
}  // namespace rift::policy
