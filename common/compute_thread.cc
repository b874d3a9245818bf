// SPDX-License-Identifier: Apache-2.0
#include "common/compute_thread.h"

#include "common/cpu_list.h"

#include <utility>

namespace rift {

ComputeThread::ComputeThread(const std::vector<int>& cpus)
    : thread_([this, cpu = cpus.empty() ? -1 : cpus.front()] {
        if (cpu >= 0) {
          run_this_thread_on({cpu});
        }
        run();
      }) {}

ComputeThread::~ComputeThread() { stop(); }

void ComputeThread::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) {
      return;
    }
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void ComputeThread::stop() {
  std::deque<Job> dropped;  // destroyed outside the lock: a job may own large objects
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
  }
  dropped.clear();
  wake_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void ComputeThread::run() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace rift
