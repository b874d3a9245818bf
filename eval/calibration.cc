// SPDX-License-Identifier: Apache-2.0
#include "eval/calibration.h"

#include "common/error.h"
#include "common/percentile.h"
#include "policy/ada.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>

namespace rift::eval {
namespace {

using policy::Signals;

struct Observation {
  Signals signals;
  std::optional<double> shortfall;  // of the next stride's accepted length against the base
};

std::vector<Observation> observations(std::span<const Measurement> collected,
                                      std::int32_t min_age) {
  std::vector<Observation> out;
  for (const Measurement& run : collected) {
    for (std::size_t i = 0; i < run.strides.size(); ++i) {
      if (run.strides[i].signals.age < min_age) {
        continue;
      }
      Observation& seen = out.emplace_back();
      seen.signals = run.strides[i].signals;
      if (i + 1 < run.strides.size() && !run.strides[i].decision.refresh) {
        seen.shortfall = seen.signals.acceptance_base - run.strides[i + 1].signals.acceptance;
      }
    }
  }
  return out;
}

// In the order of AdaSpec::weights; larger is worse.
std::array<double, AdaSpec::kSignals> badness(const Signals& s) {
  return {-s.acceptance,
          s.entropy,
          s.acceptance_base - s.acceptance,
          s.entropy - s.entropy_base,
          s.drift};
}

constexpr std::array<const char*, AdaSpec::kSignals> kNames = {
    "acceptance_low", "entropy_high", "acceptance_drop", "entropy_rise", "drift_high"};

void set_threshold(AdaSpec& ada, std::size_t signal, double value) {
  const auto threshold = static_cast<float>(value);
  switch (signal) {
    case 0:
      ada.acceptance_low = -threshold;
      break;
    case 1:
      ada.entropy_high = threshold;
      break;
    case 2:
      ada.acceptance_drop = threshold;
      break;
    case 3:
      ada.entropy_rise = threshold;
      break;
    default:
      ada.drift_high = threshold;
      break;
  }
}

struct Fit {
  std::array<float, AdaSpec::kSignals> weights{};
  std::vector<double> scores;
};

Fit fit_score(const std::vector<Observation>& seen) {
  std::vector<std::vector<double>> columns(AdaSpec::kSignals + 2);
  std::vector<double> target;
  for (const Observation& observation : seen) {
    if (!observation.shortfall) {
      continue;
    }
    const auto x = badness(observation.signals);
    for (std::size_t i = 0; i < x.size(); ++i) {
      columns[i].push_back(x[i]);
    }
    // The intercept has no sign: two columns.
    columns[AdaSpec::kSignals].push_back(1.0);
    columns[AdaSpec::kSignals + 1].push_back(-1.0);
    target.push_back(*observation.shortfall);
  }
  Fit fit;
  if (target.empty()) {
    return fit;
  }
  const std::vector<double> weights = nonnegative_least_squares(columns, target);
  for (std::size_t i = 0; i < AdaSpec::kSignals; ++i) {
    fit.weights[i] = static_cast<float>(weights[i]);
  }
  AdaSpec spec;
  spec.weights = fit.weights;
  for (const Observation& observation : seen) {
    fit.scores.push_back(policy::ada_score(spec, observation.signals));
  }
  return fit;
}

}  // namespace

Splits split_sequences(std::size_t count, std::uint64_t seed) {
  if (count < 3) {
    throw fail(
        Errc::kInvalidArgument,
        "{} prompts: calibration needs three at least, one to collect signals, one to choose "
        "thresholds and one to confirm them",
        count);
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  for (std::size_t i = count - 1; i > 0; --i) {
    std::swap(order[i], order[random() % (i + 1)]);
  }
  const std::size_t calibrate = std::max<std::size_t>(1, count * 2 / 5);
  const std::size_t select = std::max<std::size_t>(1, (count - calibrate) / 2);
  const auto at = [&](std::size_t i) { return order.begin() + static_cast<std::ptrdiff_t>(i); };
  Splits out;
  out.calibration.assign(order.begin(), at(calibrate));
  out.selection.assign(at(calibrate), at(calibrate + select));
  out.confirmation.assign(at(calibrate + select), order.end());
  for (auto* split : {&out.calibration, &out.selection, &out.confirmation}) {
    std::sort(split->begin(), split->end());
  }
  return out;
}

TradeOff trade_off(std::span<const Measurement> runs, std::span<const std::size_t> drawn) {
  double steps = 0.0;
  double tokens = 0.0;
  double refreshes = 0.0;
  for (const std::size_t i : drawn) {
    steps += static_cast<double>(runs[i].steps.size());
    tokens += static_cast<double>(runs[i].committed());
    refreshes += static_cast<double>(runs[i].refresh_positions.size());
  }
  return {tokens > 0.0 ? 1000.0 * refreshes / tokens : 0.0, steps > 0.0 ? tokens / steps : 0.0};
}

TradeOff trade_off(std::span<const Measurement> runs) {
  std::vector<std::size_t> all(runs.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return trade_off(runs, all);
}

Comparison compare(const TradeOff& point, std::vector<TradeOff> fixed) {
  if (fixed.empty()) {
    return {};
  }
  std::sort(fixed.begin(), fixed.end(), [](const TradeOff& a, const TradeOff& b) {
    return a.refreshes_per_1k < b.refreshes_per_1k;
  });
  for (std::size_t i = 1; i < fixed.size(); ++i) {
    fixed[i].accepted_length = std::max(fixed[i].accepted_length, fixed[i - 1].accepted_length);
  }
  const auto between = [](double x, double x0, double x1, double y0, double y1) {
    return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
  };
  double length = fixed.back().accepted_length;
  double refreshes = fixed.back().refreshes_per_1k;
  for (std::size_t i = fixed.size(); i-- > 0;) {
    const TradeOff& right = fixed[i];
    const TradeOff& left = fixed[i == 0 ? 0 : i - 1];
    if (point.refreshes_per_1k <= right.refreshes_per_1k) {
      length = i == 0 ? right.accepted_length
                      : between(point.refreshes_per_1k,
                                left.refreshes_per_1k,
                                right.refreshes_per_1k,
                                left.accepted_length,
                                right.accepted_length);
    }
    if (point.accepted_length <= right.accepted_length) {
      refreshes = i == 0 ? right.refreshes_per_1k
                         : between(std::max(point.accepted_length, left.accepted_length),
                                   left.accepted_length,
                                   right.accepted_length,
                                   left.refreshes_per_1k,
                                   right.refreshes_per_1k);
    }
  }
  Comparison out;
  out.gain = point.accepted_length - length;
  out.reduction = refreshes > 0.0              ? 1.0 - point.refreshes_per_1k / refreshes
                  : point.refreshes_per_1k > 0 ? -std::numeric_limits<double>::infinity()
                                               : 0.0;
  return out;
}

std::vector<Candidate> candidates(std::span<const Measurement> collected, const AdaSpec& base) {
  const std::vector<Observation> seen = observations(collected, base.min_age);
  if (seen.empty()) {
    throw fail(Errc::kInvalidArgument,
               "the calibration prompts' answers have no stride of age {} and more: use longer "
               "answers or a smaller minimum age",
               base.min_age);
  }
  std::array<std::vector<double>, AdaSpec::kSignals> values;
  for (const Observation& observation : seen) {
    const auto x = badness(observation.signals);
    for (std::size_t i = 0; i < x.size(); ++i) {
      values[i].push_back(x[i]);
    }
  }
  constexpr std::array<int, 4> kPercentiles = {50, 75, 90, 97};
  const AdaSpec plain{.stride = base.stride, .min_age = base.min_age, .max_age = base.max_age};
  std::vector<Candidate> out;
  for (const int share : kPercentiles) {
    AdaSpec all = plain;
    for (std::size_t signal = 0; signal < values.size(); ++signal) {
      const double value = percentile(values[signal], 0.01 * share);
      AdaSpec alone = plain;
      set_threshold(alone, signal, value);
      out.push_back({alone, fmt::format("{} at p{}", kNames[signal], share)});
      set_threshold(all, signal, value);
    }
    out.push_back({all, fmt::format("any signal at p{}", share)});
  }
  for (const auto& [a, b] : {std::pair<std::size_t, std::size_t>{0, 1}, {0, 4}, {1, 4}}) {
    for (const int share : {50, 75}) {
      AdaSpec both = plain;
      both.gate = AdaGate::kAnd;
      set_threshold(both, a, percentile(values[a], 0.01 * share));
      set_threshold(both, b, percentile(values[b], 0.01 * share));
      out.push_back({both, fmt::format("{} and {} at p{}", kNames[a], kNames[b], share)});
    }
  }
  const Fit fit = fit_score(seen);
  if (std::any_of(fit.weights.begin(), fit.weights.end(), [](float w) { return w > 0.0F; })) {
    for (const int share : kPercentiles) {
      AdaSpec score = plain;
      score.gate = AdaGate::kScore;
      score.weights = fit.weights;
      score.score_threshold = static_cast<float>(percentile(fit.scores, 0.01 * share));
      out.push_back({score, fmt::format("fitted score at p{}", share)});
    }
  }
  return out;
}

std::vector<double> nonnegative_least_squares(const std::vector<std::vector<double>>& columns,
                                              const std::vector<double>& target) {
  constexpr int kMostSweeps = 10000;
  std::vector<double> x(columns.size(), 0.0);
  std::vector<double> residual = target;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double moved = 0.0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const double norm =
          std::inner_product(columns[i].begin(), columns[i].end(), columns[i].begin(), 0.0);
      if (norm == 0.0) {
        continue;
      }
      const double along =
          std::inner_product(columns[i].begin(), columns[i].end(), residual.begin(), 0.0);
      const double step = std::max(-x[i], along / norm);
      x[i] += step;
      for (std::size_t k = 0; k < residual.size(); ++k) {
        residual[k] -= step * columns[i][k];
      }
      moved = std::max(moved, step * step * norm);
    }
    if (moved < 1e-18) {
      break;
    }
  }
  return x;
}

}  // namespace rift::eval
