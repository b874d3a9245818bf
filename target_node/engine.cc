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

}  // namespace

TargetEngine::TargetEngine(std::shared_ptr<const model::Weights> weights,
                           const EngineOptions& options,
                           int threads,
                           const std::vector<int>& cpus)
    : options_(options),
      pool_(threads, cpus),
      runner_(std::move(weights), runner_options(options), pool_),
      logits_(static_cast<std::size_t>(options.max_draft_len + 1) *
              static_cast<std::size_t>(runner_.config().vocab)) {}

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
  std::vector<TokenId> tokens{session.history.back()};
  tokens.insert(tokens.end(), job.drafted.begin(), job.drafted.end());
  std::vector<std::int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  forward(session, tokens, job.committed - 1, rows);

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
          logits_.data(), static_cast<std::int64_t>(rows.size()), runner_.config().vocab));
  session.history.insert(
      session.history.end(), job.drafted.begin(), job.drafted.begin() + verdict.accepted);
  session.cache->truncate(static_cast<std::int32_t>(session.history.size()));
  session.history.push_back(verdict.next);
  return {job.session, verdict.accepted, verdict.next};
}

std::vector<double> TargetEngine::measure_verify() {
  const std::int32_t widest = options_.max_draft_len + 1;
  Session session;
  session.cache = std::make_unique<model::KvCache>(runner_.config(), options_.kv_dtype, widest);
  const auto pass = [&](std::int32_t width) {
    const std::vector<TokenId> tokens(static_cast<std::size_t>(width), 0);
    std::vector<std::int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    session.cache->truncate(0);
    const TimePoint begin = Clock::now();
    forward(session, tokens, 0, rows);
    return seconds_between(begin, Clock::now());
  };
  pass(1);  // brings the weights into memory
  std::vector<double> seconds{pass(1)};
  for (const std::int32_t step : {2, 4, 8, 12, 16, 24, 32, widest}) {
    const std::int32_t from = static_cast<std::int32_t>(seconds.size());
    const std::int32_t to = std::min(step, widest);
    if (to > from) {
      const double at_from = seconds.back();
      const double per_row = (pass(to) - at_from) / (to - from);
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
