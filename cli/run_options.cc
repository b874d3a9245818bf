// SPDX-License-Identifier: Apache-2.0
#include "cli/run_options.h"

#include "cli/policy_options.h"
#include "common/error.h"
#include "common/policy_spec.h"
#include "transport/node_process.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace rift::cli {
namespace {

// A verification of 16 rows: drafts this long hardly ever hold, and the ring of a working set is as
// much longer.
constexpr std::int32_t kLongestAutoDraft = 15;

// CLI::Range lets NaN through.
std::string finite(const std::string& text) {
  float value = 0.0F;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return std::isfinite(value) ? "" : text + " is not a finite number";
}

// An unsigned option takes "-5" for a huge number.
std::string not_negative(const std::string& text) {
  return text.starts_with('-') ? text + " is negative" : "";
}

void set_draft_len(target_node::Request& request, const std::string& text) {
  request.auto_draft_len = text == "auto";
  if (request.auto_draft_len) {
    request.draft_len = kLongestAutoDraft;
    return;
  }
  const char* end = text.data() + text.size();
  if (std::from_chars(text.data(), end, request.draft_len).ptr != end || request.draft_len < 1 ||
      request.draft_len > 31) {
    throw CLI::ValidationError("--draft-len", "'" + text + "': give auto, or 1 to 31");
  }
}

void add_policy_options(CLI::App& command, RunOptions& o) {
  PolicySpec& p = o.request.policy;
  command.add_option("--policy", o.policy, "what the draft keeps of its KV history")
      ->check(CLI::IsMember(policy_names()))
      ->capture_default_str();
  command.add_option("--budget", p.budget, "B: cached positions per KV head")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--block", p.block, "P: positions per block")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--rho", p.rho, "share of the budget that is the recent window")
      ->check(finite)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command.add_option("--delta", p.delta, "committed tokens between refreshes (rift-dyn)")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--window", p.window, "observation window, queries")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_selector_options(command, p);
  command.add_option("--policy-file", o.policy_file, "rift-ada's thresholds (rift calibrate)");
  command
      .add_option("--refresh-lag",
                  p.refresh_lag,
                  "tokens from a refresh's request to its swap; -1: as soon as it is there")
      ->check(CLI::Range(-1, 1 << 20))
      ->capture_default_str();
  command.add_option("--staging", p.staging_percent, "staging slots, % of the selected slots")
      ->check(CLI::Range(0, 100))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--draft-len",
          [&o](const std::string& text) { set_draft_len(o.request, text); },
          "tokens drafted per round; auto: what gives most tokens per second so far, at most 15")
      ->default_str("auto");
  command.add_flag("--measure-verify",
                   o.cluster.measure_verify,
                   "for auto: measure again what verification costs on this machine");
  command.add_flag("--no-draft", o.no_draft, "plain decoding by the target");
}

void add_sampling_options(CLI::App& command, RunOptions& o) {
  SamplingParams& s = o.request.sampling;
  command.add_option("-n,--predict", o.request.max_tokens, "longest answer, tokens")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--temp", s.temperature, "temperature; 0: greedy")
      ->check(finite)
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--top-k", s.top_k, "keep the k likeliest tokens; 0: all")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--top-p", s.top_p, "keep the likeliest tokens up to this mass")
      ->check(finite)
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--min-p", s.min_p, "drop tokens below this share of the likeliest")
      ->check(finite)
      ->check(CLI::Range(0.0, 1.0));
  command.add_option("--seed", s.seed, "names the random draws")->capture_default_str();
  command.add_option("--repeat-penalty", s.repeat_penalty, "divides logits of recent tokens")
      ->check(finite)
      ->check(CLI::Range(0.01, 100.0));
  command.add_option("--presence-penalty", s.presence_penalty, "subtracted once from seen tokens")
      ->check(finite);
  command.add_option("--frequency-penalty", s.frequency_penalty, "subtracted per occurrence")
      ->check(finite);
  command
      .add_option("--penalty-window", s.penalty_window, "tokens that penalties look at; -1: all")
      ->check(CLI::Range(-1, 1 << 24));
  command.add_option_function<std::vector<std::string>>(
      "--logit-bias",
      [&s](const std::vector<std::string>& entries) {
        for (const std::string& entry : entries) {
          const auto equals = entry.find('=');
          TokenId id = 0;
          float bias = 0.0F;
          const char* end = entry.data() + entry.size();
          if (equals == std::string::npos ||
              std::from_chars(entry.data(), entry.data() + equals, id).ptr !=
                  entry.data() + equals ||
              std::from_chars(entry.data() + equals + 1, end, bias).ptr != end) {
            throw CLI::ValidationError("--logit-bias", "'" + entry + "': give ID=VALUE");
          }
          s.logit_bias.emplace_back(id, bias);
        }
      },
      "ID=VALUE, added to a token's logit; may be repeated");
  command.add_option("--top-n", o.request.top_n, "support of the draft's law at --temp > 0")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

