// SPDX-License-Identifier: Apache-2.0
// Speed of the operations that a forward pass spends its time in: for matmul GB/s of weights and
// GOP/s (two per product) by type and batch width, for attention GB/s of keys and values.
#include "common/page_buffer.h"
#include "common/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"

#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

namespace rift {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kWidths[] = {1, 4, 12, 64, 512};
constexpr auto kTimePerCase = std::chrono::milliseconds(200);

/// Best of several runs, in seconds: by the clock, and of CPU time, which on a shared machine is
/// the one to trust.
struct Seconds {
  double wall = 1e9;
  double cpu = 1e9;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename F>
Seconds best_seconds(const F& run) {
  run();
  Seconds best;
  const auto end = Clock::now() + kTimePerCase;
  do {
    const auto start = Clock::now();
    const double cpu = cpu_seconds();
    run();
    best.cpu = std::min(best.cpu, cpu_seconds() - cpu);
    best.wall = std::min(best.wall, std::chrono::duration<double>(Clock::now() - start).count());
  } while (Clock::now() < end);
  return best;
}

void print_line(std::string_view what, std::int64_t t, Seconds s, std::size_t bytes, double ops) {
  fmt::print("{:<28} T={:<4} {:9.1f} us {:6.1f} GB/s {:7.1f} GOP/s {:7.1f} GOP per CPU s\n",
             what,
             t,
             s.wall * 1e6,
             static_cast<double>(bytes) / s.wall * 1e-9,
             ops / s.wall * 1e-9,
             ops / s.cpu * 1e-9);
}

/// Bytes without order in which every number reads as a small finite one in every type.
PageBuffer random_bytes(std::size_t n) {
  PageBuffer out(n);
  std::uint32_t state = 1;
  for (std::byte& byte : out.bytes()) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>((state >> 24U) & 0x37U);
  }
  return out;
}

std::vector<float> random_floats(std::int64_t n) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<std::size_t>(n));
  for (float& value : out) {
    value = normal(random);
  }
  return out;
}

/// The shape is the 1.5B model's feed-forward matrix.
void bench_matmul(DType type, kernels::MatmulMode mode, ThreadPool& pool) {
  constexpr std::int64_t kRows = 8960;
  constexpr std::int64_t kCols = 1536;
  const std::size_t bytes = static_cast<std::size_t>(kRows) * row_bytes(type, kCols);
  // Several matrices in turn, so that the weights come from memory as in a model.
  const std::int64_t copies = std::max<std::int64_t>(1, (96L << 20U) / static_cast<long>(bytes));
  const PageBuffer weights = random_bytes(bytes * static_cast<std::size_t>(copies));
  std::vector<kernels::WeightView> views;
  for (std::size_t copy = 0; copy < static_cast<std::size_t>(copies); ++copy) {
    const kernels::WeightView rows{type, kRows, kCols, weights.bytes().data() + copy * bytes};
    views.push_back(rows);
    if (kernels::packed_bytes(rows) == bytes) {
      const std::vector<std::byte> from(rows.data, rows.data + bytes);
      views.back() = kernels::pack(
          {type, kRows, kCols, from.data()}, weights.bytes().data() + copy * bytes, pool);
    }
  }
  for (const std::int64_t t : kWidths) {
    const std::vector<float> x = random_floats(t * kCols);
    std::vector<float> y(static_cast<std::size_t>(t * kRows));
    kernels::Activations activations;
    activations.reserve(t, kCols);
    std::size_t copy = 0;
    const Seconds seconds = best_seconds([&] {
      activations.prepare({x.data(), t, kCols}, mode, pool);
      kernels::matmul(activations, views[copy], {y.data(), t, kRows}, pool);
      copy = (copy + 1) % views.size();
    });
    const double ops = 2.0 * static_cast<double>(t) * kRows * kCols;
    const char* name = mode == kernels::MatmulMode::kExact ? "exact" : "quantized";
    print_line(fmt::format("matmul {} {}", to_string(type), name), t, seconds, bytes, ops);
  }
}

