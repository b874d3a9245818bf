// SPDX-License-Identifier: Apache-2.0
#include "common/thread_pool.h"

#include "common/compute_thread.h"
#include "common/cpu_list.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
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

TEST(PinnedThreads, RunOnTheirOwnCpuAndOthersDoNot) {
  const std::vector<int> all = available_cpus();
  const int last = all.back();
  {
    ThreadPool pool(3, {last});
    const std::thread::id caller = std::this_thread::get_id();
    std::mutex mutex;
    std::vector<std::vector<int>> workers;
    pool.on_every_thread([&] {
      if (std::this_thread::get_id() != caller) {
        const std::lock_guard lock(mutex);
        workers.push_back(available_cpus());
      }
    });
    EXPECT_EQ(workers, (std::vector<std::vector<int>>(2, {last})));
    EXPECT_EQ(available_cpus(), all);
  }
  std::promise<std::vector<int>> seen;
  ComputeThread compute({last});
  compute.submit([&] { seen.set_value(available_cpus()); });
  EXPECT_EQ(seen.get_future().get(), std::vector<int>{last});
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, testing::Values(1, 2, 5));

}  // namespace
}  // namespace rift
