// SPDX-License-Identifier: Apache-2.0
#include "eval/nodes.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"
#include "kernels/attention.h"
#include "policy/budget.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace rift::eval {
namespace {

constexpr draft_node::TargetId kTarget{1};
constexpr score_node::PeerId kDraftPeer{1};
constexpr std::uint32_t kSendChunks = 2;
constexpr std::uint64_t kSendChunkBytes = 8U << 20U;
constexpr std::int32_t kIngestChunk = 512;
// Sessions of attention() are named from here on, those of the core from 1.
constexpr std::uint64_t kFirstProbe = 1ULL << 62U;

KvGeometry geometry(const model::ModelConfig& config, DType dtype) {
  return {config.layers, config.kv_heads, config.head_dim, dtype};
}

score_node::EngineOptions score_engine_options(const NodesOptions& o) {
  score_node::EngineOptions out;
  out.threads = o.threads;
  out.chunk = kIngestChunk;
  out.max_history_bytes = o.history_bytes;
  out.kv_dtype = o.kv_dtype;
  out.mode = o.mode;
  return out;
}

draft_node::EngineOptions draft_engine_options(const NodesOptions& o) {
  draft_node::EngineOptions out;
  out.max_logit_rows = o.target == nullptr ? 4 : 1;  // run_known takes no more at a time
  out.kv_dtype = o.kv_dtype;
  out.mode = o.mode;
  return out;
}

std::unique_ptr<target_node::TargetEngine> target_engine(const NodesOptions& o) {
  if (o.target == nullptr) {
    return nullptr;
  }
  target_node::EngineOptions out;
  out.max_context = o.context;
  out.max_draft_len = o.max_draft_len;
  out.kv_dtype = o.kv_dtype;
  out.mode = o.mode;
  return std::make_unique<target_node::TargetEngine>(o.target, out, o.threads);
}

score_node::CoreOptions score_core_options(const NodesOptions& o) {
  score_node::CoreOptions out;
  out.geometry = geometry(o.draft->config, o.kv_dtype);
  out.vocab = o.draft->config.vocab;
  out.chunk = kIngestChunk;
  out.send_chunks = kSendChunks;
  out.send_chunk_bytes = kSendChunkBytes;
  return out;
}

draft_node::CoreOptions draft_core_options(const NodesOptions& o,
                                           const draft_node::Engine& engine) {
  draft_node::CoreOptions out;
  out.geometry = engine.geometry();
  out.arena.weights = engine.weight_bytes();
  out.arena.scratch = engine.scratch_bytes();
  out.arena.capacity = out.arena.weights + out.arena.scratch + o.arena_bytes;
  out.vocab = o.draft->config.vocab;
  out.max_context = o.context;
  out.max_draft_len = o.max_draft_len;
  return out;
}

target_node::CoreOptions target_core_options(const NodesOptions& o) {
  target_node::CoreOptions out;
  out.max_context = o.context;
  out.vocab = (o.target == nullptr ? o.draft : o.target)->config.vocab;
  out.max_draft_len = o.max_draft_len;
  return out;
}

}  // namespace

std::uint64_t session_bytes(std::span<const Setting> settings,
                            const model::ModelConfig& draft,
                            DType kv_dtype,
                            std::int32_t context) {
  std::uint64_t most = 0;
  for (const Setting& setting : settings) {
    most = std::max(
        most,
        policy::plan_layout(setting.policy, geometry(draft, kv_dtype), context, setting.draft_len)
            .total_bytes());
  }
  // The arena gives out whole pages, and keeps none for itself.
  return most + 2 * draft_node::Arena::kPageBytes;
}

Nodes::Nodes(const NodesOptions& options)
    : options_(options),
      pool_(options.threads),
      score_engine_(options.draft, score_engine_options(options)),
      draft_engine_(options.draft, draft_engine_options(options), pool_),
      target_engine_(target_engine(options)),
      send_buffer_(kSendChunks * kSendChunkBytes),
      score_(score_core_options(options)),
      target_(target_core_options(options)) {
  const draft_node::CoreOptions core = draft_core_options(options, draft_engine_);
  arena_ = PageBuffer(core.arena.session_bytes());
  draft_engine_.set_arena(arena_.bytes());
  draft_ = std::make_unique<draft_node::DraftCore>(core);
  post(draft_node::Event{draft_node::ScoreUp{"queue"}});
  post(target_node::Event{target_node::DraftUp{}});
  drain();
}

