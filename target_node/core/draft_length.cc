// SPDX-License-Identifier: Apache-2.0
#include "target_node/core/draft_length.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rift::target_node {
namespace {

constexpr std::int32_t kFirst = 4;         // before anything is known
constexpr std::int32_t kPlainRounds = 16;  // between two probes while drafting does not pay
constexpr std::int32_t kProbe = 2;
constexpr double kNewest = 0.25;     // weight of the newest time
constexpr double kFade = 0.95;       // of the counts, per round
constexpr double kFirstGuess = 0.8;  // of the chance that a draft holds
constexpr double kGuessWeight = 4.0;

void average_in(double& mean, double value, bool first) {
  mean = first ? value : mean + kNewest * (value - mean);
}

}  // namespace

std::vector<double> VerifyCosts::at(std::int32_t position) const {
  std::vector<double> out = empty;
  for (std::size_t i = 0; depth > 0 && i < out.size(); ++i) {
    out[i] += std::max(0.0, deep[i] - empty[i]) * position / depth;
  }
  return out;
}

DraftLength::DraftLength(std::int32_t longest, std::vector<double> verify_seconds)
    : longest_(longest),
      measured_(std::move(verify_seconds)),
      seen_(static_cast<std::size_t>(longest) + 1, 0.0),
      tries_(static_cast<std::size_t>(longest), 0.0),
      hits_(static_cast<std::size_t>(longest), 0.0) {
  measured_.resize(seen_.size(), measured_.empty() ? 1.0 : measured_.back());
}

void DraftLength::drafted(std::int32_t tokens, double draft_seconds, double seconds) {
  const double drafting = std::clamp(draft_seconds, 0.0, seconds);
  average_in(step_seconds_, drafting / tokens, !drafts_seen_);
  average_in(round_seconds_, seconds - drafting, !drafts_seen_);
  drafts_seen_ = true;
}

void DraftLength::verified(std::int32_t drafted, std::int32_t accepted, double seconds) {
  const auto at = static_cast<std::size_t>(drafted);
  average_in(seen_[at], seconds, seen_[at] == 0.0);
  average_in(scale_, seconds / measured_[at], !scaled_);
  scaled_ = true;
  if (drafted == 0) {
    return;
  }
  for (std::size_t i = 0; i < tries_.size(); ++i) {
    tries_[i] *= kFade;
    hits_[i] *= kFade;
  }
  // A draft after the first that failed was not tried.
  for (std::int32_t i = 0; i < drafted && i <= accepted; ++i) {
    tries_[static_cast<std::size_t>(i)] += 1.0;
    hits_[static_cast<std::size_t>(i)] += i < accepted ? 1.0 : 0.0;
  }
}

double DraftLength::verify_cost(std::int32_t drafted) const {
  const auto at = static_cast<std::size_t>(drafted);
  return seen_[at] > 0.0 ? seen_[at] : measured_[at] * scale_;
}

std::int32_t DraftLength::best() const {
  const double tries = std::accumulate(tries_.begin(), tries_.end(), kGuessWeight);
  const double hits = std::accumulate(hits_.begin(), hits_.end(), kGuessWeight * kFirstGuess);
  const double overall = hits / tries;
  std::int32_t choice = 0;
  double most = 1.0 / verify_cost(0);
  double tokens = 1.0;
  double all_hold = 1.0;
  for (std::int32_t gamma = 1; gamma <= longest_; ++gamma) {
    const auto at = static_cast<std::size_t>(gamma - 1);
    all_hold *= (hits_[at] + kGuessWeight * overall) / (tries_[at] + kGuessWeight);
    tokens += all_hold;
    const double rate = tokens / (gamma * step_seconds_ + round_seconds_ + verify_cost(gamma));
    if (rate > most) {
      most = rate;
      choice = gamma;
    }
  }
  return choice;
}

std::int32_t DraftLength::next() {
  if (!drafts_seen_) {
    return std::min(kFirst, longest_);
  }
  const std::int32_t choice = best();
  if (choice > 0) {
    plain_rounds_ = 0;
    return choice;
  }
  if (++plain_rounds_ <= kPlainRounds) {
    return 0;
  }
  plain_rounds_ = 0;
  return std::min(kProbe, longest_);
}

}  // namespace rift::target_node
