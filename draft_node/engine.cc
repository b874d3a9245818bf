// SPDX-License-Identifier: Apache-2.0
#include "draft_node/engine.h"

#include "common/check.h"
#include "common/clock.h"

#include <algorithm>
#include <array>
#include <exception>
#include <numeric>
#include <utility>

namespace rift::draft_node {
namespace {

std::uint64_t nanoseconds_since(TimePoint start) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<Nanoseconds>(Clock::now() - start).count());
}

model::RunnerOptions runner_options(const EngineOptions& options) {
  model::RunnerOptions runner;
  runner.max_batch = options.max_batch;
  runner.max_logit_rows = 1;
  runner.mode = options.mode;
  return runner;
}

/// The root of a job: whatever went wrong ends the session, not the node.
template <typename Body>
std::optional<Error> guarded(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return fail(Errc::kInternal, "draft computation: {}", error.what());
  }
  return std::nullopt;
}

}  // namespace

/// A working set with what its sequence needs besides KV.
struct Engine::Context {
  Context(const WorkingSetParams& params, std::span<std::byte> memory, const OpenWorkingSet& job)
      : working_set(params, memory), sampler(job.sampling), top_n(job.top_n) {
    history.reserve(static_cast<std::size_t>(job.max_tokens));
    history.assign(job.history.begin(), job.history.end());
  }

  WorkingSet working_set;
  model::SamplerChain sampler;
  std::int32_t top_n;
  std::vector<TokenId> history;  // tokens fed or drafted so far
};

Engine::Engine(std::shared_ptr<const model::Weights> weights,
               const EngineOptions& options,
               ThreadPool& pool)
    : weights_(std::move(weights)),
      options_(options),
      runner_(weights_, runner_options(options), pool) {
  logits_.resize(static_cast<std::size_t>(weights_->config.vocab));
  positions_.resize(static_cast<std::size_t>(options.max_batch));
}

Engine::~Engine() = default;

KvGeometry Engine::geometry() const {
  const model::ModelConfig& config = weights_->config;
  KvGeometry geometry;
  geometry.layers = config.layers;
  geometry.kv_heads = config.kv_heads;
  geometry.head_dim = config.head_dim;
  geometry.dtype = options_.kv_dtype;
  return geometry;
}

std::uint64_t Engine::scratch_bytes() const {
  return runner_.scratch_bytes() + logits_.size() * sizeof(float) +
         positions_.size() * sizeof(Position);
}

void Engine::run(const OpenWorkingSet& job) {
  const std::uint64_t bytes = job.layout.total_bytes();
  RIFT_CHECK(job.offset <= arena_.size() && bytes <= arena_.size() - job.offset,
             "working set of {} bytes at {} in an arena of {}",
             bytes,
             job.offset,
             arena_.size());
  WorkingSetParams params;
  params.layout = job.layout;
  params.recent = job.recent;
  params.query_heads = weights_->config.query_heads;
  params.attention_scale = weights_->config.attention_scale;
  params.max_rows = options_.max_batch;
  const bool added =
      contexts_
          .emplace(job.id,
                   std::make_unique<Context>(params, arena_.subspan(job.offset, bytes), job))
          .second;
  RIFT_CHECK(added, "working set {} is open", static_cast<std::uint64_t>(job.id));
}

void Engine::run(const DropWorkingSet& job) { contexts_.erase(job.id); }

Engine::Context& Engine::context(WorkingSetId id) {
  const auto found = contexts_.find(id);
  RIFT_CHECK(found != contexts_.end(), "no working set {}", static_cast<std::uint64_t>(id));
  return *found->second;
}

const WorkingSet& Engine::working_set(WorkingSetId id) const {
  return contexts_.at(id)->working_set;
}

PrefillDone Engine::run(const PrefillJob& job) {
  PrefillDone done;
  done.id = job.id;
  Context& session = context(job.id);
  DraftDone unused;
  done.error = guarded([&] {
    session.working_set.set_ring(0, 0, 0);
    feed(session, job.sinks, false, unused);
    session.working_set.set_ring(job.start, job.start, static_cast<std::int32_t>(job.sinks.size()));
    feed(session, job.tokens, false, unused);
  });
  return done;
}

DraftDone Engine::run(const DraftJob& job) {
  DraftDone done;
  done.id = job.id;
  const TimePoint start = Clock::now();
  Context& session = context(job.id);
  prepare(session, job);
  done.error = guarded([&] { draft(session, job, done); });
  done.draft_ns = nanoseconds_since(start);
  return done;
}

void Engine::prepare(Context& session, const DraftJob& job) {
  if (job.ring) {
    const auto [begin, end] = *job.ring;
    session.working_set.set_ring(begin, end, std::min(session.working_set.layout().sinks, end));
  }
  for (const Wave& wave : job.waves) {
    const Status status = session.working_set.install(wave.updates, wave.covered);
    RIFT_CHECK(status.ok(), "the core let a bad wave through: {}", status.error().message());
  }
  session.working_set.truncate(job.first);
  session.history.resize(static_cast<std::size_t>(job.first));
  session.history.insert(session.history.end(), job.tokens.begin(), job.tokens.end());
}

void Engine::draft(Context& session, const DraftJob& job, DraftDone& done) {
  done.tokens.reserve(static_cast<std::size_t>(job.draft_len));
  feed(session, job.tokens, true, done);
  done.tokens.push_back(choose(session, done));
  while (done.tokens.size() < static_cast<std::size_t>(job.draft_len)) {
    feed(session, std::array{done.tokens.back()}, true, done);
    done.tokens.push_back(choose(session, done));
  }
}

void Engine::feed(Context& session,
                  std::span<const TokenId> tokens,
                  bool want_logits,
                  DraftDone& done) {
  while (!tokens.empty()) {
    const std::size_t rows = std::min(tokens.size(), positions_.size());
    const std::span<Position> positions = std::span(positions_).first(rows);
    std::iota(positions.begin(), positions.end(), session.working_set.size());
    const bool last = rows == tokens.size();
    const std::array<std::int32_t, 1> logit_row = {static_cast<std::int32_t>(rows) - 1};
    const TimePoint start = Clock::now();
    runner_.forward(tokens.first(rows),
                    positions,
                    session.working_set,
                    last && want_logits ? std::span<const std::int32_t>(logit_row)
                                        : std::span<const std::int32_t>(),
                    MatView<float>(logits_.data(),
                                   last && want_logits ? 1 : 0,
                                   static_cast<std::int64_t>(logits_.size())));
    ++done.steps;
    done.step_ns += nanoseconds_since(start);
    tokens = tokens.subspan(rows);
  }
}

TokenId Engine::choose(Context& session, DraftDone& done) {
  TokenId token = 0;
  if (session.sampler.greedy()) {
    token = session.sampler.greedy_choice(logits_, session.history);
  } else {
    const model::Distribution& q =
        session.sampler.distribution(logits_, session.history, session.top_n);
    const auto position = static_cast<std::int64_t>(session.history.size());
    token = model::sample(
        q, model::uniform(session.sampler.params().seed, position, model::Draw::kDraft));
    done.q.push_back({q.ids, q.probabilities});
  }
  session.history.push_back(token);
  return token;
}

}  // namespace rift::draft_node
