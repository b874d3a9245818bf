// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/sampling_params.h"
#include "common/types.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace rift::model {

/// Purpose of a random draw; with (seed, position) it names the draw, so that no draw depends on
/// how many others were made before (batches, faults, retries).
enum class Draw : std::uint32_t { kTarget, kDraft, kAccept, kResidual };

/// Uniform in [0, 1), counter-based (Philox4x32-10). Pure.
[[nodiscard]] double uniform(std::uint64_t seed, std::int64_t position, Draw draw);

/// Greedy choice: the largest logit, ties to the lower id. NaN never wins.
[[nodiscard]] TokenId argmax(std::span<const float> logits);

/// A distribution over the vocabulary with finite support: ascending ids, p > 0, sums to 1.
struct Distribution {
  std::vector<TokenId> ids;
  std::vector<float> probabilities;
};

/// Turns logits into the law that `params` asks for, given the tokens so far (penalties). Reuses
/// its buffers: no allocation once warm. Thread: one at a time.
class SamplerChain {
 public:
  /// Errors (thrown): kInvalidArgument for values that have no meaning (NaN, top_p > 1, ...).
  explicit SamplerChain(SamplingParams params);
  [[nodiscard]] const SamplingParams& params() const { return params_; }
  [[nodiscard]] bool greedy() const { return params_.temperature <= 0.0F; }

  /// logits [V], changed in place by bias and penalties. history: all tokens before this position.
  /// max_support > 0 keeps only the most probable ids, renormalised (a draft's q).
  const Distribution& distribution(std::span<float> logits,
                                   std::span<const TokenId> history,
                                   std::int32_t max_support);
  /// Greedy choice after bias and penalties.
  TokenId greedy_choice(std::span<float> logits, std::span<const TokenId> history);

 private:
  using Candidate = std::pair<float, TokenId>;  // logit, then weight; id

  void apply_bias_and_penalties(std::span<float> logits, std::span<const TokenId> history);
  float collect(std::span<const float> logits);
  void exponentiate(float best);
  void keep_best(std::size_t count);
  void keep_top_p();
  void write_normalised();

  SamplingParams params_;
  Distribution out_;
  std::vector<Candidate> work_;
  std::vector<TokenId> seen_;
};

/// Inverse-transform draw; u in [0, 1). Where f32 rounding left the sum a little off 1, the law is
/// the one divided by its sum; acceptance_probability and residual mean the same law.
[[nodiscard]] TokenId sample(const Distribution& distribution, double u);

/// Leviathan et al. 2023: accept x with min(1, p(x) / q(x)); 0 where q(x) is 0 (never drafted).
[[nodiscard]] double acceptance_probability(const Distribution& p,
                                            const Distribution& q,
                                            TokenId x);
/// max(p - q, 0) normalised; p itself where nothing is left.
[[nodiscard]] Distribution residual(const Distribution& p, const Distribution& q);

}  // namespace rift::model
