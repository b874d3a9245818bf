// SPDX-License-Identifier: Apache-2.0
#include "model/sampling.h"

#include "common/check.h"
#include "common/error.h"
#include "model/philox.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace rift::model {
namespace {

// exp of less than this is below half the smallest f32 subnormal: the probability would be 0.
constexpr double kLogUnderflow = -104.0;

// Larger value first, ties to the lower id.
struct BetterCandidate {
  bool operator()(const std::pair<float, TokenId>& a, const std::pair<float, TokenId>& b) const {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  }
};

void check_params(const SamplingParams& params) {
  const auto require = [](bool good, const char* name, auto value, const char* expected) {
    if (!good) {
      throw fail(Errc::kInvalidArgument, "{} is {}: it must be {}", name, value, expected);
    }
  };
  require(std::isfinite(params.temperature), "temperature", params.temperature, "finite");
  require(params.top_p >= 0.0F && params.top_p <= 1.0F, "top_p", params.top_p, "in [0, 1]");
  require(params.min_p >= 0.0F && params.min_p <= 1.0F, "min_p", params.min_p, "in [0, 1]");
  require(std::isfinite(params.repeat_penalty) && params.repeat_penalty > 0.0F,
          "repeat_penalty",
          params.repeat_penalty,
          "finite and above 0");
  require(std::isfinite(params.presence_penalty),
          "presence_penalty",
          params.presence_penalty,
          "finite");
  require(std::isfinite(params.frequency_penalty),
          "frequency_penalty",
          params.frequency_penalty,
          "finite");
  require(params.penalty_window >= -1,
          "penalty_window",
          params.penalty_window,
          "-1 (all tokens) or at least 0");
  for (const auto& [id, bias] : params.logit_bias) {
    if (std::isnan(bias)) {
      throw fail(Errc::kInvalidArgument, "logit_bias of token {} is not a number", id);
    }
  }
}

double total(const Distribution& d) {
  return std::accumulate(d.probabilities.begin(), d.probabilities.end(), 0.0);
}

double probability(const Distribution& d, TokenId x) {
  const auto it = std::lower_bound(d.ids.begin(), d.ids.end(), x);
  if (it == d.ids.end() || *it != x) {
    return 0.0;
  }
  return static_cast<double>(d.probabilities[static_cast<std::size_t>(it - d.ids.begin())]);
}

}  // namespace

double uniform(std::uint64_t seed, std::int64_t position, Draw draw) {
  const auto at = static_cast<std::uint64_t>(position);
  const auto bits =
      philox4x32_10({static_cast<std::uint32_t>(at),
                     static_cast<std::uint32_t>(at >> 32),
                     static_cast<std::uint32_t>(draw),
                     0},
                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint64_t wide = (static_cast<std::uint64_t>(bits[0]) << 32) | bits[1];
  return static_cast<double>(wide >> 11) * 0x1.0p-53;
}

TokenId argmax(std::span<const float> logits) {
  std::size_t best = 0;
  while (best + 1 < logits.size() && std::isnan(logits[best])) {
    ++best;
  }
  for (std::size_t i = best + 1; i < logits.size(); ++i) {
    if (logits[i] > logits[best]) {
      best = i;
    }
  }
  return static_cast<TokenId>(best);
}

SamplerChain::SamplerChain(SamplingParams params) : params_(std::move(params)) {
  check_params(params_);
}

void SamplerChain::apply_bias_and_penalties(std::span<float> logits,
                                            std::span<const TokenId> history) {
  const auto inside = [&](TokenId id) {
    return id >= 0 && static_cast<std::size_t>(id) < logits.size();
  };
  for (const auto& [id, bias] : params_.logit_bias) {
    if (inside(id)) {
      logits[static_cast<std::size_t>(id)] += bias;
    }
  }
  if (!params_.has_penalties()) {
    return;
  }
  if (params_.penalty_window >= 0) {
    history =
        history.last(std::min(history.size(), static_cast<std::size_t>(params_.penalty_window)));
  }
  seen_.assign(history.begin(), history.end());
  std::sort(seen_.begin(), seen_.end());
  for (auto it = seen_.begin(); it != seen_.end();) {
    const auto next = std::upper_bound(it, seen_.end(), *it);
    if (inside(*it)) {
      float& logit = logits[static_cast<std::size_t>(*it)];
      logit = logit > 0.0F ? logit / params_.repeat_penalty : logit * params_.repeat_penalty;
      logit -= params_.presence_penalty;
      logit -= params_.frequency_penalty * static_cast<float>(next - it);
    }
    it = next;
  }
}

TokenId SamplerChain::greedy_choice(std::span<float> logits, std::span<const TokenId> history) {
  RIFT_CHECK(!logits.empty());
  apply_bias_and_penalties(logits, history);
  return argmax(logits);
}

// Candidates with their logits; those that can only get probability 0 are left out. Returns the
// best logit.
float SamplerChain::collect(std::span<const float> logits) {
  // An infinite logit stands for "certain": clamped, so that differences stay numbers.
  constexpr float kHighest = std::numeric_limits<float>::max();
  const float best = std::min(logits[static_cast<std::size_t>(argmax(logits))], kHighest);
  const double lowest =
      static_cast<double>(best) + kLogUnderflow * static_cast<double>(params_.temperature);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::min(logits[i], kHighest);
    if (static_cast<double>(logit) >= lowest && std::isfinite(logit)) {  // false for NaN
      work_.emplace_back(logit, static_cast<TokenId>(i));
    }
  }
  return best;
}

