// SPDX-License-Identifier: Apache-2.0
// rift_bench_model: speed of the forward pass beside the memory bandwidth of the same run.
#include "common/clock.h"
#include "common/error.h"
#include "common/thread_pool.h"
#include "kernels/ops.h"
#include "model/kv_cache.h"
#include "model/load_model.h"
#include "model/runner.h"
#include "model/weights.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace rift::bench {
namespace {

using model::KvCache;
using model::ModelConfig;
using model::Runner;
using model::Weights;

struct Options {
  std::string model;
  std::string json;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::string> tests{"prefill", "decode", "verify"};
  std::vector<std::int32_t> prefill{512, 2048};
  std::vector<std::int32_t> depths{0, 2048, 8192};
  std::vector<std::int32_t> widths{1, 2, 3, 4, 6, 8, 12, 16};
  std::int32_t verify_depth = 2048;
  std::int32_t batch = 512;
  double seconds = 2.0;
  bool exact = false;
  bool no_repack = false;

  /// Where people read: stdout, unless a script reads the figures there.
  [[nodiscard]] std::FILE* table() const { return json == "-" ? stderr : stdout; }
  [[nodiscard]] bool wants(std::string_view test) const {
    return std::find(tests.begin(), tests.end(), test) != tests.end();
  }
};

/// One measured point. Times are of one repetition.
struct Row {
  std::string test;
  std::int32_t tokens = 0;  // per repetition
  std::int32_t depth = 0;   // positions cached before
  std::int32_t width = 0;   // tokens per pass
  std::size_t repetitions = 0;
  double median_seconds = 0.0;
  double worst_seconds = 0.0;
  double bytes = 0.0;  // weights and KV, each counted once per pass

  [[nodiscard]] double tokens_per_second() const { return tokens / median_seconds; }
  [[nodiscard]] double gbytes_per_second() const { return bytes / median_seconds / 1e9; }
};

/// Best of five passes over 512 MiB, all threads reading.
double measure_read_bandwidth(ThreadPool& pool) {
  constexpr std::int64_t kWords = (512LL << 20) / 8;
  constexpr std::int64_t kGrain = (1LL << 20) / 8;
  constexpr int kLanes = 8;
  std::vector<std::uint64_t> words(static_cast<std::size_t>(kWords), 1);
  std::atomic<std::uint64_t> total{0};
  double best = 0.0;
  for (int pass = 0; pass < 5; ++pass) {
    const TimePoint start = Clock::now();
    pool.parallel_for(kWords, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t lanes[kLanes] = {};
      for (std::int64_t i = begin; i < end; i += kLanes) {
        for (int lane = 0; lane < kLanes; ++lane) {
          lanes[lane] += words[static_cast<std::size_t>(i + lane)];
        }
      }
      // The sum is used, so that the reads stay.
      total.fetch_add(std::accumulate(lanes, lanes + kLanes, std::uint64_t{0}));
    });
    best = std::max(best, static_cast<double>(kWords) * 8.0 / seconds_between(start, Clock::now()));
  }
  if (total.load() != 5U * static_cast<std::uint64_t>(kWords)) {
    throw fail(Errc::kInternal, "bandwidth probe read wrong data");
  }
  return best;
}

class ModelBench {
 public:
  ModelBench(const Options& options, std::shared_ptr<const Weights> weights)
      : options_(options),
        weights_(std::move(weights)),
        pool_(options.threads),
        runner_(
            weights_,
            {.max_batch = std::max(options.batch, widest()),
             .max_logit_rows = widest(),
             .mode = options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized},
            pool_),
        cache_(weights_->config, DType::kF16, deepest() + options.batch + widest()),
        logits_(static_cast<std::size_t>(widest()) *
                static_cast<std::size_t>(weights_->config.vocab)) {}

  [[nodiscard]] double bandwidth() { return measure_read_bandwidth(pool_); }

  Row prefill(std::int32_t tokens) {
    return measure("prefill", tokens, 0, std::min(tokens, options_.batch), 1);
  }
  Row decode(std::int32_t depth) { return measure("decode", 1, depth, 1, 1); }
  Row verify(std::int32_t width) {
    return measure("verify", width, options_.verify_depth, width, width);
  }

