// SPDX-License-Identifier: Apache-2.0
#include "draft_node/core/arena.h"

#include "policy/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

namespace rift::draft_node {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kMiB = 1U << 20U;

ArenaRequest request(std::int32_t budget, Policy policy = Policy::kRiftDyn) {
  ArenaRequest r;
  r.policy.policy = policy;
  r.policy.budget = budget;
  r.max_context = 32768;
  r.max_draft_len = 8;
  r.layout = policy::plan_layout(r.policy, {24, 2, 64, DType::kF16}, r.max_context, 8);
  return r;
}

// Whole pages of rings [24, 2, 2, r + 9, 64] f16 and slots of 16 positions, staging 100 %.
std::uint64_t pages_of_budget_256() {
  const std::uint64_t rings = 24ULL * 2 * 2 * (128 + 9) * 64 * 2;
  const std::uint64_t slots = 24ULL * 2 * (128 / 16) * 2 * 16 * 64 * 2;
  return (rings + 2 * slots + 4095) / 4096 * 4096;
}

TEST(Arena, GivesSessionsWhatWeightsAndScratchLeave) {
  const Arena arena({100 * kMiB, 60 * kMiB, 7 * kMiB + 5});
  EXPECT_EQ(arena.region_bytes(), 33 * kMiB - 4096);
  EXPECT_EQ(arena.free_bytes(), arena.region_bytes());
}

TEST(Arena, RefusesADeviceThatDoesNotHoldTheModel) {
  try {
    const Arena arena({100, 90, 20});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kResourceExhausted);
    EXPECT_THAT(error.message(), HasSubstr("90 bytes of weights and 20 bytes of scratch"));
  }
}

TEST(Arena, AccountsEverySessionInWholePages) {
  Arena arena({64 * kMiB, 0, 0});
  const std::uint64_t first = arena.reserve(request(256)).value();
  EXPECT_EQ(first, 0U);
  EXPECT_EQ(arena.used_bytes(), pages_of_budget_256());
  EXPECT_EQ(arena.reserve(request(256)).value(), pages_of_budget_256());
  arena.release(first);
  EXPECT_EQ(arena.used_bytes(), pages_of_budget_256());
  EXPECT_EQ(arena.reserve(request(256)).value(), 0U);
}

TEST(Arena, RefusalNamesTheWholeArithmeticAndTheLargestBudgetThatFits) {
  Arena arena({20 * kMiB, 0, 0});
  const auto refused = arena.reserve(request(4096));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), Errc::kResourceExhausted);
  const WorkingSetLayout layout = request(4096).layout;
  for (const std::uint64_t number : {layout.total_bytes(),
                                     layout.ring_bytes(),
                                     layout.staging_bytes(),
                                     arena.free_bytes(),
                                     arena.budget().capacity}) {
    EXPECT_THAT(refused.error().message(), HasSubstr(std::to_string(number)));
  }
  const std::int32_t fits = largest_budget(request(4096), arena.largest_free_range());
  EXPECT_THAT(refused.error().message(),
              HasSubstr("largest budget that fits now is " + std::to_string(fits)));
  EXPECT_FALSE(arena.reserve(request(fits + 1)).ok());
  EXPECT_TRUE(arena.reserve(request(fits)).ok());
}

TEST(Arena, SaysThatNoBudgetFitsAFullArena) {
  Arena arena({kMiB, 0, 0});
  ASSERT_TRUE(arena.reserve(request(1)).ok());
  while (arena.reserve(request(1)).ok()) {
  }
  const auto refused = arena.reserve(request(64));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("no budget fits now"));
}

TEST(Arena, AdvisesAShorterContextForFullKv) {
  Arena arena({8 * kMiB, 0, 0});
  const auto refused = arena.reserve(request(64, Policy::kFull));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("whole context of 32768 tokens"));
}

TEST(Arena, NeverOverlapsRangesUnderRandomOpeningAndClosing) {
  Arena arena({48 * kMiB, 0, 0});
  std::mt19937 random(20261130);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> open;  // offset, bytes
  for (int step = 0; step < 2000; ++step) {
    if (!open.empty() && random() % 2 == 0) {
      const std::size_t victim = random() % open.size();
      arena.release(open[victim].first);
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const ArenaRequest r = request(1 + static_cast<std::int32_t>(random() % 600));
    const auto offset = arena.reserve(r);
    if (!offset) {
      continue;
    }
    EXPECT_EQ(offset.value() % Arena::kPageBytes, 0U);
    const std::uint64_t end = offset.value() + r.layout.total_bytes();
    EXPECT_LE(end, arena.region_bytes());
    for (const auto& [other, bytes] : open) {
      EXPECT_TRUE(end <= other || other + bytes <= offset.value());
    }
    open.emplace_back(offset.value(), r.layout.total_bytes());
  }
  for (const auto& range : open) {
    arena.release(range.first);
  }
  EXPECT_EQ(arena.used_bytes(), 0U);
  EXPECT_EQ(arena.largest_free_range(), arena.region_bytes());
}

}  // namespace
}  // namespace rift::draft_node
