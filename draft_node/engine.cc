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
  runner.max_logit_rows = options.max_logit_rows;
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

/// Hands queries before RoPE to the drift, everything else to the working set.
class QueryTap final : public model::AttentionBackend {
 public:
  QueryTap(WorkingSet& working_set, policy::QueryDrift& drift)
      : working_set_(working_set), drift_(drift) {}

  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override {
    working_set_.attend(layer, positions, q, k, v, out, pool);
  }
  [[nodiscard]] bool wants_raw_queries() const override { return true; }
  void raw_queries(std::int32_t layer, MatView<const float> q) override {
    for (std::int64_t t = 0; t < q.rows; ++t) {
      drift_.put(pending_ + static_cast<std::int32_t>(t), layer, q.row(t));
    }
  }

  /// `rows` have been put behind the pending ones.
  void add(std::int32_t rows) { pending_ += rows; }
  /// The first `rows` pending ones count, the others are forgotten.
  void settle(std::int32_t rows) {
    drift_.settle(std::min(rows, pending_));
    pending_ = 0;
  }
  [[nodiscard]] std::int32_t pending() const { return pending_; }

 private:
  WorkingSet& working_set_;
  policy::QueryDrift& drift_;
  std::int32_t pending_ = 0;
};

}  // namespace

/// A working set with what its sequence needs besides KV.
struct Engine::Context {
  Context(const WorkingSetParams& params,
          const policy::QueryDrift::Shape& queries,
          std::span<std::byte> memory,
          const OpenWorkingSet& job)
      : working_set(params, memory), sampler(job.sampling), top_n(job.top_n) {
    history.reserve(static_cast<std::size_t>(job.max_tokens));
    history.assign(job.history.begin(), job.history.end());
    if (job.signals) {
      // Pending: the committed tokens of one pass, or the drafts of one round.
      drift.emplace(queries, params.max_rows + params.layout.ring_capacity - params.recent);
      tap.emplace(working_set, *drift);
    }
  }

  WorkingSet working_set;
  std::optional<policy::QueryDrift> drift;
  std::optional<QueryTap> tap;
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
  logits_.resize(static_cast<std::size_t>(options.max_logit_rows) *
                 static_cast<std::size_t>(weights_->config.vocab));
  logit_rows_.reserve(static_cast<std::size_t>(options.max_logit_rows));
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
  const policy::QueryDrift::Shape queries{weights_->config.layers,
                                          weights_->config.query_heads,
                                          weights_->config.kv_heads,
                                          weights_->config.head_dim};
  const bool added = contexts_
                         .emplace(job.id,
                                  std::make_unique<Context>(
                                      params, queries, arena_.subspan(job.offset, bytes), job))
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
    feed(session, job.sinks, Rows::kPrompt, 0, unused);
    session.working_set.set_ring(job.start, job.start, static_cast<std::int32_t>(job.sinks.size()));
    feed(session, job.tokens, Rows::kPrompt, 0, unused);
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

DraftDone Engine::run_known(const DraftJob& job, std::span<const TokenId> next) {
  DraftDone done;
  done.id = job.id;
  const TimePoint start = Clock::now();
  Context& session = context(job.id);
  RIFT_CHECK(session.sampler.greedy(), "a sampled continuation is not known");
  prepare(session, job);
  done.error = guarded([&] { draft_known(session, job, next, done); });
  done.draft_ns = nanoseconds_since(start);
  return done;
}

void Engine::prepare(Context& session, const DraftJob& job) {
  if (session.tap) {
    session.tap->settle(job.first - (session.working_set.size() - session.tap->pending()));
    if (job.end_stride) {
      session.drift->next_stride(job.refreshed);
    }
  }
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
  feed(session, job.tokens, Rows::kCommitted, 1, done);
  done.tokens.push_back(choose(session, 0, done));
  while (done.tokens.size() < static_cast<std::size_t>(job.draft_len)) {
    feed(session, std::array{done.tokens.back()}, Rows::kDrafted, 1, done);
    done.tokens.push_back(choose(session, 0, done));
  }
  add_drift(session, 0, done);
}

void Engine::draft_known(Context& session,
                         const DraftJob& job,
                         std::span<const TokenId> next,
                         DraftDone& done) {
  // Rows of one pass: a few cost hardly more than one, and most drafts end early.
  constexpr std::size_t kRows = 4;
  const auto drafts = static_cast<std::size_t>(job.draft_len);
  next = next.first(std::min(next.size(), drafts));
  RIFT_CHECK(!next.empty(), "nothing is known to follow");
  feed(session, std::span(job.tokens).first(job.tokens.size() - 1), Rows::kCommitted, 0, done);
  std::vector<TokenId> fed = {job.tokens.back()};
  fed.insert(fed.end(), next.begin(), next.end() - 1);
  const std::size_t rows = std::min(kRows, logit_rows_.capacity());
  const auto holds = [&] {
    return done.tokens.empty() || done.tokens.back() == next[done.tokens.size() - 1];
  };
  for (std::size_t begin = 0; begin < fed.size() && holds(); begin += rows) {
    const std::size_t count = std::min(rows, fed.size() - begin);
    feed(session,
         std::span(fed).subspan(begin, count),
         Rows::kDrafted,
         static_cast<std::int32_t>(count),
         done);
    for (std::size_t i = 0; i < count && holds(); ++i) {
      done.tokens.push_back(choose(session, static_cast<std::int32_t>(i), done));
    }
  }
  add_drift(session, 1, done);
  done.tokens.resize(drafts, done.tokens.back());
}

void Engine::add_drift(const Context& session, std::int32_t committed, DraftDone& done) {
  if (!session.tap) {
    return;
  }
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(done.tokens.size()); ++i) {
    const std::int32_t rows = std::min(committed + i, session.tap->pending());
    done.drift.push_back(static_cast<float>(session.drift->drift(rows)));
  }
}

