// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace rift {

/// Fixed set of workers for data-parallel loops. The caller's thread is one of them.
/// Resource type, pinned. Thread: parallel_for is called by one thread at a time.
class ThreadPool {
 public:
  /// threads >= 1, the caller included. With `cpus` worker i runs on cpus[i mod size] only; the
  /// caller, thread 0, is pinned by its owner (ComputeThread).
  explicit ThreadPool(int threads, std::vector<int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return threads_; }

  /// Calls body(begin, end) for consecutive ranges that cover [0, count), each a multiple of
  /// `grain` long (the last may be shorter), and returns when all are done. Which thread runs which
  /// range is not fixed: a body's result must not depend on it. Allocates nothing.
  /// Cost: workers spin for a few microseconds, then sleep.
  using Body = std::function<void(std::int64_t begin, std::int64_t end)>;
  void parallel_for(std::int64_t count, std::int64_t grain, const Body& body);

  /// Calls body once on every thread of the pool and returns when all are done: sets up what each
  /// keeps to itself.
  void on_every_thread(const std::function<void()>& body);

 private:
  void finish_loop();

  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace rift
