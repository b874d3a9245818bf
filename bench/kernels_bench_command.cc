// SPDX-License-Identifier: Apache-2.0
// Speed of the operations that a forward pass spends its time in beside the machine's limits: for
// matmul GB/s of weights and GOP/s (two per product) by type and batch width, for attention GB/s of
// keys and values, for the rest GB/s of what is read and written.
#include "bench/bench_command.h"
#include "bench/machine_limits.h"
#include "common/clock.h"
#include "common/cpu_list.h"
#include "common/page_buffer.h"
#include "common/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "transport/node_process.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <time.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace rift::bench {
namespace {

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

/// What an operation's multiplications are compared with.
enum class Peak : std::uint8_t { kNone, kInt8, kF32 };

/// One operation at one width.
struct Case {
  std::string op;
  std::int64_t rows = 0;
  std::size_t bytes = 0;
  double ops = 0.0;
  Peak peak = Peak::kNone;
  int threads = 0;  // that it runs on
};

struct Options {
  std::string filter;
  std::string json;
  int threads = 0;
  std::vector<int> cpus;
};

/// Prints and keeps what was measured.
class Report {
 public:
  Report(const Options& options, ThreadPool& pool)
      : pool_(pool), threads_(pool.threads()), table_(table_for(options.json)) {
    fmt::print(table_,
               "{:<28} {:>4} {:>11} {:>8} {:>7} {:>9} {:>7} {:>12}\n",
               "operation",
               "T",
               "us",
               "GB/s",
               "% read",
               "GOP/s",
               "% peak",
               "GOP/CPU s");
  }

  /// The limits for the cases to come, measured now.
  void refresh_limits() { limits_ = measure_limits(pool_); }

  void add(const Case& c, Seconds s) {
    // A single-threaded operation has its share of what all threads reach together.
    const double share = static_cast<double>(c.threads) / threads_;
    const double gbytes = static_cast<double>(c.bytes) / s.wall * 1e-9;
    const double gops = c.ops / s.wall * 1e-9;
    const double peak = c.peak == Peak::kInt8  ? limits_.int8_ops
                        : c.peak == Peak::kF32 ? limits_.f32_ops
                                               : 0.0;
    // The shortest operations take no time that the clock of the CPU can tell.
    const double per_cpu = s.cpu > 0.0 ? c.ops / s.cpu * 1e-9 : 0.0;
    const double read_ratio = gbytes * 1e9 / (limits_.read_bytes * share);
    const double peak_ratio = peak == 0.0 ? 0.0 : gops * 1e9 / (peak * share);
    fmt::print(table_,
               "{:<28} {:>4} {:>11.1f} {:>8.2f} {:>7.1f} {:>9.1f} {:>7.1f} {:>12.1f}\n",
               c.op,
               c.rows,
               s.wall * 1e6,
               gbytes,
               100.0 * read_ratio,
               gops,
               100.0 * peak_ratio,
               per_cpu);
    rows_.push_back({{"op", c.op},
                     {"tokens", c.rows},
                     {"threads", c.threads},
                     {"seconds", s.wall},
                     {"gbytes_per_second", gbytes},
                     {"gops_per_second", gops},
                     {"gops_per_cpu_second", per_cpu},
                     {"read_ratio", read_ratio},
                     {"peak_ratio", peak_ratio}});
  }

  [[nodiscard]] boost::json::object to_json() const {
    return {{"threads", threads_},
            {"cpu_target", kernels::cpu_target()},
            {"limits", limits_.to_json()},
            {"rows", rows_}};
  }
  [[nodiscard]] const MachineLimits& limits() const { return limits_; }
  [[nodiscard]] std::FILE* table() const { return table_; }

 private:
  ThreadPool& pool_;
  int threads_;
  std::FILE* table_;
  MachineLimits limits_;
  boost::json::array rows_;
};

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
void bench_matmul(DType type, kernels::MatmulMode mode, ThreadPool& pool, Report& report) {
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
    const bool exact = mode == kernels::MatmulMode::kExact;
    report.add({fmt::format("matmul {} {}", to_string(type), exact ? "exact" : "quantized"),
                t,
                bytes,
                ops,
                exact || block_elements(type) == 1 ? Peak::kF32 : Peak::kInt8,
                pool.threads()},
               seconds);
  }
}

/// Heads as in the 1.5B model, keys in one run.
void bench_attend(std::int32_t run_length, ThreadPool& pool, Report& report) {
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
    report.add({fmt::format("attend F16, runs of {}", run_length),
                t,
                cache.size(),
                ops,
                Peak::kF32,
                pool.threads()},
               seconds);
  }
}