Nodes::~Nodes() = default;

Measurement Nodes::run(const Sequence& sequence,
                       const Setting& setting,
                       std::int32_t max_tokens,
                       std::span<const TokenId> stop_tokens,
                       const FullAttention* full) {
  const bool replayed = target_engine_ == nullptr;
  if (replayed && (setting.temperature > 0.0F || sequence.response.empty())) {
    throw fail(Errc::kInvalidArgument,
               "{}: a replay needs a recorded response ({} tokens here) and temperature 0 (here "
               "{}): sampled answers need the target model (-m)",
               sequence.name,
               sequence.response.size(),
               setting.temperature);
  }
  sequence_ = &sequence;
  known_.clear();
  if (replayed) {
    known_ = sequence.prompt;
    known_.insert(known_.end(), sequence.response.begin(), sequence.response.end());
    max_tokens = std::min(max_tokens, static_cast<std::int32_t>(sequence.response.size()));
  }
  full_ = full;
  mass_.assign(full == nullptr ? 0 : full->at.size(), std::numeric_limits<float>::quiet_NaN());
  measured_ = {};
  answer_.clear();
  outcome_.reset();
  failure_.reset();
  verified_ = false;

  target_node::Request request;
  request.prompt = sequence.prompt;
  request.max_tokens = max_tokens;
  request.stop_tokens.assign(stop_tokens.begin(), stop_tokens.end());
  request.ignore_stop = replayed;
  request.sampling.temperature = setting.temperature;
  request.policy = setting.policy;
  request.draft_len = setting.draft_len;
  const TimePoint began = Clock::now();
  post(target_node::Event{target_node::Submit{SessionId{next_session_++}, std::move(request)}});
  drain();
  if (failure_) {
    throw Error(*std::exchange(failure_, std::nullopt));
  }
  RIFT_CHECK(outcome_, "the nodes wait for each other on {}", sequence.name);
  if (!outcome_->draft_error.empty()) {
    throw fail(Errc::kUnavailable, "{}: {}", sequence.name, outcome_->draft_error);
  }
  measured_.drafted_per_position = outcome_->drafted_per_position;
  measured_.accepted_per_position = outcome_->accepted_per_position;
  answer_ = std::move(outcome_->tokens);
  for (std::size_t i = 0; i < mass_.size(); ++i) {
    if (!std::isnan(mass_[i])) {
      measured_.mass.push_back({full->at[i].answer_position, mass_[i]});
    }
  }
  measured_.seconds = seconds_between(began, Clock::now());
  return std::move(measured_);
}

FullAttention Nodes::attention(const Sequence& sequence,
                               std::span<const std::int32_t> positions,
                               std::int32_t window) {
  const model::ModelConfig& config = options_.draft->config;
  const auto prompt = static_cast<std::int32_t>(sequence.prompt.size());
  std::vector<TokenId> tokens = sequence.prompt;
  tokens.insert(tokens.end(), sequence.response.begin(), sequence.response.end());
  const score_node::SessionRef ref{kFirstProbe + next_probe_++};
  const auto check = [](const std::optional<Error>& error) {
    if (error) {
      throw Error(*error);
    }
  };
  const auto opened =
      score_engine_.run(score_node::OpenHistory{ref, tokens, options_.context, window});
  check(opened.error);
  std::int32_t held = opened.reused;
  const auto ingest_to = [&](std::int32_t end) {
    while (held < end) {
      const std::int32_t count = std::min(kIngestChunk, end - held);
      const auto done = score_engine_.run(
          score_node::Ingest{ref, held, {tokens.begin() + held, tokens.begin() + held + count}});
      check(done.error);
      held += count;
    }
  };
  FullAttention out;
  const std::int32_t group = config.query_heads / config.kv_heads;
  std::vector<float> queries(static_cast<std::size_t>(group) *
                             static_cast<std::size_t>(config.head_dim));
  for (const std::int32_t at : positions) {
    const Position position = prompt + at;
    RIFT_CHECK(position < static_cast<Position>(tokens.size()), "no token at {}", position);
    ingest_to(position + 1);
    const score_node::ScoreHistory& history = score_engine_.histories().at(ref);
    FullAttention::At& result = out.at.emplace_back();
    result.answer_position = at;
    result.position = position;
    const auto keys = static_cast<std::size_t>(position) + 1;
    result.probabilities.resize(static_cast<std::size_t>(config.layers) *
                                static_cast<std::size_t>(config.query_heads) * keys);
    std::vector<float> scratch(kernels::window_score_scratch(1, position + 1));
    for (std::int32_t layer = 0; layer < config.layers; ++layer) {
      for (std::int32_t head = 0; head < config.kv_heads; ++head) {
        history.copy_queries(layer, head, position + 1, 1, queries);
        const auto row =
            static_cast<std::size_t>(layer) * static_cast<std::size_t>(config.query_heads) +
            static_cast<std::size_t>(head * group);
        kernels::window_scores({.q = queries.data(),
                                .window = 1,
                                .group = group,
                                .head_dim = config.head_dim,
                                .scale = config.attention_scale,
                                .dtype = options_.kv_dtype,
                                .keys = history.keys(layer, head),
                                .key_count = position + 1,
                                .per_head = result.probabilities.data() + row * keys,
                                .scratch = scratch.data()});
      }
    }
  }
  score_engine_.run(score_node::ReleaseHistory{ref, {tokens.begin(), tokens.begin() + held}});
  return out;
}