void add_cpu_options(CLI::App& command, RunOptions& o) {
  ClusterOptions& c = o.cluster;
  transport::add_cpus_option(command,
                             "--cpus",
                             o.cpus,
                             "CPUs that the nodes run on, e.g. 0-3,8. They share them: target and "
                             "draft take turns");
  transport::add_cpus_option(
      command, "--target-cpus", c.target_cpus, "CPUs of the target node, in place of --cpus");
  transport::add_cpus_option(
      command, "--draft-cpus", c.draft_cpus, "CPUs of the draft node, in place of --cpus");
  transport::add_cpus_option(
      command, "--score-cpus", c.score_cpus, "CPUs of the score node, in place of --cpus");
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& o) {
  set_draft_len(o.request, "auto");
  command.add_option("-m,--model", o.target_model, "target model: GGUF, safetensors or folder")
      ->required();
  command.add_option("--md,--draft-model", o.draft_model, "draft model (also: -md)");
  command.add_option("--ctx", o.context, "longest prompt and answer; default: what they need")
      ->check(CLI::Range(2, 1 << 24));
  add_sampling_options(command, o);
  add_policy_options(command, o);
  command.add_option("--transport", o.transport, "ucx: three processes; inproc: one")
      ->check(CLI::IsMember({"ucx", "inproc"}))
      ->capture_default_str();
  command.add_option("--require-transport",
                     o.cluster.require_transport,
                     "fail unless the link uses this UCX transport, e.g. rc, tcp");
  command
      .add_option("--draft-memory",
                  o.cluster.draft_memory_bytes,
                  "bytes of the draft node's arena; 0: weights and 1 GiB")
      ->transform(CLI::AsSizeValue(false))
      ->check(not_negative);
  command
      .add_option(
          "--threads", o.cluster.threads, "CPU threads of each node; default: one for each CPU")
      ->check(CLI::Range(1, 1024));
  add_cpu_options(command, o);
  command.add_flag("--exact", o.cluster.exact, "f32 arithmetic instead of 8-bit activations");
  command.add_flag(
      "--no-repack", o.cluster.no_repack, "compute from the weights as they lie in the file");
  command.add_option("--pre", o.cluster.pre, "pre-tokenizer, where the file's is unknown");
  command.add_option("--trace", o.cluster.trace, "write Chrome/Perfetto trace events to this file");
  command.add_option("--node-log-level", o.cluster.log_level, "of the three nodes")
      ->capture_default_str();
  o.cluster.log_level = "warn";
}

ModelPair open_models(const RunOptions& options) {
  const model::Tokenizer::Options pre{
      options.cluster.pre.empty() ? std::nullopt : std::optional<std::string>(options.cluster.pre)};
  ModelPair pair;
  pair.target = model::load_weights(options.target_model);
  pair.tokenizer = model::Tokenizer::open(options.target_model, pre);
  if (options.no_draft) {
    return pair;
  }
  if (options.draft_model.empty()) {
    throw fail(Errc::kInvalidArgument,
               "no draft model: give one with -md, or --no-draft for plain decoding");
  }
  pair.draft = model::load_weights(options.draft_model);
  const auto draft_tokenizer = model::Tokenizer::open(options.draft_model, pre);
  if (const auto difference = model::first_difference(*pair.tokenizer, *draft_tokenizer)) {
    throw fail(Errc::kMismatch,
               "{} and {} have different tokenizers: {}; drafts need the target's vocabulary",
               options.target_model,
               options.draft_model,
               *difference);
  }
  return pair;
}

std::vector<TokenId> stop_tokens(const model::Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_end_of_generation(id)) {
      out.push_back(id);
    }
  }
  return out;
}

std::unique_ptr<Backend> start_backend(const RunOptions& options, std::int32_t context) {
  ClusterOptions cluster = options.cluster;
  cluster.target_model = options.target_model;
  cluster.draft_model = options.no_draft ? "" : options.draft_model;
  cluster.context = context;
  for (std::vector<int>* cpus : {&cluster.target_cpus, &cluster.draft_cpus, &cluster.score_cpus}) {
    *cpus = cpus->empty() ? options.cpus : *cpus;
  }
  cluster.max_draft_len = std::max(options.request.draft_len, 11);
  cluster.verify_costs = !options.no_draft && options.request.auto_draft_len;
  return options.transport == "inproc" ? start_inproc_backend(cluster) : start_ucx_backend(cluster);
}

}  // namespace rift::cli
