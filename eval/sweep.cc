// SPDX-License-Identifier: Apache-2.0
#include "eval/sweep.h"

#include "common/check.h"
#include "common/error.h"
#include "eval/sweep_state.h"
#include "policy/budget.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace rift::eval {
namespace {

/// What the policy does not look at, as it is by default.
PolicySpec normalised(PolicySpec spec) {
  const PolicySpec none;
  const bool fresh = policy::refreshes(spec);
  if (!policy::selects(spec)) {
    spec.block = none.block;
    spec.selector = none.selector;
    spec.allocation = none.allocation;
    spec.window = none.window;
    spec.pooling = none.pooling;
    spec.pool_width = none.pool_width;
  }
  if (spec.policy == Policy::kFull) {
    spec.budget = none.budget;
  }
  if (!fresh && spec.policy != Policy::kRiftStat) {
    spec.rho = none.rho;
  }
  if (!fresh) {
    spec.refresh_lag = none.refresh_lag;
    spec.staging_percent = none.staging_percent;
  }
  if (spec.policy != Policy::kRiftDyn) {
    spec.delta = none.delta;
  }
  if (spec.policy != Policy::kRiftAda) {
    spec.ada = none.ada;
  }
  return spec;
}

std::string describe_ada(const AdaSpec& a) {
  return fmt::format(" stride={} age={}..{} gate={} [{}, {}, {}, {}, {}] weights=[{}] score={}",
                     a.stride,
                     a.min_age,
                     a.max_age,
                     to_string(a.gate),
                     a.acceptance_low,
                     a.entropy_high,
                     a.acceptance_drop,
                     a.entropy_rise,
                     a.drift_high,
                     fmt::join(a.weights, ", "),
                     a.score_threshold);
}

std::string measurement_key(const NodesOptions& nodes,
                            const SweepOptions& options,
                            const Setting& setting,
                            const Sequence& sequence) {
  const PolicySpec& p = setting.policy;
  KeyHash hash;
  hash.add("rift eval 1")
      .add(nodes.draft->fingerprint)
      .add(nodes.target == nullptr ? "replay" : nodes.target->fingerprint)
      .add(describe(setting))
      .add(describe_ada(p.ada))
      .add(fmt::format("window {} pooling {} {} staging {} kv {} mode {} tokens {} mass {}",
                       p.window,
                       to_string(p.pooling),
                       p.pool_width,
                       p.staging_percent,
                       static_cast<int>(nodes.kv_dtype),
                       static_cast<int>(nodes.mode),
                       options.max_tokens,
                       options.mass_samples))
      .add(sequence.prompt)
      .add(sequence.response);
  return hash.hex();
}

std::int32_t longest_context(std::span<const Sequence> sequences, std::int32_t max_tokens) {
  std::size_t longest = 0;
  for (const Sequence& sequence : sequences) {
    const std::size_t answer =
        sequence.response.empty()
            ? static_cast<std::size_t>(max_tokens)
            : std::min(sequence.response.size(), static_cast<std::size_t>(max_tokens));
    longest = std::max(longest, sequence.prompt.size() + answer);
  }
  return static_cast<std::int32_t>(longest);
}

/// `count` positions of an answer of `tokens`, the first and spread over it.
std::vector<std::int32_t> mass_positions(std::int32_t tokens, std::int32_t count) {
  std::vector<std::int32_t> out;
  for (std::int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<std::int32_t>(std::int64_t{i} * (tokens - 1) / count);
    if (out.empty() || at != out.back()) {
      out.push_back(at);
    }
  }
  return out;
}

/// One sweep under way. Workers take sequences; a worker does all settings of a sequence, so that
/// the score node's history of its prompt is computed once.
class Sweep {
 public:
  Sweep(std::span<const Setting> settings,
        std::span<const Sequence> sequences,
        const SweepOptions& options)
      : settings_(settings), sequences_(sequences), options_(options), nodes_(options.nodes) {
    nodes_.context = longest_context(sequences, options.max_tokens);
    nodes_.max_draft_len = 1;
    for (const Setting& setting : settings) {
      nodes_.max_draft_len = std::max(nodes_.max_draft_len, setting.draft_len);
    }
    nodes_.arena_bytes =
        session_bytes(settings, nodes_.draft->config, nodes_.kv_dtype, nodes_.context);
    if (!options.state.empty()) {
      state_.emplace(options.state);
    }
    rows_.resize(settings.size());
    for (std::size_t s = 0; s < settings.size(); ++s) {
      rows_[s].setting = settings[s];
      rows_[s].runs.resize(sequences.size());
    }
  }

  std::vector<Row> run() {
    const auto jobs = std::clamp<std::size_t>(
        static_cast<std::size_t>(options_.jobs), 1, std::max<std::size_t>(1, sequences_.size()));
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < jobs; ++i) {
      threads.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return std::move(rows_);
  }

 private:
  void work() {
    try {
      std::optional<Nodes> nodes;  // made for the first measurement that is not known
      for (std::size_t p = next_++; p < sequences_.size() && !stopped_; p = next_++) {
        measure(p, nodes);
      }
    } catch (...) {  // handed to the caller of run()
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      failure_ = failure_ ? failure_ : std::current_exception();
    }
  }