 private:
  [[nodiscard]] std::int32_t widest() const {
    return std::max(1, *std::max_element(options_.widths.begin(), options_.widths.end()));
  }
  [[nodiscard]] std::int32_t deepest() const {
    std::int32_t deepest = options_.verify_depth;
    for (const auto* list : {&options_.depths, &options_.prefill}) {
      for (const std::int32_t depth : *list) {
        deepest = std::max(deepest, depth);
      }
    }
    return deepest;
  }

  // Time does not depend on what the keys are, so random ones stand for a prompt of that length.
  void fill(std::int32_t depth) {
    cache_.truncate(std::min(cache_.size(), depth));
    const ModelConfig& config = weights_->config;
    const std::int64_t cols = static_cast<std::int64_t>(config.kv_heads) * config.head_dim;
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    constexpr std::int32_t kRows = 256;
    std::vector<float> noise(static_cast<std::size_t>(kRows * cols));
    std::generate(noise.begin(), noise.end(), [&] { return normal(random); });
    while (cache_.size() < depth) {
      const MatView<const float> rows(noise.data(), std::min(kRows, depth - cache_.size()), cols);
      for (std::int32_t layer = 0; layer < config.layers; ++layer) {
        cache_.append(layer, rows, rows, pool_);
      }
    }
  }

  // Appends `tokens` in passes of `width`; logits of the last `logit_rows` of each pass.
  void pass(std::int32_t tokens, std::int32_t width, std::int32_t logit_rows) {
    for (std::int32_t done = 0; done < tokens; done += width) {
      const std::int32_t count = std::min(width, tokens - done);
      const std::int32_t wanted = std::min(count, logit_rows);
      std::vector<TokenId> ids(static_cast<std::size_t>(count));
      std::vector<Position> positions(ids.size());
      std::iota(positions.begin(), positions.end(), cache_.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = (positions[i] * 131 + 17) % std::min(weights_->config.vocab, 32768);
      }
      std::vector<std::int32_t> rows(static_cast<std::size_t>(wanted));
      std::iota(rows.begin(), rows.end(), count - wanted);
      runner_.forward(
          ids, positions, cache_, rows, {logits_.data(), wanted, weights_->config.vocab});
    }
  }

  Row measure(const char* test,
              std::int32_t tokens,
              std::int32_t depth,
              std::int32_t width,
              std::int32_t logit_rows) {
    constexpr std::size_t kLeast = 3;
    constexpr std::size_t kMost = 200;
    fill(depth);
    if (tokens == width) {  // warm-up; a long prefill has its own
      pass(tokens, width, logit_rows);
    }
    std::vector<double> times;
    double sum = 0.0;
    const bool long_run = tokens > width;
    while (times.size() < kMost &&
           (sum < options_.seconds || (!long_run && times.size() < kLeast))) {
      cache_.truncate(depth);
      const TimePoint start = Clock::now();
      pass(tokens, width, logit_rows);
      times.push_back(seconds_between(start, Clock::now()));
      sum += times.back();
    }
    cache_.truncate(depth);
    std::sort(times.begin(), times.end());
    Row row{test, tokens, depth, width, times.size(), times[times.size() / 2], times.back(), 0.0};
    const double per_position = static_cast<double>(cache_.geometry().bytes_per_position());
    for (std::int32_t done = 0; done < tokens; done += width) {
      row.bytes += static_cast<double>(weights_->bytes) + per_position * (depth + done + width);
    }
    return row;
  }

  const Options& options_;
  std::shared_ptr<const Weights> weights_;
  ThreadPool pool_;
  Runner runner_;
  KvCache cache_;
  std::vector<float> logits_;
};

void print(std::FILE* to, const Row& row, double bandwidth) {
  fmt::print(to,
             "{:8} {:7} {:7} {:6} {:5} {:11.3f} {:11.3f} {:10.2f} {:8.2f} {:7.1f}\n",
             row.test,
             row.tokens,
             row.depth,
             row.width,
             row.repetitions,
             row.median_seconds * 1e3,
             row.worst_seconds * 1e3,
             row.tokens_per_second(),
             row.gbytes_per_second(),
             100.0 * row.gbytes_per_second() * 1e9 / bandwidth);
  std::fflush(to);
}

