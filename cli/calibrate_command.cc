// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "cli/eval_options.h"
#include "cli/eval_progress.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/policy_options.h"
#include "common/error.h"
#include "common/policy_file.h"
#include "eval/calibration.h"
#include "eval/statistics.h"
#include "eval/sweep.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace rift::cli {
namespace {

namespace json = boost::json;

struct Options {
  EvalInput input;
  PolicySpec policy;
  std::vector<std::int32_t> deltas{16, 32, 64, 128, 256};
  std::int32_t lag = 0;
  std::int32_t draft_len = 11;
  float temperature = 0.0F;
  std::uint64_t seed = 1;
  std::string output = "policy.toml";
  std::string json_file, state_file;
  bool quiet = false;
};

/// A figure with its interval over prompts.
struct Figure {
  double value = 0.0;
  eval::Interval interval;
};

/// What the chosen thresholds are worth on a split.
struct Verdict {
  eval::TradeOff ada;
  std::vector<eval::TradeOff> fixed;  // without refreshes, then by delta
  Figure gain, reduction;
};

class Calibration {
 public:
  explicit Calibration(const Options& o) : o_(o), setup_(open_eval(o.input)), progress_(!o.quiet) {
    splits_ = eval::split_sequences(setup_.sequences.size(), o.seed);
    setup_.options.mass_samples = 0;
    setup_.options.state = o.state_file;
    setup_.options.cancelled = interrupted;
  }

  int run() {
    const std::vector<eval::Candidate> all = propose();
    const std::size_t chosen = choose(all);
    const Verdict verdict = confirm(all[chosen].ada);
    progress_.close();
    write(all[chosen], verdict);
    return kExitOk;
  }

 private:
  eval::Setting setting(Policy policy, std::int32_t delta, const AdaSpec& ada) const {
    eval::Setting out;
    out.policy = o_.policy;
    out.policy.policy = policy;
    out.policy.refresh_lag = o_.lag;
    out.policy.delta = delta;
    out.policy.ada = ada;
    out.draft_len = o_.draft_len;
    out.temperature = o_.temperature;
    return out;
  }
  /// Fixed schedules: none, and one for every delta.
  std::vector<eval::Setting> fixed_settings() const {
    std::vector<eval::Setting> out = {setting(Policy::kRiftStat, PolicySpec().delta, {})};
    for (const std::int32_t delta : o_.deltas) {
      out.push_back(setting(Policy::kRiftDyn, delta, {}));
    }
    return out;
  }

  std::vector<eval::Row> sweep(const char* what,
                               const std::vector<eval::Setting>& settings,
                               const std::vector<std::size_t>& split) {
    std::vector<eval::Sequence> sequences;
    for (const std::size_t i : split) {
      sequences.push_back(setup_.sequences[i]);
    }
    setup_.options.on_progress = [this, what](std::size_t done, std::size_t total, double seconds) {
      progress_.show(what, done, total, seconds);
    };
    return eval::run_sweep(settings, sequences, setup_.options);
  }

  std::vector<eval::Candidate> propose() {
    // No threshold is on: refreshes come at the largest age only, and signals at every age before.
    const auto rows = sweep("signals ",
                            {setting(Policy::kRiftAda, PolicySpec().delta, o_.policy.ada)},
                            splits_.calibration);
    return eval::candidates(rows[0].runs, o_.policy.ada);
  }

  /// The candidate with the largest gain over fixed schedules at its own number of refreshes.
  std::size_t choose(const std::vector<eval::Candidate>& all) {
    std::vector<eval::Setting> settings = fixed_settings();
    const std::size_t fixed = settings.size();
    for (const eval::Candidate& candidate : all) {
      settings.push_back(setting(Policy::kRiftAda, PolicySpec().delta, candidate.ada));
    }
    const std::vector<eval::Row> rows = sweep("choice ", settings, splits_.selection);
    std::vector<eval::TradeOff> schedules;
    for (std::size_t i = 0; i < fixed; ++i) {
      schedules.push_back(eval::trade_off(rows[i].runs));
    }
    std::size_t best = 0;
    double best_gain = -std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const eval::TradeOff point = eval::trade_off(rows[fixed + i].runs);
      const eval::Comparison comparison = eval::compare(point, schedules);
      table_.push_back({{"candidate", all[i].name},
                        {"refreshes_per_1k_tokens", point.refreshes_per_1k},
                        {"accepted_length_pooled", point.accepted_length},
                        {"gain", comparison.gain}});
      if (comparison.gain > best_gain) {
        best = i;
        best_gain = comparison.gain;
      }
    }
    return best;
  }

