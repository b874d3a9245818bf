// SPDX-License-Identifier: Apache-2.0
#include "target_node/engine.h"

#include "common/clock.h"
#include "model/verification.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace rift::target_node {
namespace {

model::RunnerOptions runner_options(const EngineOptions& options) {
  return {.max_batch = std::max(options.prefill_chunk, options.max_draft_len + 1),
          .max_logit_rows = options.max_draft_len + 1,
          .mode = options.mode};
}

std::size_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(n), b.begin()).first -
      a.begin());
}

void fill_with_noise(model::KvCache& cache,
                     const model::ModelConfig& config,
                     std::int32_t depth,
                     ThreadPool& pool) {
  constexpr std::int32_t kRows = 256;
  const std::int64_t cols = std::int64_t{config.kv_heads} * config.head_dim;
  std::vector<float> noise(static_cast<std::size_t>(kRows * cols));
  std::uint32_t state = 1;
  for (float& value : noise) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    value = static_cast<float>(state >> 8U) * 0x1p-24F - 0.5F;
  }
  while (cache.size() < depth) {
    const MatView<const float> rows(noise.data(), std::min(kRows, depth - cache.size()), cols);
    for (std::int32_t layer = 0; layer < config.layers; ++layer) {
      cache.append(layer, rows, rows, pool);
    }
  }
}

}  // namespace

TargetEngine::TargetEngine(std::shared_ptr<const model::Weights> weights,
                           const EngineOptions& options,
                           int threads,
                           const std::vector<int>& cpus)
    : options_(options),
      pool_(threads, cpus),
      runner_(std::move(weights), runner_options(options), pool_),
      logits_(static_cast<std::size_t>(options.max_draft_len + 1) *
              static_cast<std::size_t>(runner_.config().vocab)) {
  const auto widest = static_cast<std::size_t>(runner_options(options).max_batch);
  positions_.reserve(widest);
  tokens_.reserve(widest);
  rows_.reserve(widest);
}

std::int32_t TargetEngine::adopt_cache(Session& session, std::span<const TokenId> prompt) {
  auto best = parked_.end();
  std::size_t shared = 0;
  for (auto it = parked_.begin(); it != parked_.end(); ++it) {
    // The newest token of a history was never fed.
    const auto cached = static_cast<std::size_t>(it->cache->size());
    const std::size_t n = std::min(common_prefix(it->history, prompt), cached);
    if (n > shared) {
      best = it;
      shared = n;
    }
  }
  if (best == parked_.end()) {
    session.cache = std::make_unique<model::KvCache>(
        runner_.config(), options_.kv_dtype, options_.max_context + options_.max_draft_len + 1);
    return 0;
  }
  session.cache = std::move(best->cache);
  parked_.erase(best);
  // The last prompt token is fed again: its logits are needed.
  const auto kept = static_cast<std::int32_t>(std::min(shared, prompt.size() - 1));
  session.cache->truncate(kept);
  return kept;
}

void TargetEngine::forward(Session& session,
                           std::span<const TokenId> tokens,
                           std::int32_t first_position,
                           std::span<const std::int32_t> logit_rows) {
  positions_.resize(tokens.size());
  std::iota(positions_.begin(), positions_.end(), first_position);
  const MatView<float> logits(
      logits_.data(), static_cast<std::int64_t>(logit_rows.size()), runner_.config().vocab);
  runner_.forward(tokens, positions_, *session.cache, logit_rows, logits);
}

PrefillDone TargetEngine::prefill(const Prefill& job, const OnPrefill& progress) {
  Session session;
  // All of an answer, so that its passes allocate nothing.
  session.history.reserve(
      static_cast<std::size_t>(options_.max_context + options_.max_draft_len + 1));
  session.history = job.prompt;
  session.sampler = std::make_unique<model::SamplerChain>(job.sampling);
  const auto total = static_cast<std::int32_t>(job.prompt.size());
  const std::int32_t reused = adopt_cache(session, job.prompt);
  progress(reused, total);
  for (std::int32_t at = reused; at < total;) {
    const std::int32_t count = std::min(options_.prefill_chunk, total - at);
    const std::int32_t last_row = count - 1;
    const bool last = at + count == total;
    forward(session,
            std::span(job.prompt)
                .subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)),
            at,
            last ? std::span(&last_row, 1) : std::span<const std::int32_t>());
    at += count;
    progress(at, total);
  }
  const auto verdict = model::verify(*session.sampler,
                                     session.history,
                                     {},
                                     MatView<float>(logits_.data(), 1, runner_.config().vocab));
  session.history.push_back(verdict.next);
  sessions_[job.session] = std::move(session);
  return {job.session, verdict.next, reused};
}