// Logits become weights relative to the best one.
void SamplerChain::exponentiate(float best) {
  const double temperature = static_cast<double>(params_.temperature);
  for (Candidate& candidate : work_) {
    const double gap = static_cast<double>(candidate.first) - static_cast<double>(best);
    candidate.first = static_cast<float>(std::exp(gap / temperature));
  }
}

void SamplerChain::keep_best(std::size_t count) {
  if (count < work_.size()) {
    const auto end = work_.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(work_.begin(), end, work_.end(), BetterCandidate());
    work_.erase(end, work_.end());
  }
}

// The fewest best candidates that reach a share top_p of the mass. The order is only found as far
// as it is needed, in chunks that grow.
void SamplerChain::keep_top_p() {
  double mass = 0.0;
  for (const Candidate& candidate : work_) {
    mass += static_cast<double>(candidate.first);
  }
  const double wanted = mass * static_cast<double>(params_.top_p);
  double reached = 0.0;
  auto begin = work_.begin();
  for (std::ptrdiff_t chunk = 64; begin != work_.end(); chunk *= 4) {
    const auto end = begin + std::min(chunk, work_.end() - begin);
    std::partial_sort(begin, end, work_.end(), BetterCandidate());
    for (; begin != end; ++begin) {
      reached += static_cast<double>(begin->first);
      if (reached >= wanted) {
        work_.erase(begin + 1, work_.end());
        return;
      }
    }
  }
}

// work_ holds weights: out_ gets them by ascending id, divided by their sum.
void SamplerChain::write_normalised() {
  const auto by_id = [](const Candidate& a, const Candidate& b) { return a.second < b.second; };
  if (!std::is_sorted(work_.begin(), work_.end(), by_id)) {
    std::sort(work_.begin(), work_.end(), by_id);
  }
  double mass = 0.0;
  for (const Candidate& candidate : work_) {
    mass += static_cast<double>(candidate.first);
  }
  out_.ids.clear();
  out_.probabilities.clear();
  for (const auto& [weight, id] : work_) {
    const auto p = static_cast<float>(static_cast<double>(weight) / mass);
    if (p > 0.0F) {
      out_.ids.push_back(id);
      out_.probabilities.push_back(p);
    }
  }
}

const Distribution& SamplerChain::distribution(std::span<float> logits,
                                               std::span<const TokenId> history,
                                               std::int32_t max_support) {
  RIFT_CHECK(!logits.empty());
  apply_bias_and_penalties(logits, history);
  work_.clear();
  const float best = greedy() ? 0.0F : collect(logits);
  if (greedy() || work_.empty()) {  // empty: not one logit was a number
    out_.ids.assign(1, argmax(logits));
    out_.probabilities.assign(1, 1.0F);
    return out_;
  }
  if (params_.top_k > 0) {
    keep_best(static_cast<std::size_t>(params_.top_k));
  }
  const bool by_mass = params_.top_p < 1.0F || params_.min_p > 0.0F;
  if (max_support > 0 && !by_mass) {
    keep_best(static_cast<std::size_t>(max_support));
  }
  exponentiate(best);
  if (params_.top_p < 1.0F) {
    keep_top_p();
  }
  if (params_.min_p > 0.0F) {
    // The best candidate's weight is exp(0) = 1.
    std::erase_if(work_, [this](const Candidate& c) { return c.first < params_.min_p; });
  }
  if (max_support > 0 && by_mass) {
    keep_best(static_cast<std::size_t>(max_support));
  }
  write_normalised();
  return out_;
}

TokenId sample(const Distribution& distribution, double u) {
  RIFT_CHECK(!distribution.ids.empty());
  const double wanted = u * total(distribution);
  double reached = 0.0;
  for (std::size_t i = 0; i < distribution.ids.size(); ++i) {
    reached += static_cast<double>(distribution.probabilities[i]);
    if (wanted < reached) {
      return distribution.ids[i];
    }
  }
  return distribution.ids.back();
}

double acceptance_probability(const Distribution& p, const Distribution& q, TokenId x) {
  const double drafted = probability(q, x);
  if (drafted <= 0.0) {
    return 0.0;
  }
  return std::min(1.0, probability(p, x) / total(p) * total(q) / drafted);
}

Distribution residual(const Distribution& p, const Distribution& q) {
  const double p_total = total(p);
  const double q_total = total(q);
  std::vector<double> excess(p.ids.size());
  double mass = 0.0;
  std::size_t j = 0;
  for (std::size_t i = 0; i < p.ids.size(); ++i) {
    while (j < q.ids.size() && q.ids[j] < p.ids[i]) {
      ++j;
    }
    const bool drafted = j < q.ids.size() && q.ids[j] == p.ids[i];
    const double minus = drafted ? static_cast<double>(q.probabilities[j]) / q_total : 0.0;
    excess[i] = std::max(static_cast<double>(p.probabilities[i]) / p_total - minus, 0.0);
    mass += excess[i];
  }
  Distribution out;
  for (std::size_t i = 0; i < excess.size(); ++i) {
    const float share = mass > 0.0 ? static_cast<float>(excess[i] / mass) : 0.0F;
    if (share > 0.0F) {
      out.ids.push_back(p.ids[i]);
      out.probabilities.push_back(share);
    }
  }
  return out.ids.empty() ? p : out;
}

}  // namespace rift::model