/// Heads as in the 1.5B model, keys in one run.
void bench_attend(std::int32_t run_length, ThreadPool& pool) {
  constexpr std::int32_t kQueryHeads = 12;
  constexpr std::int32_t kKvHeads = 2;
  constexpr std::int32_t kHeadDim = 128;
  constexpr std::int32_t kKeys = 8192;
  const std::size_t row = row_bytes(DType::kF16, kHeadDim);
  const PageBuffer memory = random_bytes(2 * kKvHeads * kKeys * row);
  const std::span<std::byte> cache = memory.bytes();
  std::vector<kernels::KvRun> runs;
  std::vector<std::int32_t> first = {0};
  for (std::size_t head = 0; head < kKvHeads; ++head) {
    for (std::int32_t at = 0; at < kKeys; at += run_length) {
      const std::byte* keys = cache.data() + (head * kKeys + static_cast<std::size_t>(at)) * row;
      runs.push_back({keys, keys + cache.size() / 2, run_length});
    }
    first.push_back(static_cast<std::int32_t>(runs.size()));
  }
  for (const std::int64_t t : kWidths) {
    const std::vector<float> q = random_floats(t * kQueryHeads * kHeadDim);
    std::vector<float> out(q.size());
    std::vector<std::int32_t> visible(static_cast<std::size_t>(t), kKeys);
    kernels::AttendArgs args;
    args.q = {q.data(), t, kQueryHeads * kHeadDim};
    args.query_heads = kQueryHeads;
    args.kv_heads = kKvHeads;
    args.head_dim = kHeadDim;
    args.scale = 0.088F;
    args.runs = runs;
    args.first = first;
    args.visible = visible;
    args.out = {out.data(), t, kQueryHeads * kHeadDim};
    const Seconds seconds = best_seconds([&] { kernels::attend(args, pool); });
    const double ops = 4.0 * static_cast<double>(t) * kQueryHeads * kKeys * kHeadDim;
    print_line(fmt::format("attend F16, runs of {}", run_length), t, seconds, cache.size(), ops);
  }
}

void bench_window_scores() {
  constexpr std::int32_t kWindow = 64;
  constexpr std::int32_t kGroup = 6;
  constexpr std::int32_t kHeadDim = 128;
  constexpr std::int32_t kKeys = 8192;
  const PageBuffer keys = random_bytes(kKeys * row_bytes(DType::kF16, kHeadDim));
  const std::vector<float> q = random_floats(kWindow * kGroup * kHeadDim);
  std::vector<float> per_head(static_cast<std::size_t>(kGroup) * kKeys);
  std::vector<float> scratch(kernels::window_score_scratch(kWindow, kKeys));
  kernels::WindowScoreArgs args;
  args.q = q.data();
  args.window = kWindow;
  args.group = kGroup;
  args.head_dim = kHeadDim;
  args.scale = 0.088F;
  args.keys = keys.bytes().data();
  args.key_count = kKeys;
  args.per_head = per_head.data();
  args.scratch = scratch.data();
  const Seconds seconds = best_seconds([&] { kernels::window_scores(args); });
  const double ops = 2.0 * kWindow * kGroup * kKeys * kHeadDim;
  print_line("window_scores F16, 1 thread", kWindow, seconds, keys.bytes().size(), ops);
}

/// Everything, or what contains `filter`: "Q4_K", "attend", "window_scores".
void run(std::string_view filter, int threads) {
  ThreadPool pool(threads);
  fmt::print("target {}, {} threads\n", kernels::cpu_target(), pool.threads());
  for (int i = 0; i <= static_cast<int>(DType::kQ6_K); ++i) {
    const auto type = static_cast<DType>(i);
    if (filter.empty() || filter == to_string(type)) {
      bench_matmul(type, kernels::MatmulMode::kQuantized, pool);
    }
  }
  if (filter.empty() || filter == "exact") {
    bench_matmul(DType::kQ4_K, kernels::MatmulMode::kExact, pool);
  }
  if (filter.empty() || filter == "attend") {
    bench_attend(16, pool);
    bench_attend(8192, pool);
  }
  if (filter.empty() || filter == "window_scores") {
    bench_window_scores();
  }
}

}  // namespace
}  // namespace rift

int main(int argc, char** argv) {
  const int all = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  rift::run(argc > 1 ? argv[1] : "", argc > 2 ? std::max(1, std::atoi(argv[2])) : all);
}