  Verdict confirm(const AdaSpec& ada) {
    std::vector<eval::Setting> settings = fixed_settings();
    settings.push_back(setting(Policy::kRiftAda, PolicySpec().delta, ada));
    const std::vector<eval::Row> rows = sweep("confirmation ", settings, splits_.confirmation);
    const auto comparison_of = [&rows](std::span<const std::size_t> drawn) {
      std::vector<eval::TradeOff> fixed;
      for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
        fixed.push_back(eval::trade_off(rows[i].runs, drawn));
      }
      return eval::compare(eval::trade_off(rows.back().runs, drawn), fixed);
    };
    Verdict out;
    out.ada = eval::trade_off(rows.back().runs);
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      out.fixed.push_back(eval::trade_off(rows[i].runs));
    }
    const eval::Comparison whole = eval::compare(out.ada, out.fixed);
    const std::size_t prompts = splits_.confirmation.size();
    out.gain = {whole.gain,
                eval::bootstrap(
                    prompts,
                    [&](std::span<const std::size_t> drawn) { return comparison_of(drawn).gain; },
                    {})};
    out.reduction = {whole.reduction,
                     eval::bootstrap(prompts,
                                     [&](std::span<const std::size_t> drawn) {
                                       return comparison_of(drawn).reduction;
                                     },
                                     {})};
    return out;
  }

  std::string notes(const eval::Candidate& chosen, const Verdict& v) const {
    std::string out = fmt::format(
        "RIFT-ada thresholds by `rift calibrate`: {}.\n"
        "Prompts: {} for signals, {} for the choice among {}, {} for confirmation (seed {}).\n"
        "On the confirmation prompts: accepted length {:.3f} (pooled) at {:.1f} refreshes per "
        "1,000 "
        "tokens.\n"
        "Gain at the same number of refreshes: {:+.3f}, 95% [{:+.3f}, {:+.3f}].\n"
        "Refreshes saved at the same accepted length: {}, 95% [{}, {}].\n"
        "Fixed schedules there:\n",
        chosen.name,
        splits_.calibration.size(),
        splits_.selection.size(),
        table_.size(),
        splits_.confirmation.size(),
        o_.seed,
        v.ada.accepted_length,
        v.ada.refreshes_per_1k,
        v.gain.value,
        v.gain.interval.low,
        v.gain.interval.high,
        share(v.reduction.value),
        share(v.reduction.interval.low),
        share(v.reduction.interval.high));
    for (std::size_t i = 0; i < v.fixed.size(); ++i) {
      out += fmt::format("  {:<12} {:.3f} at {:.1f} refreshes per 1,000 tokens\n",
                         i == 0 ? "none" : fmt::format("delta {}", o_.deltas[i - 1]),
                         v.fixed[i].accepted_length,
                         v.fixed[i].refreshes_per_1k);
    }
    return out;
  }
  static std::string share(double value) {
    return std::isfinite(value) ? fmt::format("{:.1f}%", 100.0 * value) : "none";
  }

  void write(const eval::Candidate& chosen, const Verdict& verdict) const {
    PolicyFile file;
    file.policy = setting(Policy::kRiftAda, PolicySpec().delta, chosen.ada).policy;
    file.draft_fingerprint = setup_.draft_fingerprint;
    file.target_fingerprint = setup_.target_fingerprint;
    file.temperature = o_.temperature;
    file.draft_len = o_.draft_len;
    const std::string text = notes(chosen, verdict);
    write_file(o_.output, to_toml(file, text));
    if (!o_.quiet) {
      fmt::print("{}\nwritten to {}\n", text, o_.output);
    }
    if (!o_.json_file.empty()) {
      write_file(o_.json_file, json::serialize(to_json(chosen, verdict)));
    }
  }

  json::array names_of(const std::vector<std::size_t>& split) const {
    json::array out;
    for (const std::size_t i : split) {
      out.emplace_back(setup_.sequences[i].name);
    }
    return out;
  }

  json::object to_json(const eval::Candidate& chosen, const Verdict& v) const {
    const auto point = [](const eval::TradeOff& p) {
      return json::object{{"refreshes_per_1k_tokens", p.refreshes_per_1k},
                          {"accepted_length_pooled", p.accepted_length}};
    };
    // JSON has no infinity.
    const auto number = [](double value) {
      return std::isfinite(value) ? json::value(value) : json::value(nullptr);
    };
    const auto figure = [&number](const Figure& f) {
      return json::object{{"value", number(f.value)},
                          {"ci95", json::array{number(f.interval.low), number(f.interval.high)}}};
    };
    json::array fixed;
    for (std::size_t i = 0; i < v.fixed.size(); ++i) {
      json::object row = point(v.fixed[i]);
      row["delta"] = i == 0 ? json::value(nullptr) : json::value(o_.deltas[i - 1]);
      fixed.push_back(row);
    }
    return {{"splits",
             {{"calibration", names_of(splits_.calibration)},
              {"selection", names_of(splits_.selection)},
              {"confirmation", names_of(splits_.confirmation)}}},
            {"candidates", table_},
            {"chosen", chosen.name},
            {"confirmation",
             {{"rift_ada", point(v.ada)},
              {"fixed", fixed},
              {"gain_at_same_refreshes", figure(v.gain)},
              {"refreshes_saved_at_same_length", figure(v.reduction)}}}};
  }

  const Options& o_;
  EvalSetup setup_;
  EvalProgress progress_;
  eval::Splits splits_;
  json::array table_;  // the choice
};

}  // namespace

