// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/law_test.h"
#include "cli/run_options.h"
#include "common/clock.h"
#include "common/cpu_list.h"
#include "common/error.h"
#include "model/kv_cache.h"
#include "model/runner.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>

namespace rift::cli {
namespace {

namespace json = boost::json;

struct Options {
  RunOptions run;
  std::string prompt_file;
  std::string json_file;
  std::vector<std::int32_t> prompt_tokens{30, 500};
  std::vector<std::string> policies{"full", "swa", "snapkv", "rift-stat", "rift-dyn"};
  std::vector<std::int32_t> budgets{64, 256};
  std::vector<std::int32_t> blocks{16};
  std::vector<std::int32_t> draft_lens{4, 11};
  std::int32_t law_samples = 300;
};

/// One row of the greedy check.
struct Row {
  std::int32_t prompt_tokens = 0;
  PolicySpec policy;
  std::int32_t draft_len = 0;
  double accepted_length = 0.0;
  std::uint32_t refreshes = 0;
  std::ptrdiff_t divergence = -1;  // index of the first differing token; -1: identical
  float logit_gap = 0.0F;          // there, between the target's two largest logits
  std::int32_t prompt_tokens_reused = 0;
  double seconds = 0.0;
  std::string draft_error;
  [[nodiscard]] bool holds() const { return divergence < 0 && draft_error.empty(); }
};

// Every combination whose parameters the policy has: `full` knows no budget, `swa` no blocks.
std::vector<std::pair<PolicySpec, std::int32_t>> grid(const Options& o) {
  std::vector<std::pair<PolicySpec, std::int32_t>> out;
  for (const std::string& name : o.policies) {
    const Policy policy = *parse_policy(name);
    const bool budgeted = policy != Policy::kFull;
    const bool blocked = budgeted && policy != Policy::kSwa;
    for (std::size_t b = 0; b < (budgeted ? o.budgets.size() : 1); ++b) {
      for (std::size_t p = 0; p < (blocked ? o.blocks.size() : 1); ++p) {
        for (const std::int32_t gamma : o.draft_lens) {
          PolicySpec spec = o.run.request.policy;
          spec.policy = policy;
          spec.budget = budgeted ? o.budgets[b] : spec.budget;
          spec.block = blocked ? o.blocks[p] : spec.block;
          out.emplace_back(spec, gamma);
        }
      }
    }
  }
  return out;
}

std::vector<TokenId> source_tokens(const Options& o, const model::Tokenizer& tokenizer) {
  std::string text;
  if (o.prompt_file.empty()) {
    // Any text does: losslessness is about the target's own choices.
    for (int i = 0; i < 400; ++i) {
      text += fmt::format("Item {} of the list costs {} coins and weighs {} grams.\n",
                          i,
                          (i * 37) % 101,
                          (i * i) % 997);
    }
  } else {
    std::ifstream file(o.prompt_file, std::ios::binary);
    if (!file) {
      throw fail(Errc::kNotFound, "cannot read {}", o.prompt_file);
    }
    text.assign(std::istreambuf_iterator<char>(file), {});
  }
  return tokenizer.encode(text, false);
}

/// Gap between the target's two largest logits after `tokens`.
float logit_gap(const ModelPair& models, const RunOptions& run, std::span<const TokenId> tokens) {
  ThreadPool pool(thread_count(run.cluster.threads, run.cpus));
  model::RunnerOptions options;
  options.mode = run.cluster.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  model::Runner runner(models.target, options, pool);
  model::KvCache cache(
      models.target->config, DType::kF16, static_cast<std::int32_t>(tokens.size()));
  std::vector<float> logits(static_cast<std::size_t>(models.target->config.vocab));
  const auto batch = static_cast<std::size_t>(options.max_batch);
  for (std::size_t at = 0; at < tokens.size(); at += batch) {
    const auto chunk = tokens.subspan(at, std::min(batch, tokens.size() - at));
    std::vector<Position> positions;
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      positions.push_back(static_cast<Position>(at + i));
    }
    const auto last = static_cast<std::int32_t>(chunk.size() - 1);
    runner.forward(chunk,
                   positions,
                   cache,
                   {&last, 1},
                   MatView<float>(logits.data(), 1, models.target->config.vocab));
  }
  std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
  return logits[0] - logits[1];
}

Row check(const Options& o,
          Backend& backend,
          const ModelPair& models,
          const target_node::Request& request,
          const std::vector<TokenId>& expected) {
  Row row;
  row.prompt_tokens = static_cast<std::int32_t>(request.prompt.size());
  row.policy = request.policy;
  row.draft_len = request.draft_len;
  const TimePoint begin = Clock::now();
  const target_node::Outcome outcome = backend.generate(request, {});
  row.seconds = seconds_between(begin, Clock::now());
  row.prompt_tokens_reused = outcome.prompt_tokens_reused;
  row.accepted_length = outcome.accepted_length();
  row.refreshes = outcome.progress.refreshes;
  row.draft_error = outcome.draft_error;
  if (outcome.tokens != expected) {
    const auto at =
        std::mismatch(
            outcome.tokens.begin(), outcome.tokens.end(), expected.begin(), expected.end())
            .first -
        outcome.tokens.begin();
    row.divergence = at;
    std::vector<TokenId> context = request.prompt;
    context.insert(context.end(),
                   expected.begin(),
                   expected.begin() + std::min<std::ptrdiff_t>(at, std::ssize(expected)));
    row.logit_gap = logit_gap(models, o.run, context);
  }
  return row;
}

void print(const Row& r, std::size_t count, std::size_t total) {
  const std::string result =
      r.divergence >= 0
          ? fmt::format("DIFFERS at token {} (logit gap {:.4f})", r.divergence, r.logit_gap)
      : !r.draft_error.empty() ? "no drafts: " + r.draft_error
                               : "identical";
  fmt::print(
      "{:>4}/{}  prompt {:>5}  {:<9}  B {:>5}  P {:>3}  gamma {:>2}  AL {:5.2f}  "
      "refreshes {:>3}  {:5.1f} s  {}\n",
      count,
      total,
      r.prompt_tokens,
      to_string(r.policy.policy),
      r.policy.policy == Policy::kFull ? "all" : std::to_string(r.policy.budget),
      r.policy.block,
      r.draft_len,
      r.accepted_length,
      r.refreshes,
      r.seconds,
      result);
  std::fflush(stdout);
}

json::array to_json(const std::vector<Row>& rows) {
  json::array out;
  for (const Row& r : rows) {
    out.push_back({{"prompt_tokens", r.prompt_tokens},
                   {"policy", to_string(r.policy.policy)},
                   {"budget", r.policy.budget},
                   {"block", r.policy.block},
                   {"draft_len", r.draft_len},
                   {"accepted_length", r.accepted_length},
                   {"refreshes", r.refreshes},
                   {"seconds", r.seconds},
                   {"prompt_tokens_reused", r.prompt_tokens_reused},
                   {"identical", r.divergence < 0},
                   {"first_divergence", r.divergence},
                   {"logit_gap", r.logit_gap},
                   {"draft_error", r.draft_error}});
  }
  return out;
}

// Written after every run: a long check that is cut short leaves what it found.
void save(const Options& o, const std::vector<Row>& rows, std::size_t total, const LawResult* law) {
  if (o.json_file.empty()) {
    return;
  }
  json::object report{{"greedy", to_json(rows)}, {"greedy_total", total}};
  if (law != nullptr) {
    report["law"] = law->to_json();
  }
  std::ofstream file(o.json_file, std::ios::trunc);
  file << json::serialize(report) << '\n';
  if (!file.flush()) {
    throw fail(Errc::kIo, "cannot write {}", o.json_file);
  }
}

std::vector<Row> check_greedy(const Options& o, Backend& backend, const ModelPair& models) {
  const std::vector<TokenId> source = source_tokens(o, *models.tokenizer);
  const auto combinations = grid(o);
  const std::size_t total = combinations.size() * o.prompt_tokens.size();
  std::vector<Row> rows;
  for (const std::int32_t length : o.prompt_tokens) {
    if (static_cast<std::size_t>(length) > source.size()) {
      throw fail(Errc::kInvalidArgument,
                 "a prompt of {} tokens: the text has {}; give a longer one with -f",
                 length,
                 source.size());
    }
    target_node::Request request = o.run.request;
    request.prompt.assign(source.begin(), source.begin() + length);
    request.use_draft = false;
    const std::vector<TokenId> expected = backend.generate(request, {}).tokens;
    request.use_draft = true;
    for (const auto& [policy, draft_len] : combinations) {
      request.policy = policy;
      request.draft_len = draft_len;
      rows.push_back(check(o, backend, models, request, expected));
      print(rows.back(), rows.size(), total);
      save(o, rows, total, nullptr);
    }
  }
  return rows;
}

int verify(Options o) {
  // The lengths are given one by one, to nodes that are started for the longest.
  o.run.request.auto_draft_len = false;
  o.run.request.draft_len = *std::max_element(o.draft_lens.begin(), o.draft_lens.end());
  const ModelPair models = open_models(o.run);
  const std::int32_t longest = *std::max_element(o.prompt_tokens.begin(), o.prompt_tokens.end());
  catch_interrupts();
  const auto backend = start_backend(o.run, longest + o.run.request.max_tokens);
  const std::vector<Row> rows = check_greedy(o, *backend, models);
  const auto failed =
      std::count_if(rows.begin(), rows.end(), [](const Row& r) { return !r.holds(); });
  fmt::print("greedy: {} of {} runs give the target's own tokens\n",
             std::ssize(rows) - failed,
             rows.size());
  bool law_holds = true;
  if (o.law_samples > 0) {
    const LawResult law = test_law(*backend, models, o.run, o.law_samples);
    law_holds = law.holds();
    fmt::print("law at temperature 1: {}\n", law.summary());
    save(o, rows, rows.size(), &law);
  }
  backend->stop();
  return failed == 0 && law_holds ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_verify_command(CLI::App& app, int& exit_code) {
  const auto o = std::make_shared<Options>();  // shared: lives as long as the callbacks
  o->run.request.max_tokens = 48;
  CLI::App& command =
      *app.add_subcommand("verify", "shows that drafts never change what the target says");
  add_run_options(command, o->run);
  command.remove_option(command.get_option("--policy"));
  command.remove_option(command.get_option("--budget"));
  command.remove_option(command.get_option("--block"));
  command.remove_option(command.get_option("--draft-len"));
  command.add_option("-f,--file", o->prompt_file, "text that the prompts are cut from");
  command.add_option("--prompt-tokens", o->prompt_tokens, "prompt lengths")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command.add_option("--policy", o->policies, "policies")
      ->delimiter(',')
      ->check(CLI::IsMember({"full", "swa", "snapkv", "rift-stat", "rift-dyn"}));
  command.add_option("--budget", o->budgets, "budgets")->delimiter(',')->check(CLI::PositiveNumber);
  command.add_option("--block", o->blocks, "block sizes")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command.add_option("--draft-len", o->draft_lens, "draft lengths")
      ->delimiter(',')
      ->check(CLI::Range(1, 31));
  command.add_option("--law-samples", o->law_samples, "answers drawn for the test of law; 0: none");
  command.add_option("--json", o->json_file, "write the figures to this file");
  command.footer(
      "Exit code 3 when a check does not hold.\n"
      "Examples:\n"
      "  rift verify -m target.gguf -md draft.gguf\n"
      "  rift verify -m target.gguf -md draft.gguf -f book.txt --prompt-tokens 30,1500,6000 \\\n"
      "              --budget 1,64,256,1024 --block 1,16,128 --draft-len 1,4,11 -n 32");
  command.callback([o, &exit_code] { exit_code = verify(*o); });
}

}  // namespace rift::cli
