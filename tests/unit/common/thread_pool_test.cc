// SPDX-License-Identifier: Apache-2.0
#include "common/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace rift {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, VisitsEveryIndexOnceInRangesOfTheGrain) {
  ThreadPool pool(GetParam());
  for (const std::int64_t count : {0, 1, 3, 7, 64, 1000, 1003}) {
    for (const std::int64_t grain : {1, 4, 16}) {
      std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
      std::atomic<bool> aligned{true};
      pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        if (begin % grain != 0 || (end % grain != 0 && end != count)) {
          aligned = false;
        }
        for (std::int64_t i = begin; i < end; ++i) {
          visits[static_cast<std::size_t>(i)].fetch_add(1);
        }
      });
      EXPECT_TRUE(aligned.load());
      for (const auto& v : visits) {
        ASSERT_EQ(v.load(), 1);
      }
    }
  }
}

TEST_P(ThreadPoolTest, ManyShortLoopsInARow) {
  ThreadPool pool(GetParam());
  std::atomic<std::int64_t> sum{0};
  for (int i = 0; i < 2000; ++i) {
    pool.parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  }
  EXPECT_EQ(sum.load(), 16000);
}

TEST_P(ThreadPoolTest, RunsOnceOnEveryThread) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 50; ++round) {
    std::mutex mutex;
    std::multiset<std::thread::id> seen;
    pool.on_every_thread([&] {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(GetParam()));
    EXPECT_EQ(std::set<std::thread::id>(seen.begin(), seen.end()).size(), seen.size());
    std::atomic<std::int64_t> sum{0};
    pool.parallel_for(10, 1, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5));

}  // namespace
}  // namespace rift