void Engine::feed(Context& session,
                  std::span<const TokenId> tokens,
                  Rows kind,
                  std::int32_t logit_rows,
                  DraftDone& done) {
  const bool tapped = session.tap && kind != Rows::kPrompt;
  model::AttentionBackend& attention =
      tapped ? static_cast<model::AttentionBackend&>(*session.tap) : session.working_set;
  while (!tokens.empty()) {
    // The rows whose logits are wanted go in one pass.
    const std::size_t wanted = static_cast<std::size_t>(logit_rows);
    const std::size_t rows = tokens.size() > positions_.size()
                                 ? std::min(positions_.size(), tokens.size() - wanted)
                                 : tokens.size();
    const std::span<Position> positions = std::span(positions_).first(rows);
    std::iota(positions.begin(), positions.end(), session.working_set.size());
    logit_rows_.resize(rows == tokens.size() ? wanted : 0);
    std::iota(logit_rows_.begin(),
              logit_rows_.end(),
              static_cast<std::int32_t>(rows - logit_rows_.size()));
    const TimePoint start = Clock::now();
    runner_.forward(
        tokens.first(rows),
        positions,
        attention,
        logit_rows_,
        MatView<float>(
            logits_.data(), static_cast<std::int64_t>(logit_rows_.size()), weights_->config.vocab));
    ++done.steps;
    done.step_ns += nanoseconds_since(start);
    if (tapped) {
      session.tap->add(static_cast<std::int32_t>(rows));
      if (kind == Rows::kCommitted) {
        session.tap->settle(session.tap->pending());
      }
    }
    tokens = tokens.subspan(rows);
  }
}

TokenId Engine::choose(Context& session, std::int32_t row, DraftDone& done) {
  const auto vocab = static_cast<std::size_t>(weights_->config.vocab);
  const std::span<float> logits =
      std::span(logits_).subspan(static_cast<std::size_t>(row) * vocab, vocab);
  if (session.tap) {
    done.entropy.push_back(static_cast<float>(policy::entropy(logits)));
  }
  TokenId token = 0;
  if (session.sampler.greedy()) {
    token = session.sampler.greedy_choice(logits, session.history);
  } else {
    const model::Distribution& q =
        session.sampler.distribution(logits, session.history, session.top_n);
    const auto position = static_cast<std::int64_t>(session.history.size());
    token = model::sample(
        q, model::uniform(session.sampler.params().seed, position, model::Draw::kDraft));
    done.q.push_back({q.ids, q.probabilities});
  }
  session.history.push_back(token);
  return token;
}

}  // namespace rift::draft_node