std::vector<Row> run(const Options& options, ModelBench& bench, double bandwidth) {
  fmt::print(options.table(),
             "{:8} {:>7} {:>7} {:>6} {:>5} {:>11} {:>11} {:>10} {:>8} {:>7}\n",
             "test",
             "tokens",
             "depth",
             "width",
             "n",
             "median ms",
             "worst ms",
             "tok/s",
             "GB/s",
             "% read");
  std::vector<Row> rows;
  const auto add = [&](Row row) {
    print(options.table(), row, bandwidth);
    rows.push_back(std::move(row));
  };
  if (options.wants("decode")) {
    for (const std::int32_t depth : options.depths) {
      add(bench.decode(depth));
    }
  }
  if (options.wants("verify")) {
    for (const std::int32_t width : options.widths) {
      add(bench.verify(width));
    }
  }
  if (options.wants("prefill")) {
    for (const std::int32_t tokens : options.prefill) {
      add(bench.prefill(tokens));
    }
  }
  return rows;
}

void write_json(const Options& options, const std::vector<Row>& rows, double bandwidth) {
  boost::json::array list;
  for (const Row& row : rows) {
    list.push_back({{"model", options.model},
                    {"test", row.test},
                    {"tokens", row.tokens},
                    {"depth", row.depth},
                    {"width", row.width},
                    {"repetitions", row.repetitions},
                    {"median_seconds", row.median_seconds},
                    {"worst_seconds", row.worst_seconds},
                    {"tokens_per_second", row.tokens_per_second()},
                    {"gbytes_per_second", row.gbytes_per_second()},
                    {"limit_ratio", row.gbytes_per_second() * 1e9 / bandwidth}});
  }
  const boost::json::value all = {{"threads", options.threads},
                                  {"cpu_target", kernels::cpu_target()},
                                  {"read_gbytes_per_second", bandwidth / 1e9},
                                  {"rows", list}};
  if (options.json == "-") {
    std::cout << all << "\n";
    return;
  }
  std::ofstream out(options.json);
  out << all << "\n";
  if (!out.flush()) {
    throw fail(Errc::kIo, "cannot write {}", options.json);
  }
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("-m,--model", options.model, "GGUF file or checkpoint folder")->required();
  app.add_option("-t,--threads", options.threads, "Threads (default: all cores)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--test", options.tests, "Which of prefill, decode, verify")
      ->delimiter(',')
      ->check(CLI::IsMember({"prefill", "decode", "verify"}));
  const CLI::Range size(0, 1 << 22);
  app.add_option("--prefill", options.prefill, "Prompt lengths")->delimiter(',')->check(size);
  app.add_option("--depth", options.depths, "Cached positions at decode")
      ->delimiter(',')
      ->check(size);
  app.add_option("--widths", options.widths, "Tokens per verification pass")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  app.add_option("--verify-depth", options.verify_depth, "Cached positions at verification")
      ->check(size);
  app.add_option("--batch", options.batch, "Tokens per prefill pass")->check(CLI::Range(1, 4096));
  app.add_option("--seconds", options.seconds, "Least time spent on a point");
  app.add_flag("--exact", options.exact, "Float32 arithmetic on dequantised weights");
  app.add_flag("--no-repack", options.no_repack, "Weights as they lie in the file");
  app.add_option("--json", options.json, "Write the figures to a file, - for stdout");
  app.footer(
      "Bytes are those of all weights and the cached positions, once per pass; % read compares\n"
      "with a plain read of memory by the same threads.\n\nExamples:\n"
      "  rift_bench_model -m qwen2.5-coder-0.5b-instruct-q4_k_m.gguf\n"
      "  rift_bench_model -m model.gguf --test verify --widths 1,8,12 --json verify.json");
}

}  // namespace
}  // namespace rift::bench

int main(int argc, char** argv) {
  using namespace rift;
  bench::Options options;
  CLI::App app("Measures prefill, decode and verification speed of a model.");
  bench::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    const auto weights =
        model::load_model(options.model, {.threads = options.threads, .repack = !options.no_repack})
            .weights;
    bench::ModelBench bench(options, weights);
    const double bandwidth = bench.bandwidth();
    fmt::print(options.table(),
               "{}: {:.1f} MB of weights, {} threads, {}, memory read {:.1f} GB/s\n",
               weights->config.name,
               static_cast<double>(weights->bytes) / 1e6,
               options.threads,
               kernels::cpu_target(),
               bandwidth / 1e9);
    const std::vector<bench::Row> rows = bench::run(options, bench, bandwidth);
    if (!options.json.empty()) {
      bench::write_json(options, rows, bandwidth);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rift_bench_model: {}\n", error.what());
    return 1;
  }
}