  void measure(std::size_t p, std::optional<Nodes>& nodes) {
    const Sequence& sequence = sequences_[p];
    std::optional<FullAttention> full;
    for (std::size_t s = 0; s < settings_.size() && !stopped_; ++s) {
      if (options_.cancelled && options_.cancelled()) {
        throw fail(Errc::kCancelled, "interrupted");
      }
      const std::string key =
          state_ ? measurement_key(nodes_, options_, settings_[s], sequence) : "";
      if (std::optional<Measurement> known = find(key)) {
        done(s, p, std::move(*known), 0.0);
        continue;
      }
      if (!nodes) {
        nodes.emplace(nodes_);
      }
      try {
        if (!full) {
          full = full_attention(*nodes, sequence, settings_[s].policy.window);
        }
        Measurement measured = nodes->run(sequence,
                                          settings_[s],
                                          options_.max_tokens,
                                          options_.stop_tokens,
                                          full->at.empty() ? nullptr : &*full);
        const double seconds = measured.seconds;
        add(key, measured);
        done(s, p, std::move(measured), seconds);
      } catch (const Error& error) {
        throw fail(
            error.code(), "{} on {}: {}", describe(settings_[s]), sequence.name, error.message());
      }
      if (s == 0 && nodes_.target != nullptr && options_.on_answer) {
        const std::lock_guard lock(mutex_);
        options_.on_answer(p, nodes->answer());
      }
    }
  }

  FullAttention full_attention(Nodes& nodes, const Sequence& sequence, std::int32_t window) const {
    if (nodes_.target != nullptr || options_.mass_samples == 0) {
      return {};
    }
    const auto tokens =
        std::min(static_cast<std::int32_t>(sequence.response.size()), options_.max_tokens);
    return nodes.attention(sequence, mass_positions(tokens, options_.mass_samples), window);
  }

  std::optional<Measurement> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    return state_ ? state_->find(key) : std::nullopt;
  }

  void add(const std::string& key, const Measurement& measured) {
    const std::lock_guard lock(mutex_);
    if (state_) {
      state_->add(key, measured);
    }
  }

  void done(std::size_t s, std::size_t p, Measurement measured, double seconds) {
    const std::lock_guard lock(mutex_);
    rows_[s].runs[p] = std::move(measured);
    ++done_;
    if (options_.on_progress) {
      options_.on_progress(done_, settings_.size() * sequences_.size(), seconds);
    }
  }

  std::span<const Setting> settings_;
  std::span<const Sequence> sequences_;
  const SweepOptions& options_;
  NodesOptions nodes_;
  std::mutex mutex_;  // of what follows
  std::optional<SweepState> state_;
  std::vector<Row> rows_;
  std::size_t done_ = 0;
  std::exception_ptr failure_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace

std::vector<Setting> settings_of(const SweepAxes& axes) {
  std::vector<Setting> out;
  const auto add = [&](Setting setting) {
    setting.policy = normalised(setting.policy);
    if (std::find(out.begin(), out.end(), setting) == out.end()) {
      out.push_back(setting);
    }
  };
  Setting setting;
  setting.policy = axes.rest;
  const auto each = [](const auto& values, auto& field, const auto& body) {
    for (const auto& value : values) {
      field = value;
      body();
    }
  };
  PolicySpec& p = setting.policy;
  each(axes.policies, p.policy, [&] {
    each(axes.selectors, p.selector, [&] {
      each(axes.allocations, p.allocation, [&] {
        each(axes.budgets, p.budget, [&] {
          each(axes.blocks, p.block, [&] {
            each(axes.rhos, p.rho, [&] {
              each(axes.deltas, p.delta, [&] {
                each(axes.lags, p.refresh_lag, [&] {
                  each(axes.draft_lens, setting.draft_len, [&] {
                    each(axes.temperatures, setting.temperature, [&] { add(setting); });
                  });
                });
              });
            });
          });
        });
      });
    });
  });
  return out;
}

std::string describe(const Setting& setting) {
  const PolicySpec& p = setting.policy;
  std::string out(to_string(p.policy));
  if (p.policy != Policy::kFull) {
    out += fmt::format(" B={}", p.budget);
  }
  if (policy::selects(p)) {
    out += fmt::format(" P={} {} {}", p.block, to_string(p.selector), to_string(p.allocation));
  }
  if (policy::refreshes(p) || p.policy == Policy::kRiftStat) {
    out += fmt::format(" rho={}", p.rho);
  }
  if (p.policy == Policy::kRiftDyn) {
    out += fmt::format(" delta={}", p.delta);
  }
  if (policy::refreshes(p)) {
    out += fmt::format(" lag={}", p.refresh_lag);
  }
  return out + fmt::format(" gamma={} T={}", setting.draft_len, setting.temperature);
}

std::vector<Row> run_sweep(std::span<const Setting> settings,
                           std::span<const Sequence> sequences,
                           const SweepOptions& options) {
  RIFT_CHECK(options.nodes.draft != nullptr, "an evaluation needs a draft model");
  return Sweep(settings, sequences, options).run();
}

}  // namespace rift::eval
