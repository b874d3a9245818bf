// SPDX-License-Identifier: Apache-2.0
// rift_bench_draft_step: time of one draft step at several context lengths and one budget. The
// draft node's engine and working sets run as in the node; what the working sets hold is random, as
// a step's cost does not depend on the values.
#include "common/error.h"
#include "common/thread_pool.h"
#include "draft_node/engine.h"
#include "kernels/ops.h"
#include "model/load_model.h"
#include "policy/budget.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace rift::bench {
namespace {

struct Options {
  std::string model;
  std::string json;
  std::vector<std::int32_t> contexts{1024, 4096, 16384};
  std::int32_t budget = 1024;
  std::int32_t block = 16;
  std::int32_t draft_len = 8;
  std::int32_t rounds = 20;
  std::int32_t warm_up = 2;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

/// One session whose history has `context` tokens.
struct Session {
  std::int32_t context = 0;
  draft_node::OpenWorkingSet open;
  std::vector<double> step_seconds;  // mean of each round
};

class StepBench {
 public:
  explicit StepBench(const Options& options)
      : options_(options),
        pool_(options.threads),
        weights_(model::load_model(options.model, {.threads = options.threads}).weights),
        engine_(weights_, {}, pool_) {
    spec_.budget = options.budget;
    spec_.block = options.block;
    std::uint64_t offset = 0;
    for (const std::int32_t context : options.contexts) {
      sessions_.push_back(plan(context, offset));
      offset += (sessions_.back().open.layout.total_bytes() + 4095) / 4096 * 4096;
    }
    fill_arena(offset);
    engine_.set_arena(arena_);
    for (Session& session : sessions_) {
      engine_.run(session.open);
      fill(session);
    }
  }

  /// Sessions take turns, in another order each round, so that a change of the machine's speed
  /// meets all of them.
  void run() {
    for (std::int32_t round = -options_.warm_up; round < options_.rounds; ++round) {
      for (std::size_t i = 0; i < sessions_.size(); ++i) {
        const auto turn = static_cast<std::size_t>(round + options_.warm_up);
        Session& session = sessions_[(i + turn) % sessions_.size()];
        const double seconds = draft(session);
        if (round >= 0) {
          session.step_seconds.push_back(seconds);
        }
      }
    }
  }

  [[nodiscard]] const std::vector<Session>& sessions() const { return sessions_; }
  [[nodiscard]] const model::Weights& weights() const { return *weights_; }
  [[nodiscard]] std::int32_t peak_cached(const Session& session) const {
    return engine_.working_set(session.open.id).peak_cached();
  }

 private:
  Session plan(std::int32_t context, std::uint64_t offset) {
    Session session;
    // Of the shortest context everything before the recent window fits: one draft round and a block
    // more, so that every session attends to its whole budget.
    session.context = context + options_.block + options_.draft_len;
    draft_node::OpenWorkingSet& open = session.open;
    const std::int32_t longest = session.context + options_.draft_len + 1;
    open.id = draft_node::WorkingSetId{sessions_.size() + 1};
    open.layout = policy::plan_layout(spec_, engine_.geometry(), longest, options_.draft_len);
    open.recent = policy::plan_budget(spec_, longest).recent;
    open.offset = offset;
    open.max_tokens = longest + options_.draft_len;
    for (std::int32_t i = 0; i < session.context; ++i) {
      open.history.push_back(static_cast<TokenId>(random_() % 10000U));
    }
    return session;
  }

  // Small random f16 values: a sign, an exponent around 2^-3 and a random mantissa.
  void fill_arena(std::uint64_t bytes) {
    arena_.resize(bytes);
    for (std::uint64_t at = 0; at + 1 < bytes; at += 2) {
      const auto bits = static_cast<std::uint16_t>(0x3000U | (random_() & 0x83FFU));
      std::memcpy(arena_.data() + at, &bits, sizeof(bits));
    }
  }

  /// Rings filled, and blocks from all over the history in every entry.
  void fill(Session& session) {
    const draft_node::OpenWorkingSet& open = session.open;
    draft_node::DraftJob job = next_job(session);
    job.ring = {session.context - open.recent, session.context};
    const std::int32_t slots = open.layout.slots_per_head;
    const std::int32_t candidates = (session.context - open.recent) / open.layout.block;
    draft_node::Wave wave;
    wave.covered = session.context;
    std::uint32_t slot = 0;
    for (std::int32_t layer = 0; layer < open.layout.geometry.layers; ++layer) {
      for (std::int32_t head = 0; head < open.layout.geometry.kv_heads; ++head) {
        for (std::int32_t entry = 0; entry < slots; ++entry) {
          const std::int64_t block = std::int64_t{entry} * candidates / slots;
          wave.updates.push_back({static_cast<std::uint16_t>(layer),
                                  static_cast<std::uint16_t>(head),
                                  static_cast<std::uint32_t>(entry),
                                  slot++,
                                  static_cast<std::uint32_t>(block),
                                  static_cast<std::uint16_t>(open.layout.block)});
        }
      }
    }
    job.waves.push_back(std::move(wave));
    check(engine_.run(job));
  }

