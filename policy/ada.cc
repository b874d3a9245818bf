// SPDX-License-Identifier: Apache-2.0
#include "policy/ada.h"

#include "common/check.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace rift::policy {
namespace {

constexpr std::size_t kSteps = 4;
constexpr double kAlpha = 0.4;

}  // namespace

double entropy(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  double weighted = 0.0;
  for (const float logit : logits) {
    const double shifted = logit - largest;
    const double weight = std::exp(shifted);
    sum += weight;
    // A token that is banned (-inf) adds nothing; 0 times infinity would be NaN.
    weighted += weight > 0.0 ? weight * shifted : 0.0;
  }
  return std::log(sum) - weighted / sum;
}

double recent_acceptance(std::span<const double> lengths) {
  RIFT_CHECK(!lengths.empty(), "no verification step");
  double sum = 0.0;
  double weights = 0.0;
  double weight = 1.0;
  for (std::size_t age = 0; age < std::min(kSteps, lengths.size()); ++age) {
    sum += weight * lengths[lengths.size() - 1 - age];
    weights += weight;
    weight *= 1.0 - kAlpha;
  }
  return sum / weights;
}

std::string_view to_string(AdaRule rule) {
  constexpr std::array<std::string_view, 10> kNames = {"none",
                                                       "min_age",
                                                       "max_age",
                                                       "acceptance_low",
                                                       "entropy_high",
                                                       "acceptance_drop",
                                                       "entropy_rise",
                                                       "drift_high",
                                                       "all",
                                                       "score"};
  return kNames[static_cast<std::size_t>(rule)];
}

double ada_score(const AdaSpec& spec, const Signals& s) {
  const std::array<double, AdaSpec::kSignals> signals = {-s.acceptance,
                                                         s.entropy,
                                                         s.acceptance_base - s.acceptance,
                                                         s.entropy - s.entropy_base,
                                                         s.drift};
  double score = 0.0;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    score += spec.weights[i] * signals[i];
  }
  return score;
}

AdaDecision decide(const AdaSpec& spec, const Signals& s) {
  if (s.age < spec.min_age) {
    return {false, AdaRule::kMinAge};
  }
  if (s.age >= spec.max_age) {
    return {true, AdaRule::kMaxAge};
  }
  if (spec.gate == AdaGate::kScore) {
    const bool reached = ada_score(spec, s) >= spec.score_threshold;
    return {reached, reached ? AdaRule::kScore : AdaRule::kNone};
  }
  struct Condition {
    AdaRule rule;
    bool on;
    bool holds;
  };
  const std::array<Condition, 5> conditions = {{
      {AdaRule::kAcceptanceLow,
       spec.acceptance_low != -AdaSpec::kOff,
       s.acceptance <= spec.acceptance_low},
      {AdaRule::kEntropyHigh, spec.entropy_high != AdaSpec::kOff, s.entropy >= spec.entropy_high},
      {AdaRule::kAcceptanceDrop,
       spec.acceptance_drop != AdaSpec::kOff,
       s.acceptance_base - s.acceptance >= spec.acceptance_drop},
      {AdaRule::kEntropyRise,
       spec.entropy_rise != AdaSpec::kOff,
       s.entropy - s.entropy_base >= spec.entropy_rise},
      {AdaRule::kDriftHigh, spec.drift_high != AdaSpec::kOff, s.drift > spec.drift_high},
  }};
  bool any = false;
  for (const Condition& condition : conditions) {
    if (!condition.on) {
      continue;
    }
    if (spec.gate == AdaGate::kOr && condition.holds) {
      return {true, condition.rule};
    }
    if (spec.gate == AdaGate::kAnd && !condition.holds) {
      return {};
    }
    any = true;
  }
  return spec.gate == AdaGate::kAnd && any ? AdaDecision{true, AdaRule::kAll} : AdaDecision{};
}

QueryDrift::QueryDrift(const Shape& shape, std::int32_t max_pending) : shape_(shape) {
  RIFT_CHECK(shape.layers >= 1 && shape.kv_heads >= 1 && shape.head_dim >= 1 &&
                 shape.query_heads % shape.kv_heads == 0 && max_pending >= 1,
             "{} layers, {} of {} heads of {}, {} pending rows",
             shape.layers,
             shape.query_heads,
             shape.kv_heads,
             shape.head_dim,
             max_pending);
  const std::size_t size = static_cast<std::size_t>(shape.layers) *
                           static_cast<std::size_t>(shape.kv_heads) *
                           static_cast<std::size_t>(shape.head_dim);
  pending_.resize(size * static_cast<std::size_t>(max_pending));
  stride_.resize(size);
  reference_.resize(size);
}

