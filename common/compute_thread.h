// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rift {

/// One thread that runs jobs in the order they were submitted, so that a node's loop never waits
/// for a forward pass. A job hands its result back itself, by posting to the caller's loop.
/// Resource type, pinned. Thread: submit and stop from any thread but the compute thread's own.
class ComputeThread {
 public:
  using Job = std::function<void()>;

  /// With `cpus` the thread runs on the first of them only.
  explicit ComputeThread(const std::vector<int>& cpus = {});
  /// Calls stop().
  ~ComputeThread();
  ComputeThread(const ComputeThread&) = delete;
  ComputeThread& operator=(const ComputeThread&) = delete;

  /// Queues a job; it must not throw (that ends the process). After stop() jobs are dropped.
  void submit(Job job);
  /// Waits for the job that runs, drops those that have not started, joins. Idempotent.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace rift