void Nodes::drain() {
  while (!queue_.empty()) {
    Event event = std::move(queue_.front());
    queue_.pop_front();
    std::visit([this](auto& e) { handle(e); }, event);
  }
}

void Nodes::handle(target_node::Event& event) {
  for (target_node::Action& action : target_.handle(event, Clock::now())) {
    std::visit([this](auto& a) { act(a); }, action);
  }
}

void Nodes::handle(draft_node::Event& event) {
  for (draft_node::Action& action : draft_->handle(event, Clock::now())) {
    std::visit([this](auto& a) { act(a); }, action);
  }
}

void Nodes::handle(score_node::Event& event) {
  for (score_node::Action& action : score_.handle(std::move(event), Clock::now())) {
    std::visit([this](auto& a) { act(a); }, action);
  }
}

// ---- target ----

void Nodes::act(target_node::SendDraft& action) {
  post(draft_node::Event{draft_node::TargetMessage{kTarget, std::move(action.message)}});
}

void Nodes::act(target_node::Prefill& action) {
  if (target_engine_ == nullptr) {
    post(target_node::Event{
        target_node::PrefillDone{action.session, sequence_->response.front(), 0}});
    return;
  }
  post(target_node::Event{target_engine_->prefill(action, [](std::int32_t, std::int32_t) {})});
}

void Nodes::act(target_node::Verify& action) {
  const auto prompt = static_cast<std::int32_t>(sequence_->prompt.size());
  measured_.steps.push_back({action.committed - prompt, 0});
  verified_ = true;
  if (target_engine_ != nullptr) {
    post(target_node::Event{target_engine_->verify(action)});
    return;
  }
  const std::span<const TokenId> known = known_from(action.committed);
  std::int32_t accepted = 0;
  while (accepted < static_cast<std::int32_t>(action.drafted.size()) &&
         action.drafted[static_cast<std::size_t>(accepted)] ==
             known[static_cast<std::size_t>(accepted)]) {
    ++accepted;
  }
  post(target_node::Event{target_node::VerifyDone{
      action.session, accepted, known[static_cast<std::size_t>(accepted)]}});
}

void Nodes::act(target_node::EmitTokens& action) {
  if (std::exchange(verified_, false)) {
    measured_.steps.back().length = static_cast<std::int32_t>(action.tokens.size());
  }
}

void Nodes::act(target_node::Finish& action) {
  if (target_engine_ != nullptr) {
    target_engine_->release(action.session);
  }
  outcome_ = std::move(action.outcome);
}

void Nodes::act(target_node::Fail& action) {
  if (target_engine_ != nullptr) {
    target_engine_->release(action.session);
  }
  failure_ = std::move(action.error);
}

// ---- draft node ----

void Nodes::act(draft_node::SendTarget& action) {
  post(target_node::Event{target_node::FromDraft{std::move(action.message)}});
}