void QueryDrift::put(std::int32_t row, std::int32_t layer, const float* queries) {
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  const auto groups = static_cast<std::size_t>(shape_.kv_heads);
  const std::size_t group = static_cast<std::size_t>(shape_.query_heads) / groups;
  const std::size_t first =
      static_cast<std::size_t>(row) * size() + static_cast<std::size_t>(layer) * groups * dim;
  RIFT_CHECK(row >= 0 && layer < shape_.layers && first + groups * dim <= pending_.size(),
             "row {}, layer {}",
             row,
             layer);
  float* out = pending_.data() + first;
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t i = 0; i < dim; ++i) {
      float sum = 0.0F;
      for (std::size_t h = 0; h < group; ++h) {
        sum += queries[(g * group + h) * dim + i];
      }
      out[g * dim + i] = sum;
    }
  }
}

void QueryDrift::settle(std::int32_t rows) {
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    const float* from = pending_.data() + row * size();
    for (std::size_t i = 0; i < size(); ++i) {
      stride_[i] += static_cast<double>(from[i]);
    }
  }
  rows_ += rows;
}

void QueryDrift::next_stride(bool refreshed) {
  if (rows_ > 0 && (refreshed || !has_reference_)) {
    reference_ = stride_;
    has_reference_ = true;
  }
  std::fill(stride_.begin(), stride_.end(), 0.0);
  rows_ = 0;
}

double QueryDrift::drift(std::int32_t pending) const {
  if (!has_reference_ || rows_ + pending == 0) {
    return 0.0;
  }
  const auto dim = static_cast<std::size_t>(shape_.head_dim);
  double total = 0.0;
  for (std::size_t first = 0; first < size(); first += dim) {
    double dot = 0.0;
    double now_norm = 0.0;
    double then_norm = 0.0;
    for (std::size_t i = first; i < first + dim; ++i) {
      double now = stride_[i];
      for (std::size_t row = 0; row < static_cast<std::size_t>(pending); ++row) {
        now += static_cast<double>(pending_[row * size() + i]);
      }
      dot += now * reference_[i];
      now_norm += now * now;
      then_norm += reference_[i] * reference_[i];
    }
    // A vector of zeros has turned nowhere.
    if (now_norm > 0.0 && then_norm > 0.0) {
      total += 1.0 - dot / std::sqrt(now_norm * then_norm);
    }
  }
  return total / static_cast<double>(size() / dim);
}

std::size_t QueryDrift::bytes() const {
  return pending_.size() * sizeof(float) + (stride_.size() + reference_.size()) * sizeof(double);
}

void AdaState::on_step(std::int32_t length, std::span<const float> entropies, double drift) {
  if (lengths_.size() == kSteps) {
    lengths_.erase(lengths_.begin());
  }
  lengths_.push_back(length);
  for (const float value : entropies) {
    entropy_sum_ += static_cast<double>(value);
    ++entropy_count_;
  }
  signals_.drift = drift;
}

AdaDecision AdaState::end_stride(std::int32_t committed, bool possible) {
  signals_.age = committed - refreshed_at_;
  // A stride without a draft step says nothing: the last values stand.
  if (!lengths_.empty()) {
    signals_.acceptance = recent_acceptance(lengths_);
  }
  if (entropy_count_ > 0) {
    signals_.entropy = entropy_sum_ / static_cast<double>(entropy_count_);
  }
  if (!based_) {
    signals_.acceptance_base = signals_.acceptance;
    signals_.entropy_base = signals_.entropy;
    based_ = true;
  }
  stride_begin_ = committed;
  entropy_sum_ = 0.0;
  entropy_count_ = 0;
  const AdaDecision decision = possible ? decide(spec_, signals_) : AdaDecision{};
  if (decision.refresh) {
    refreshed_at_ = committed;
    based_ = false;
  }
  return decision;
}

}  // namespace rift::policy