void add_calibrate_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();  // shared: lives as long as the callbacks
  Options& o = *options;
  CLI::App& command =
      *app.add_subcommand("calibrate", "thresholds of RIFT-ada for a pair of models");
  add_eval_input(command, o.input);
  PolicySpec& p = o.policy;
  const auto whole = [&command](
                         const char* name, auto& value, int low, int high, const char* help) {
    command.add_option(name, value, help)->check(CLI::Range(low, high))->capture_default_str();
  };
  whole("--budget", p.budget, 1, 1 << 24, "B: cached positions per KV head");
  whole("--block", p.block, 1, 4096, "P: positions per block");
  whole("--window", p.window, 1, 4096, "observation window, queries");
  command.add_option("--rho", p.rho, "share of the budget that is the recent window")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  add_selector_options(command, p);
  command.add_option("--delta", o.deltas, "fixed schedules to compare with")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  whole("--stride", p.ada.stride, 1, 1 << 20, "d: tokens between two looks at the signals");
  whole("--min-age", p.ada.min_age, 1, 1 << 20, "tokens from one refresh to the next, at least");
  whole("--max-age", p.ada.max_age, 1, 1 << 20, "and at most");
  whole("--lag", o.lag, 0, 1 << 20, "tokens committed between a refresh's request and its swap");
  whole("--draft-len", o.draft_len, 1, 31, "gamma: tokens drafted per round");
  command.add_option("--temp", o.temperature, "temperature; above 0 only with a target model")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--seed", o.seed, "of the splits")->capture_default_str();
  command.add_option("-o,--output", o.output, "policy file")->capture_default_str();
  command.add_option("--json", o.json_file, "write all figures to this file (-: stdout)");
  command.add_option(
      "--state", o.state_file, "keep finished measurements here and go on from them");
  command.add_flag("-q,--quiet", o.quiet, "no progress and no summary");
  command.footer(
      "Example:\n"
      "  rift calibrate -md draft.gguf --replay answers/ --budget 1024 --state cal.state -o "
      "pair.toml");
  command.callback([options, &exit_code] {
    check_writable(options->output);
    check_writable(options->json_file);
    catch_interrupts();
    exit_code = Calibration(*options).run();
  });
}

}  // namespace rift::cli