void Nodes::act(draft_node::SendScore& action) {
  if (const auto* request = std::get_if<transport::RefreshRequest>(&action.message)) {
    measured_.refresh_positions.push_back(request->tokens -
                                          static_cast<std::int32_t>(sequence_->prompt.size()));
  }
  post(score_node::Event{score_node::PeerMessage{kDraftPeer, std::move(action.message)}});
}

void Nodes::act(draft_node::OpenWorkingSet& action) { draft_engine_.run(action); }

void Nodes::act(draft_node::PrefillJob& action) {
  post(draft_node::Event{draft_engine_.run(action)});
}

void Nodes::act(draft_node::DraftJob& action) {
  if (target_engine_ == nullptr) {
    const auto end = action.first + static_cast<Position>(action.tokens.size());
    post(draft_node::Event{draft_engine_.run_known(action, known_from(end))});
  } else {
    post(draft_node::Event{draft_engine_.run(action)});
  }
  measure_mass(action);
}

void Nodes::act(draft_node::DropWorkingSet& action) {
  draft_engine_.run(action);
  post(draft_node::Event{draft_node::WorkingSetDropped{action.id}});
}

void Nodes::act(draft_node::Note& action) {
  log().log(action.warning ? spdlog::level::warn : spdlog::level::debug, "{}", action.text);
}

void Nodes::act(draft_node::RefreshSwapped& action) {
  const transport::RefreshRecord& record = action.record;
  if (record.epoch == Epoch{0}) {
    measured_.first_set_bytes += record.bytes;
    return;
  }
  measured_.refresh_bytes += record.bytes;
  measured_.refresh_lags.push_back(record.stale_tokens);
  measured_.refresh_seconds.push_back(static_cast<double>(record.total_ns) * 1e-9);
}

void Nodes::act(draft_node::StrideEnded& action) {
  const auto prompt = static_cast<std::int32_t>(sequence_->prompt.size());
  measured_.strides.push_back({action.committed - prompt, action.signals, action.decision});
}

// ---- score node ----

void Nodes::act(score_node::Pack& action) {
  post(score_node::Event{score_engine_.run(
      action, send_buffer_.bytes().subspan(action.chunk * kSendChunkBytes, kSendChunkBytes))});
}

void Nodes::act(score_node::Put& action) {
  const std::uint64_t base = action.chunk * kSendChunkBytes;
  for (const transport::PutOp& op : action.ops) {
    std::memcpy(arena_.bytes().subspan(op.remote_offset, op.bytes).data(),
                send_buffer_.bytes().subspan(base + op.local_offset, op.bytes).data(),
                op.bytes);
  }
  post(score_node::Event{score_node::PutDone{action.chunk, {}}});
}

void Nodes::act(score_node::Send& action) {
  post(draft_node::Event{draft_node::ScoreMessage{std::move(action.message)}});
}

// ---- measuring ----

std::span<const TokenId> Nodes::known_from(Position begin) const {
  return std::span(known_).subspan(static_cast<std::size_t>(begin));
}

void Nodes::measure_mass(const draft_node::DraftJob& job) {
  if (full_ == nullptr) {
    return;
  }
  const model::ModelConfig& config = options_.draft->config;
  const draft_node::WorkingSet& working_set = draft_engine_.working_set(job.id);
  const auto group = static_cast<std::size_t>(config.query_heads / config.kv_heads);
  std::vector<draft_node::WorkingSet::KeptRange> kept;
  for (std::size_t i = 0; i < full_->at.size(); ++i) {
    const FullAttention::At& full = full_->at[i];
    // A query that a rejected draft asked comes again with a later job, and counts there.
    if (full.position < job.first || full.position >= working_set.size()) {
      continue;
    }
    const auto keys = static_cast<std::size_t>(full.position) + 1;
    double sum = 0.0;
    const float* row = full.probabilities.data();
    for (std::int32_t layer = 0; layer < config.layers; ++layer) {
      for (std::int32_t head = 0; head < config.kv_heads; ++head) {
        working_set.kept(layer, head, full.position, kept);
        for (std::size_t h = 0; h < group; ++h, row += keys) {
          sum += static_cast<double>(row[full.position]);
          for (const auto& range : kept) {
            for (Position p = range.begin; p < range.end; ++p) {
              sum += static_cast<double>(row[p]);
            }
          }
        }
      }
    }
    mass_[i] = static_cast<float>(sum / (config.layers * config.query_heads));
  }
}

}  // namespace rift::eval
