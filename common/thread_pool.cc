// SPDX-License-Identifier: Apache-2.0
#include "common/thread_pool.h"

#include "common/check.h"
#include "common/cpu_list.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace rift {
namespace {

constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// One loop at a time. A loop is published by bumping `generation`; workers take ranges from
// `next` until none is left, or call `once`, and count themselves out in `running`.
struct ThreadPool::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable done;
  std::atomic<std::uint64_t> generation{0};
  std::atomic<int> running{0};
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> stop{false};
  std::int64_t count = 0;
  std::int64_t step = 1;
  const Body* body = nullptr;
  const std::function<void()>* once = nullptr;  // in place of a body
  std::vector<std::thread> workers;

  void take_ranges() {
    for (;;) {
      const std::int64_t begin = next.fetch_add(step, std::memory_order_relaxed);
      if (begin >= count) {
        return;
      }
      (*body)(begin, std::min(begin + step, count));
    }
  }

  void work() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < kSpins && generation.load(std::memory_order_acquire) == seen; ++i) {
        pause();
      }
      if (generation.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_acquire)) {
        return;
      }
      if (once != nullptr) {
        (*once)();
      } else {
        take_ranges();
      }
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        done.notify_one();
      }
    }
  }

  void publish() {
    {
      const std::lock_guard lock(mutex);
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
  }
};

ThreadPool::ThreadPool(int threads, std::vector<int> cpus)
    : threads_(threads), state_(std::make_unique<State>()) {
  RIFT_CHECK(threads >= 1, "threads = {}", threads);
  for (int i = 1; i < threads; ++i) {
    const int cpu = cpus.empty() ? -1 : cpus[static_cast<std::size_t>(i) % cpus.size()];
    state_->workers.emplace_back([state = state_.get(), cpu] {
      if (cpu >= 0) {
        run_this_thread_on({cpu});
      }
      state->work();
    });
  }
}

ThreadPool::~ThreadPool() {
  state_->stop.store(true, std::memory_order_release);
  state_->publish();
  for (std::thread& worker : state_->workers) {
    worker.join();
  }
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  RIFT_DCHECK(grain >= 1, "grain = {}", grain);
  if (count <= 0) {
    return;
  }
  if (threads_ == 1 || count <= grain) {
    body(0, count);
    return;
  }
  // A few ranges per thread even out the load without making every range tiny.
  const std::int64_t share = (count + 4L * threads_ - 1) / (4L * threads_);
  State& s = *state_;
  s.count = count;
  s.step = (share + grain - 1) / grain * grain;
  s.body = &body;
  s.once = nullptr;
  s.next.store(0, std::memory_order_relaxed);
  s.running.store(threads_ - 1, std::memory_order_relaxed);
  s.publish();
  s.take_ranges();
  finish_loop();
}

void ThreadPool::on_every_thread(const std::function<void()>& body) {
  State& s = *state_;
  s.once = &body;
  s.running.store(threads_ - 1, std::memory_order_relaxed);
  s.publish();
  body();
  finish_loop();
}

void ThreadPool::finish_loop() {
  State& s = *state_;
  for (int i = 0; i < kSpins && s.running.load(std::memory_order_acquire) != 0; ++i) {
    pause();
  }
  if (s.running.load(std::memory_order_acquire) != 0) {
    std::unique_lock lock(s.mutex);
    s.done.wait(lock, [&] { return s.running.load(std::memory_order_acquire) == 0; });
  }
}

}  // namespace rift
