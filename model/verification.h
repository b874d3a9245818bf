// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "model/sampling.h"

#include <cstdint>
#include <functional>
#include <span>

namespace rift::model {

/// What a draft proposes in one round. Untrusted: nothing in it has been checked. View.
struct DraftedTokens {
  std::span<const TokenId> tokens;
  std::span<const Distribution> q;  // law that each token was drawn from; empty when greedy
};

/// Outcome of one verification pass: tokens[0, accepted) are committed, then `next`.
struct Verification {
  std::int32_t accepted = 0;
  TokenId next = 0;
};

/// u of the draw that decided a drafted token.
using DraftUniform = std::function<double(std::int32_t row)>;

/// Number of leading tokens that verification can use: ids in [0, vocab) and, with `drawn`, a q
/// whose ids ascend in [0, vocab), whose probabilities are finite, > 0 and sum to 1 +- 1e-3, and
/// from which sample(q, drawn(row)) is the token: one that was not drawn from its q would bend the
/// law of the output. Without `drawn` (greedy) any token will do. Pure.
/// Source: docs/adr/0009-drafts-are-redrawn.md
[[nodiscard]] std::int32_t usable_prefix(const DraftedTokens& draft,
                                         std::int32_t vocab,
                                         const DraftUniform& drawn);

/// Target's greedy choice after row's context: the committed tokens and drafts 0 .. row - 1.
using TargetChoice = std::function<TokenId(std::int32_t row)>;
/// Target's law after the same context; valid until the next call.
using TargetLaw = std::function<const Distribution&(std::int32_t row)>;
/// Uniform in [0, 1) for a row's draw.
using RowUniform = std::function<double(std::int32_t row, Draw draw)>;

/// Accepts while a drafted token is the target's choice. Rows are asked for in order, up to the
/// first that differs; `usable` leading tokens are tested. Pure.
[[nodiscard]] Verification verify_greedy(std::span<const TokenId> tokens,
                                         std::int32_t usable,
                                         const TargetChoice& choice);

/// Rejection sampling: the tokens that come out have the target's law for any q that the drafted
/// tokens were really drawn from (usable_prefix checks it). Draws: kAccept for each tested row,
/// then kResidual at the first rejection, or kTarget after the last accepted token. Pure. Source:
/// Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", 2023,
/// algorithm 1.
[[nodiscard]] Verification verify_sampled(const DraftedTokens& draft,
                                          std::int32_t usable,
                                          const TargetLaw& law,
                                          const RowUniform& draw);

/// The whole step for one session. history: all committed tokens. logits [T, V] of the positions
/// history.size() .. + T - 1, T > draft.tokens.size(), changed in place by bias and penalties,
/// which see the accepted drafts. The proposal is cut at its first unusable token. Draws, the
/// draft's kDraft among them, are named by chain.params().seed and the position of the token that
/// they decide. Cost: O(V) per tested row.
[[nodiscard]] Verification verify(SamplerChain& chain,
                                  std::span<const TokenId> history,
                                  const DraftedTokens& draft,
                                  MatView<float> logits);

}  // namespace rift::model