VerifyDone TargetEngine::verify(const Verify& job) {
  const auto it = sessions_.find(job.session);
  RIFT_CHECK(it != sessions_.end(), "session {}", static_cast<std::uint64_t>(job.session));
  Session& session = it->second;
  RIFT_CHECK(job.committed == std::ssize(session.history),
             "{} committed, {} in the history",
             job.committed,
             session.history.size());
  tokens_.assign(1, session.history.back());
  tokens_.insert(tokens_.end(), job.drafted.begin(), job.drafted.end());
  rows_.resize(tokens_.size());
  std::iota(rows_.begin(), rows_.end(), 0);
  forward(session, tokens_, job.committed - 1, rows_);

  std::vector<model::Distribution> q;
  q.reserve(job.q.size());
  for (const transport::SparseDistribution& d : job.q) {
    q.push_back({d.ids, d.probabilities});
  }
  const auto verdict = model::verify(
      *session.sampler,
      session.history,
      {job.drafted, q},
      MatView<float>(
          logits_.data(), static_cast<std::int64_t>(rows_.size()), runner_.config().vocab));
  session.history.insert(
      session.history.end(), job.drafted.begin(), job.drafted.begin() + verdict.accepted);
  session.cache->truncate(static_cast<std::int32_t>(session.history.size()));
  session.history.push_back(verdict.next);
  return {job.session, verdict.accepted, verdict.next};
}

VerifyCosts TargetEngine::measure_verify() {
  constexpr std::int32_t kDepth = 2048;
  Session session;
  session.cache = std::make_unique<model::KvCache>(
      runner_.config(), options_.kv_dtype, kDepth + options_.max_draft_len + 1);
  VerifyCosts costs;
  costs.empty = measure_verify(session, 0);
  fill_with_noise(*session.cache, runner_.config(), kDepth, pool_);
  costs.deep = measure_verify(session, kDepth);
  costs.depth = kDepth;
  return costs;
}

std::vector<double> TargetEngine::measure_verify(Session& session, std::int32_t depth) {
  const std::int32_t widest = options_.max_draft_len + 1;
  const auto pass = [&](std::int32_t width) {
    const std::vector<TokenId> tokens(static_cast<std::size_t>(width), 0);
    std::vector<std::int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    double best = 0.0;
    for (int turn = 0; turn < 3; ++turn) {
      const TimePoint begin = Clock::now();
      forward(session, tokens, depth, rows);
      const double seconds = seconds_between(begin, Clock::now());
      best = turn == 0 ? seconds : std::min(best, seconds);
      session.cache->truncate(depth);
    }
    return best;
  };
  std::vector<double> seconds{pass(1)};
  for (const std::int32_t step : {2, 4, 8, 12, 16, 24, 32, widest}) {
    const std::int32_t from = static_cast<std::int32_t>(seconds.size());
    const std::int32_t to = std::min(step, widest);
    if (to > from) {
      const double at_from = seconds.back();
      // More rows never cost less: what looks like it was somebody else's work.
      const double per_row = (std::max(pass(to), at_from) - at_from) / (to - from);
      for (std::int32_t width = from + 1; width <= to; ++width) {
        seconds.push_back(at_from + per_row * (width - from));
      }
    }
  }
  return seconds;
}

void TargetEngine::release(SessionId id) {
  const auto it = sessions_.find(id);
  if (it == sessions_.end()) {
    return;
  }
  parked_.push_front(std::move(it->second));
  sessions_.erase(it);
  while (std::ssize(parked_) > options_.parked_caches) {
    parked_.pop_back();
  }
}

}  // namespace rift::target_node
