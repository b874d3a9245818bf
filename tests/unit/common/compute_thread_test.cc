// SPDX-License-Identifier: Apache-2.0
#include "common/compute_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace rift {
namespace {

TEST(ComputeThread, RunsJobsInOrderOnOneOtherThread) {
  ComputeThread thread;
  std::vector<int> order;
  std::vector<std::thread::id> ids;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) {
    thread.submit([&, i] {
      order.push_back(i);
      ids.push_back(std::this_thread::get_id());
    });
  }
  thread.submit([&] { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
    EXPECT_EQ(ids[static_cast<std::size_t>(i)], ids[0]);
  }
  EXPECT_NE(ids[0], std::this_thread::get_id());
}

TEST(ComputeThread, StopWaitsForTheRunningJobAndDropsTheRest) {
  ComputeThread thread;
  std::promise<void> started;
  std::promise<void> gate;
  auto owned = std::make_shared<int>(1);
  std::atomic<bool> finished = false;
  bool second_ran = false;
  thread.submit([&] {
    started.set_value();
    gate.get_future().wait();
    finished = true;
  });
  thread.submit([&second_ran, owned] { second_ran = true; });
  started.get_future().wait();
  std::thread stopper([&] { thread.stop(); });
  // stop() destroys the queued job first, then waits for the one that runs.
  while (owned.use_count() > 1) {
    std::this_thread::yield();
  }
  EXPECT_FALSE(finished);
  gate.set_value();
  stopper.join();
  EXPECT_TRUE(finished);
  thread.submit([&] { second_ran = true; });
  thread.stop();
  EXPECT_FALSE(second_ran);
}

}  // namespace
}  // namespace rift
