// SPDX-License-Identifier: Apache-2.0
#include "model/verification.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace rift::model {
namespace {

constexpr double kSumTolerance = 1e-3;

bool is_law(const Distribution& q, std::int32_t vocab) {
  if (q.ids.empty() || q.ids.size() != q.probabilities.size()) {
    return false;
  }
  double sum = 0.0;
  for (std::size_t i = 0; i < q.ids.size(); ++i) {
    const float p = q.probabilities[i];
    const bool ascending = i == 0 || q.ids[i - 1] < q.ids[i];
    if (!ascending || q.ids[i] < 0 || q.ids[i] >= vocab || !std::isfinite(p) || p <= 0.0F) {
      return false;
    }
    sum += static_cast<double>(p);
  }
  return std::abs(sum - 1.0) <= kSumTolerance;
}

// The committed tokens that penalties can see, then all drafts. A row's context is a prefix of it.
// Nothing where there are no penalties: nobody looks at it.
std::vector<TokenId> penalty_context(const SamplingParams& params,
                                     std::span<const TokenId> history,
                                     std::span<const TokenId> drafted) {
  if (!params.has_penalties()) {
    return {};
  }
  const bool all = params.penalty_window < 0;
  const std::size_t seen =
      all ? history.size()
          : std::min(history.size(), static_cast<std::size_t>(params.penalty_window));
  std::vector<TokenId> context(history.end() - static_cast<std::ptrdiff_t>(seen), history.end());
  context.insert(context.end(), drafted.begin(), drafted.end());
  return context;
}

}  // namespace

std::int32_t usable_prefix(const DraftedTokens& draft,
                           std::int32_t vocab,
                           const DraftUniform& drawn) {
  std::size_t count = 0;
  for (; count < draft.tokens.size(); ++count) {
    const TokenId token = draft.tokens[count];
    if (token < 0 || token >= vocab) {
      break;
    }
    if (drawn && (count >= draft.q.size() || !is_law(draft.q[count], vocab) ||
                  sample(draft.q[count], drawn(static_cast<std::int32_t>(count))) != token)) {
      break;
    }
  }
  return static_cast<std::int32_t>(count);
}

Verification verify_greedy(std::span<const TokenId> tokens,
                           std::int32_t usable,
                           const TargetChoice& choice) {
  for (std::int32_t row = 0;; ++row) {
    const TokenId best = choice(row);
    if (row == usable || tokens[static_cast<std::size_t>(row)] != best) {
      return {row, best};
    }
  }
}

Verification verify_sampled(const DraftedTokens& draft,
                            std::int32_t usable,
                            const TargetLaw& law,
                            const RowUniform& draw) {
  for (std::int32_t row = 0; row < usable; ++row) {
    const auto at = static_cast<std::size_t>(row);
    const Distribution& p = law(row);
    const double accept = acceptance_probability(p, draft.q[at], draft.tokens[at]);
    if (draw(row, Draw::kAccept) >= accept) {
      return {row, sample(residual(p, draft.q[at]), draw(row, Draw::kResidual))};
    }
  }
  return {usable, sample(law(usable), draw(usable, Draw::kTarget))};
}

Verification verify(SamplerChain& chain,
                    std::span<const TokenId> history,
                    const DraftedTokens& draft,
                    MatView<float> logits) {
  RIFT_CHECK(logits.rows > static_cast<std::int64_t>(draft.tokens.size()),
             "{} rows of logits for {} drafted tokens",
             logits.rows,
             draft.tokens.size());
  const SamplingParams& params = chain.params();
  const RowUniform draw = [&](std::int32_t row, Draw purpose) {
    return uniform(params.seed, static_cast<std::int64_t>(history.size()) + row, purpose);
  };
  const auto drawn = [&](std::int32_t row) { return draw(row, Draw::kDraft); };
  const std::int32_t usable = usable_prefix(
      draft, static_cast<std::int32_t>(logits.cols), chain.greedy() ? DraftUniform() : drawn);
  const auto context = penalty_context(params, history, draft.tokens);
  const auto before = [&](std::int32_t row) {
    const std::size_t to_come = draft.tokens.size() - static_cast<std::size_t>(row);
    return std::span(context).first(context.size() - std::min(context.size(), to_come));
  };
  if (chain.greedy()) {
    const auto choice = [&](std::int32_t row) {
      return chain.greedy_choice(logits.row_span(row), before(row));
    };
    // By reference: a std::function that holds the captures would allocate.
    return verify_greedy(draft.tokens, usable, std::cref(choice));
  }
  const TargetLaw law = [&](std::int32_t row) -> const Distribution& {
    return chain.distribution(logits.row_span(row), before(row), 0);
  };
  return verify_sampled(draft, usable, law, draw);
}

}  // namespace rift::model
