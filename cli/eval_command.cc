// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "cli/eval_options.h"
#include "cli/eval_progress.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/policy_options.h"
#include "common/error.h"
#include "eval/prompt_set.h"
#include "eval/report.h"
#include "eval/statistics.h"
#include "eval/sweep.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

namespace rift::cli {
namespace {

struct Options {
  EvalInput input;
  std::vector<std::string> policies{"full", "swa", "rift-stat", "rift-dyn"};
  std::vector<std::string> selectors{"snapkv"};
  std::vector<std::string> allocations{"uniform"};
  eval::SweepAxes axes;
  std::string pooling = "none";
  std::string policy_file;
  std::string json_file, csv_file, html_file, state_file, record_folder;
  std::int32_t mass_samples = 8;
  bool quiet = false;
};

template <typename Value>
std::vector<Value> parse_all(const std::vector<std::string>& names,
                             std::optional<Value> (*parse)(std::string_view)) {
  std::vector<Value> out;
  for (const std::string& name : names) {
    out.push_back(*parse(name));  // checked by the option
  }
  return out;
}

eval::SweepAxes axes_of(const Options& o, const EvalSetup& setup) {
  eval::SweepAxes axes = o.axes;
  axes.policies = parse_all(o.policies, parse_policy);
  axes.selectors = parse_all(o.selectors, parse_selector);
  axes.allocations = parse_all(o.allocations, parse_allocation);
  axes.rest.pooling = *parse_pooling(o.pooling);
  if (std::find(axes.policies.begin(), axes.policies.end(), Policy::kRiftAda) !=
      axes.policies.end()) {
    load_ada(o.policy_file, setup.draft_fingerprint, axes.rest.ada);
  }
  return axes;
}

eval::Evaluation evaluate(const Options& o) {
  EvalSetup setup = open_eval(o.input);
  const std::vector<eval::Setting> settings = eval::settings_of(axes_of(o, setup));
  EvalProgress progress(!o.quiet);
  eval::SweepOptions& options = setup.options;
  options.mass_samples = o.mass_samples;
  options.state = o.state_file;
  options.cancelled = interrupted;
  options.on_progress = [&progress](std::size_t done, std::size_t total, double seconds) {
    progress.show("", done, total, seconds);
  };
  if (!o.record_folder.empty()) {
    std::filesystem::create_directories(o.record_folder);
    options.on_answer = [&](std::size_t index, const std::vector<TokenId>& answer) {
      eval::Sequence recorded = setup.sequences[index];
      recorded.response = answer;
      eval::write_replay(std::filesystem::path(o.record_folder) / fmt::format("{:04}.json", index),
                         recorded);
    };
  }
  eval::Evaluation out;
  out.rows = eval::run_sweep(settings, setup.sequences, options);
  progress.close();
  out.mode = o.input.target_model.empty() ? "replay" : "live";
  out.draft_file = o.input.draft_model;
  out.draft_fingerprint = setup.draft_fingerprint;
  out.target_file = o.input.target_model;
  out.target_fingerprint = setup.target_fingerprint;
  for (std::size_t i = 0; i < setup.sequences.size(); ++i) {
    const eval::Sequence& sequence = setup.sequences[i];
    out.prompts.push_back(sequence.name);
    out.categories.push_back(sequence.category);
    out.prompt_tokens.push_back(static_cast<std::int32_t>(sequence.prompt.size()));
    // The answer's first token comes from the prompt, the others from verification steps.
    out.response_tokens.push_back(static_cast<std::int32_t>(out.rows[0].runs[i].committed()) + 1);
  }
  return out;
}

void print_table(const eval::Evaluation& evaluation) {
  fmt::print("{:<58} {:>6} {:>6} {:>13} {:>6} {:>7} {:>9} {:>6}\n",
             "setting",
             "AL",
             "mean",
             "95% interval",
             "kept",
             "ref/1k",
             "B/token",
             "mass");
  for (const eval::Row& row : evaluation.rows) {
    const eval::RowSummary s = eval::summarise(evaluation, row, {});
    fmt::print("{:<58} {:>6.3f} {:>6.3f} {:>13} {:>6} {:>7.1f} {:>9.0f} {:>6}\n",
               eval::describe(row.setting),
               s.pooled,
               s.mean,
               fmt::format("[{:.2f}, {:.2f}]", s.interval.low, s.interval.high),
               s.retention ? fmt::format("{:.3f}", s.retention->share) : "-",
               s.refreshes_per_1k,
               s.bytes_per_token(),
               s.mass ? fmt::format("{:.3f}", *s.mass) : "-");
  }
}

int run(const Options& o) {
  for (const std::string* file : {&o.json_file, &o.csv_file, &o.html_file}) {
    check_writable(*file);
  }
  catch_interrupts();
  const eval::Evaluation evaluation = evaluate(o);
  if (!o.quiet) {
    print_table(evaluation);
  }
  if (!o.json_file.empty()) {
    write_file(o.json_file, boost::json::serialize(eval::to_json(evaluation)));
  }
  if (!o.csv_file.empty()) {
    write_file(o.csv_file, eval::to_csv(evaluation));
  }
  if (!o.html_file.empty()) {
    write_file(o.html_file, eval::to_html(evaluation));
  }
  return kExitOk;
}

void add_axes(CLI::App& command, Options& o) {
  eval::SweepAxes& a = o.axes;
  a.budgets = {1024};
  a.blocks = {16};
  a.rhos = {0.5F};
  a.deltas = {128};
  a.lags = {0};
  a.draft_lens = {11};
  a.temperatures = {0.0F};
  const auto list = [&command](const char* name, auto& values, const char* help) {
    return command.add_option(name, values, help)->delimiter(',')->capture_default_str();
  };
  list("--policy", o.policies, "policies, separated by commas")
      ->check(CLI::IsMember(
          {"full", "swa", "streaming-llm", "h2o", "snapkv", "rift-stat", "rift-dyn", "rift-ada"}));
  list("--budget", a.budgets, "B: cached positions per KV head")->check(CLI::Range(1, 1 << 24));
  list("--block", a.blocks, "P: positions per block")->check(CLI::Range(1, 4096));
  list("--rho", a.rhos, "share of the budget that is the recent window")
      ->check(CLI::Range(0.0, 1.0));
  list("--delta", a.deltas, "committed tokens between refreshes (rift-dyn)")
      ->check(CLI::Range(1, 1 << 24));
  list("--lag", a.lags, "tokens committed between a refresh's request and its swap")
      ->check(CLI::Range(0, 1 << 20));
  list("--draft-len", a.draft_lens, "gamma: tokens drafted per round")->check(CLI::Range(1, 31));
  list("--temp", a.temperatures, "temperatures; above 0 only with a target model")
      ->check(CLI::Range(0.0, 100.0));
  list("--selector", o.selectors, "what scores positions")->check(CLI::IsMember(selector_names()));
  list("--allocation", o.allocations, "division of the budget among heads and layers")
      ->check(CLI::IsMember(allocation_names()));
  command.add_option("--pooling", o.pooling, "of SnapKV scores: none, average or max")
      ->check(CLI::IsMember(pooling_names()))
      ->capture_default_str();
  command.add_option("--window", a.rest.window, "observation window, queries")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--policy-file", o.policy_file, "RIFT-ada's thresholds (TOML)");
}

}  // namespace

void add_eval_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();  // shared: lives as long as the callbacks
  Options& o = *options;
  CLI::App& command = *app.add_subcommand("eval", "accepted length of policies over prompt sets");
  add_eval_input(command, o.input);
  add_axes(command, o);
  command
      .add_option("--mass-samples", o.mass_samples, "queries per answer for retained mass; 0: none")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command.add_option("--json", o.json_file, "write all figures to this file (-: stdout)");
  command.add_option("--csv", o.csv_file, "write the rows to this file");
  command.add_option("--html", o.html_file, "write a report with plots to this file");
  command.add_option(
      "--state", o.state_file, "keep finished measurements here and go on from them");
  command.add_option("--record", o.record_folder, "write the target's answers here, for --replay");
  command.add_flag("-q,--quiet", o.quiet, "no progress and no table");
  command.footer(
      "Examples:\n"
      "  rift eval -md draft.gguf --replay answers/ --policy full,swa,rift-dyn --budget 256,1024 "
      "\\\n"
      "            --delta 16,32,128 --state eval.state --html eval.html\n"
      "  rift eval -m target.gguf -md draft.gguf --prompts set.jsonl --record answers/");
  command.callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace rift::cli