void bench_window_scores(Report& report) {
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
  report.add({"window_scores F16", kWindow, keys.bytes().size(), ops, Peak::kF32, 1}, seconds);
}

/// The operations on single rows, on one thread; the width is the 1.5B model's feed-forward one.
void bench_elementwise(Report& report) {
  constexpr std::int64_t kCount = 8960;
  constexpr std::int64_t kHeads = kCount / 128;
  const std::vector<float> x = random_floats(kCount);
  const std::vector<float> y = random_floats(kCount);
  std::vector<float> out(x);
  std::vector<std::uint16_t> half(kCount);
  const auto add = [&](const char* op, std::size_t bytes_per_element, const auto& run) {
    const Seconds seconds = best_seconds(run);
    report.add({op, 1, bytes_per_element * kCount, 0.0, Peak::kNone, 1}, seconds);
  };
  add("rms_norm", 12, [&] { kernels::rms_norm(x, y, 1e-6F, out.data()); });
  add("silu_multiply", 12, [&] { kernels::silu_multiply(x, y, out.data()); });
  add("add", 12, [&] { kernels::add(out, y); });
  // A rotation by nothing: the values stay in range however often it runs.
  const std::vector<float> cos(64, 1.0F);
  const std::vector<float> sin(64, 0.0F);
  add("rope_half", 8, [&] { kernels::rope_half(out.data(), kHeads, 128, cos.data(), sin.data()); });
  add("rope_interleaved", 8, [&] {
    kernels::rope_interleaved(out.data(), kHeads, 128, cos.data(), sin.data());
  });
  add("store_as F16", 6, [&] { kernels::store_as(DType::kF16, x.data(), half.data(), kCount); });
  add("load_as F16", 6, [&] { kernels::load_as(DType::kF16, half.data(), out.data(), kCount); });
}

void bench_kernels(const Options& o) {
  if (!o.cpus.empty()) {
    run_this_thread_on(o.cpus);
  }
  ThreadPool pool(thread_count(o.threads, o.cpus), o.cpus);
  Report report(o, pool);
  const auto group = [&](std::string_view name, const std::function<void()>& body) {
    if (o.filter.empty() || o.filter == name) {
      report.refresh_limits();
      body();
    }
  };
  for (int i = 0; i <= static_cast<int>(DType::kQ6_K); ++i) {
    const auto type = static_cast<DType>(i);
    group(to_string(type),
          [&] { bench_matmul(type, kernels::MatmulMode::kQuantized, pool, report); });
  }
  group("exact", [&] { bench_matmul(DType::kQ4_K, kernels::MatmulMode::kExact, pool, report); });
  group("attend", [&] {
    bench_attend(16, pool, report);
    bench_attend(8192, pool, report);
  });
  group("window_scores", [&] { bench_window_scores(report); });
  group("elementwise", [&] { bench_elementwise(report); });
  const MachineLimits& limits = report.limits();
  fmt::print(report.table(),
             "target {}, {} threads; loops at the end: read {:.1f} GB/s, multiply {:.0f} GOP/s "
             "({}), {:.0f} GFLOP/s\n",
             kernels::cpu_target(),
             pool.threads(),
             limits.read_bytes / 1e9,
             limits.int8_ops / 1e9,
             limits.int8_loop,
             limits.f32_ops / 1e9);
  write_json(o.json, report.to_json());
}

}  // namespace

void add_kernels_bench(CLI::App& bench) {
  const auto o = std::make_shared<Options>();  // shared: lives as long as the callbacks
  std::vector<std::string> groups{"exact", "attend", "window_scores", "elementwise"};
  for (int i = 0; i <= static_cast<int>(DType::kQ6_K); ++i) {
    groups.emplace_back(to_string(static_cast<DType>(i)));
  }
  CLI::App& command =
      *bench.add_subcommand("kernels", "speed of every operation beside the machine's limits");
  command.add_option("--op", o->filter, "one group: a weight type, or one of the others")
      ->check(CLI::IsMember(groups));
  command.add_option("-t,--threads", o->threads, "threads; default: one for each CPU")
      ->check(CLI::Range(1, 1024));
  transport::add_cpus_option(command, "--cpus", o->cpus, "CPUs to run on, e.g. 0-3,8");
  command.add_option("--json", o->json, "write the figures to this file (-: stdout)");
  command.footer(
      "Each figure is the best of its runs. % read and % peak: shares of what a read-only loop and "
      "a\n"
      "loop of multiplications reach on as many threads, measured before every "
      "group.\n\nExamples:\n"
      "  rift bench kernels\n"
      "  rift bench kernels --op Q4_K --json q4_k.json");
  command.callback([o] { bench_kernels(*o); });
}

}  // namespace rift::bench