  [[nodiscard]] draft_node::DraftJob next_job(const Session& session) const {
    draft_node::DraftJob job;
    job.id = session.open.id;
    job.first = session.context;  // drafts of the round before are rolled back
    job.tokens = {1};
    job.draft_len = options_.draft_len;
    return job;
  }

  static void check(const draft_node::DraftDone& done) {
    if (done.error) {
      throw Error(*done.error);
    }
  }

  double draft(Session& session) {
    const draft_node::DraftDone done = engine_.run(next_job(session));
    check(done);
    return static_cast<double>(done.step_ns) * 1e-9 / static_cast<double>(done.steps);
  }

  Options options_;
  PolicySpec spec_;
  ThreadPool pool_;
  std::shared_ptr<const model::Weights> weights_;
  std::vector<std::byte> arena_;
  draft_node::Engine engine_;
  std::vector<Session> sessions_;
  std::mt19937 random_{7};
};

/// Median over the rounds of session's time / first's: both were measured within one round.
double median_ratio(const Session& session, const Session& first) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < session.step_seconds.size(); ++i) {
    ratios.push_back(session.step_seconds[i] / first.step_seconds[i]);
  }
  return median(ratios);
}

void report(const Options& options, const StepBench& bench) {
  std::FILE* out = options.json == "-" ? stderr : stdout;
  fmt::print(
      out,
      "{}: budget {}, block {}, greedy; {} threads, {}, {} rounds of {} steps, {} to warm up\n"
      "{:>8} {:>8} {:>14} {:>10} {:>16}\n",
      bench.weights().config.name,
      options.budget,
      options.block,
      options.threads,
      kernels::cpu_target(),
      options.rounds,
      options.draft_len,
      options.warm_up,
      "context",
      "attended",
      "median step ms",
      "of first",
      "paired, median");
  boost::json::array rows;
  const Session& first = bench.sessions().front();
  for (const Session& session : bench.sessions()) {
    const double step = median(session.step_seconds);
    const double ratio = step / median(first.step_seconds);
    const double paired = median_ratio(session, first);
    fmt::print(out,
               "{:>8} {:>8} {:>14.3f} {:>10.4f} {:>16.4f}\n",
               session.context,
               bench.peak_cached(session),
               step * 1e3,
               ratio,
               paired);
    rows.push_back(boost::json::object{{"context", session.context},
                                       {"attended", bench.peak_cached(session)},
                                       {"median_step_seconds", step},
                                       {"ratio", ratio},
                                       {"paired_ratio", paired}});
  }
  if (options.json.empty()) {
    return;
  }
  const std::string text =
      boost::json::serialize(boost::json::object{{"model", bench.weights().config.name},
                                                 {"threads", options.threads},
                                                 {"budget", options.budget},
                                                 {"block", options.block},
                                                 {"draft_len", options.draft_len},
                                                 {"rounds", options.rounds},
                                                 {"rows", rows}});
  if (options.json == "-") {
    fmt::print("{}\n", text);
    return;
  }
  std::ofstream file(options.json, std::ios::trunc);
  file << text << '\n';
  if (!file.flush()) {
    throw fail(Errc::kIo, "cannot write {}", options.json);
  }
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("-m,--model", o.model, "draft model")->required();
  app.add_option("--contexts", o.contexts, "history lengths, tokens; each above the budget")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24));
  app.add_option("--budget", o.budget, "B")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  app.add_option("--block", o.block, "P")->check(CLI::Range(1, 4096))->capture_default_str();
  app.add_option("--draft-len", o.draft_len, "steps of one round")
      ->check(CLI::Range(1, 31))
      ->capture_default_str();
  app.add_option("--rounds", o.rounds, "rounds measured")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--warm-up", o.warm_up, "rounds before them")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--threads", o.threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--json", o.json, "write the figures to this file; -: stdout");
}

}  // namespace
}  // namespace rift::bench

int main(int argc, char** argv) {
  using namespace rift;
  bench::Options options;
  CLI::App app("Measures a draft step at several context lengths and one budget.");
  bench::add_options(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    if (*std::min_element(options.contexts.begin(), options.contexts.end()) < options.budget) {
      throw fail(Errc::kInvalidArgument,
                 "every context must be at least the budget of {} positions",
                 options.budget);
    }
    bench::StepBench bench(options);
    bench.run();
    bench::report(options, bench);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rift_bench_draft_step: {}\n", error.what());
    return 1;
  }
}
