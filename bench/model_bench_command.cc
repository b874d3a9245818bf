// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_command.h"
#include "bench/model_bench.h"
#include "common/cpu_list.h"
#include "kernels/ops.h"
#include "model/load_model.h"
#include "transport/node_process.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace rift::bench {
namespace {

struct Options {
  std::string model;
  std::string json;
  int threads = 0;
  std::vector<int> cpus;
  std::vector<std::string> tests{"prefill", "decode", "verify", "score"};
  std::vector<std::int32_t> prefill{512, 2048, 8192};
  std::vector<std::int32_t> depths{0, 2048, 8192, 16384};
  std::vector<std::int32_t> widths{1, 2, 4, 6, 8, 12, 16, 32};
  std::vector<std::int32_t> verify_depths{2048};
  std::vector<std::int32_t> score_depths{2048, 8192, 32768};
  std::int32_t window = 64;
  std::int32_t batch = 512;
  std::int32_t rounds = 5;
  double seconds = 2.0;
  bool exact = false;
  bool no_repack = false;

  [[nodiscard]] bool wants(std::string_view test) const {
    return std::find(tests.begin(), tests.end(), test) != tests.end();
  }
};

/// A point and what its rounds gave.
struct Row {
  Point point;
  Work work;
  std::vector<double> seconds;      // of every repetition
  std::vector<double> read_ratios;  // of every round: the median's share of that round's limits
  std::vector<double> compute_ratios;
  [[nodiscard]] double spent() const {
    double sum = 0.0;
    for (const double s : seconds) {
      sum += s;
    }
    return sum;
  }
};

std::vector<Row> plan(const Options& o) {
  std::vector<Row> rows;
  const auto add = [&](Point point) { rows.push_back({point, {}, {}, {}, {}}); };
  if (o.wants("decode")) {
    for (const std::int32_t depth : o.depths) {
      add({Test::kDecode, 1, depth, 1});
    }
  }
  if (o.wants("verify")) {
    for (const std::int32_t depth : o.verify_depths) {
      for (const std::int32_t width : o.widths) {
        add({Test::kVerify, width, depth, width});
      }
    }
  }
  if (o.wants("score")) {
    for (const std::int32_t depth : o.score_depths) {
      add({Test::kScore, depth, depth, std::min(o.window, depth)});
    }
  }
  if (o.wants("prefill")) {
    for (const std::int32_t tokens : o.prefill) {
      add({Test::kPrefill, tokens, 0, std::min(tokens, o.batch)});
    }
  }
  return rows;
}

ModelBenchOptions bench_options(const Options& o, const std::vector<Row>& rows) {
  ModelBenchOptions out;
  out.threads = o.threads;
  out.cpus = o.cpus;
  out.batch = o.batch;
  out.exact = o.exact;
  for (const Row& row : rows) {
    const bool scores = row.point.test == Test::kScore;
    out.capacity = std::max(out.capacity, row.point.depth + (scores ? 0 : row.point.tokens));
    out.max_width = std::max(out.max_width, row.point.test == Test::kVerify ? row.point.width : 1);
  }
  return out;
}

/// One round of one point: a share of its time, at least one repetition.
void measure(const Options& o, ModelBench& bench, const MachineLimits& limits, Row& row) {
  if (row.seconds.empty() && row.point.test != Test::kPrefill) {
    static_cast<void>(bench.run(row.point));  // warms up; a prompt has its own long run
  }
  std::vector<double> times;
  double sum = 0.0;
  do {
    times.push_back(bench.run(row.point));
    sum += times.back();
  } while (sum < o.seconds / o.rounds);
  const double typical = median(times);
  row.read_ratios.push_back(row.work.read_bytes / limits.read_bytes / typical);
  const double matrix_rate = o.exact ? limits.f32_ops : limits.int8_ops;
  row.compute_ratios.push_back(
      limits.f32_ops == 0.0
          ? 0.0
          : (row.work.int8_ops / matrix_rate + row.work.f32_ops / limits.f32_ops) / typical);
  row.seconds.insert(row.seconds.end(), times.begin(), times.end());
}

/// Rounds over all points, so that a change of the machine's speed meets all of them. One that has
/// used its time up is left out of later rounds.
MachineLimits run(const Options& o, ModelBench& bench, std::vector<Row>& rows) {
  std::vector<double> read;
  std::vector<double> int8;
  std::vector<double> f32;
  MachineLimits limits;
  for (std::int32_t round = 0; round < o.rounds; ++round) {
    limits = bench.limits();
    read.push_back(limits.read_bytes);
    int8.push_back(limits.int8_ops);
    f32.push_back(limits.f32_ops);
    for (Row& row : rows) {
      if (row.seconds.empty() || row.spent() < o.seconds) {
        row.work = bench.work(row.point);
        measure(o, bench, limits, row);
      }
    }
  }
  limits.read_bytes = median(read);
  limits.int8_ops = median(int8);
  limits.f32_ops = median(f32);
  return limits;
}

void print(std::FILE* to, const std::vector<Row>& rows) {
  fmt::print(to,
             "{:8} {:>7} {:>7} {:>6} {:>4} {:>11} {:>10} {:>8} {:>7} {:>7}\n",
             "test",
             "tokens",
             "depth",
             "width",
             "n",
             "median ms",
             "tok/s",
             "GB/s",
             "% read",
             "% peak");
  for (const Row& row : rows) {
    const double seconds = median(row.seconds);
    fmt::print(to,
               "{:8} {:7} {:7} {:6} {:4} {:11.3f} {:10.2f} {:8.2f} {:7.1f} {:7.1f}\n",
               to_string(row.point.test),
               row.point.tokens,
               row.point.depth,
               row.point.width,
               row.seconds.size(),
               seconds * 1e3,
               row.point.tokens / seconds,
               row.work.read_bytes / seconds / 1e9,
               100.0 * median(row.read_ratios),
               100.0 * median(row.compute_ratios));
  }
}

boost::json::array to_json(const std::string& model, const std::vector<Row>& rows) {
  boost::json::array out;
  for (const Row& row : rows) {
    const double seconds = median(row.seconds);
    const double read = median(row.read_ratios);
    const double compute = median(row.compute_ratios);
    out.push_back({{"model", model},
                   {"test", to_string(row.point.test)},
                   {"tokens", row.point.tokens},
                   {"depth", row.point.depth},
                   {"width", row.point.width},
                   {"repetitions", row.seconds.size()},
                   {"median_seconds", seconds},
                   {"worst_seconds", *std::max_element(row.seconds.begin(), row.seconds.end())},
                   {"tokens_per_second", row.point.tokens / seconds},
                   {"gbytes_per_second", row.work.read_bytes / seconds / 1e9},
                   {"read_ratio", read},
                   {"compute_ratio", compute},
                   {"limit_ratio", std::max(read, compute)}});
  }
  return out;
}

void bench_model(Options& o) {
  o.threads = thread_count(o.threads, o.cpus);
  if (!o.cpus.empty()) {
    run_this_thread_on(o.cpus);
  }
  std::vector<Row> rows = plan(o);
  model::LoadOptions how;
  how.threads = o.threads;
  how.cpus = o.cpus;
  how.repack = !o.no_repack;
  const model::LoadedModel loaded = model::load_model(o.model, how);
  ModelBench bench(loaded.weights, bench_options(o, rows));
  const MachineLimits limits = run(o, bench, rows);
  std::FILE* table = table_for(o.json);
  fmt::print(table,
             "{}: {:.1f} MB of weights, {} threads, {}; this run's loops: read {:.1f} GB/s, "
             "multiply {:.0f} GOP/s ({}), {:.0f} GFLOP/s\n",
             loaded.weights->config.name,
             static_cast<double>(loaded.weights->bytes) / 1e6,
             o.threads,
             kernels::cpu_target(),
             limits.read_bytes / 1e9,
             limits.int8_ops / 1e9,
             limits.int8_loop,
             limits.f32_ops / 1e9);
  print(table, rows);
  write_json(o.json,
             boost::json::object{{"threads", o.threads},
                                 {"cpu_target", kernels::cpu_target()},
                                 {"limits", limits.to_json()},
                                 {"rows", to_json(o.model, rows)}});
}

void add_point_options(CLI::App& command, Options& o) {
  const CLI::Range size(0, 1 << 22);
  const CLI::Range some(1, 1 << 22);
  command.add_option("--test", o.tests, "which of prefill, decode, verify, score")
      ->delimiter(',')
      ->check(CLI::IsMember({"prefill", "decode", "verify", "score"}));
  command.add_option("--prefill", o.prefill, "prompt lengths")->delimiter(',')->check(some);
  command.add_option("--depth", o.depths, "cached positions at decode")
      ->delimiter(',')
      ->check(size);
  command.add_option("--widths", o.widths, "tokens a verification pass")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  command.add_option("--verify-depth", o.verify_depths, "cached positions at verification")
      ->delimiter(',')
      ->check(size);
  command.add_option("--score-depth", o.score_depths, "history lengths to score")
      ->delimiter(',')
      ->check(some);
  command.add_option("--window", o.window, "queries that score")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

}  // namespace

void add_model_bench(CLI::App& bench) {
  const auto o = std::make_shared<Options>();  // shared: lives as long as the callbacks
  CLI::App& command =
      *bench.add_subcommand("model", "speed of a model's passes beside the machine's limits");
  command.add_option("-m,--model", o->model, "GGUF file or checkpoint folder")->required();
  add_point_options(command, *o);
  command.add_option("-t,--threads", o->threads, "threads; default: one for each CPU")
      ->check(CLI::Range(1, 1024));
  transport::add_cpus_option(command, "--cpus", o->cpus, "CPUs to run on, e.g. 0-3,8");
  command.add_option("--batch", o->batch, "tokens a prefill pass")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--rounds", o->rounds, "rounds over all points; figures are medians")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command
      .add_option(
          "--seconds", o->seconds, "time for a point in all rounds; each runs at least once")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command.add_flag("--exact", o->exact, "f32 arithmetic on dequantised weights");
  command.add_flag("--no-repack", o->no_repack, "weights as they lie in the file");
  command.add_option("--json", o->json, "write the figures to this file (-: stdout)");
  command.footer(
      "The cache before a point is pseudo-random: time does not depend on the values. % read: "
      "bytes\n"
      "of weights and cached keys and values, once a pass, over what a read-only loop takes for\n"
      "them; % peak: products of weights over what a loop of multiplications takes for them, and\n"
      "those of attention likewise in f32; both loops in the same round. limit_ratio (JSON) is "
      "the\n"
      "larger.\n\nExamples:\n"
      "  rift bench model -m qwen2.5-coder-0.5b-instruct-q4_k_m.gguf\n"
      "  rift bench model -m model.gguf --test verify --widths 1,8,12 --json verify.json");
  command.callback([o] { bench_model(*o); });
}

}  // namespace rift::bench
