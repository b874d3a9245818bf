// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/score_core.h"

#include "common/check.h"
#include "score_node/core/open_check.h"
#include "score_node/core/transfer_plan.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace rift::score_node {
namespace {

std::uint64_t nanoseconds(TimePoint from, TimePoint to) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<Nanoseconds>(to - from).count()));
}

/// RefreshReady::sums of a wave; empty where no selection is kept.
std::vector<float> handed_sums(const Refresh& refresh, std::int32_t kv_heads) {
  std::vector<float> sums;
  if (refresh.selection.empty()) {
    return sums;
  }
  for (const transport::TableUpdate& update : refresh.updates) {
    const auto head = static_cast<std::size_t>(update.layer * kv_heads + update.head);
    sums.push_back(refresh.selection[head].scores[update.block]);
  }
  for (const HeadSelection& head : refresh.selection) {
    sums.insert(sums.end(), head.recent.begin(), head.recent.end());
  }
  return sums;
}

}  // namespace

ScoreCore::ScoreCore(const CoreOptions& options) : options_(options), buffer_(options.send_chunks) {
  RIFT_CHECK(options.chunk >= 1 && options.send_chunks >= 1, "empty chunks");
}

std::vector<Action> ScoreCore::handle(Event event, TimePoint now) {
  now_ = now;
  std::visit([this](auto& e) { on(e); }, event);
  pump_buffer();
  return std::exchange(actions_, {});
}

Session* ScoreCore::find(SessionRef ref) {
  const auto found = sessions_.find(ref);
  return found == sessions_.end() ? nullptr : &found->second;
}

Session* ScoreCore::find(PeerId peer, SessionId id) {
  const auto found = names_.find({peer, id});
  return found == names_.end() ? nullptr : find(found->second);
}

// ---- messages ----

void ScoreCore::on(PeerMessage& event) {
  std::visit(
      [&](auto& message) {
        using M = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<M, transport::ScoreOpen>) {
          on_message(event.peer, message);
        } else {
          // What still comes for a session that was refused or closed has no addressee.
          Session* session = find(event.peer, message.session);
          if (session == nullptr) {
            return;
          }
          if constexpr (std::is_same_v<M, transport::CloseSession>) {
            refuse(*session, fail(Errc::kCancelled, "closed by the draft node"));
          } else if constexpr (std::is_same_v<M, transport::Commit> ||
                               std::is_same_v<M, transport::RefreshRequest> ||
                               std::is_same_v<M, transport::Installed>) {
            on_message(*session, message);
          } else {
            refuse(*session,
                   fail(Errc::kInvalidArgument, "a score node does not take this message"));
          }
        }
      },
      event.message);
}

void ScoreCore::on_message(PeerId peer, transport::ScoreOpen& open) {
  const SessionId id = open.session;
  if (Session* old = find(peer, id)) {
    drop(*old);
  }
  // What is still to be said about an earlier opening would be taken for this one.
  std::erase_if(farewells_, [&](const auto& entry) {
    return entry.second.peer == peer && entry.second.message.session == id;
  });
  const Status checked =
      check_open(open, {options_.geometry, options_.vocab, options_.send_chunk_bytes});
  if (!checked.ok()) {
    actions_.emplace_back(Send{
        peer, transport::SessionRefused{id, checked.error().code(), checked.error().message()}});
    return;
  }
  const SessionRef ref{next_ref_++};
  const policy::BudgetPlan plan = policy::plan_budget(open.policy, open.max_context);
  Session& session = sessions_.try_emplace(ref, ref, peer, std::move(open), plan).first->second;
  names_[{peer, id}] = ref;
  session.job_limit = session.size();
  session.queued = transport::RefreshRequest{id, Epoch{0}, session.size()};
  session.queued_at = now_;
  actions_.emplace_back(OpenHistory{ref,
                                    session.tokens,
                                    session.open.max_context,
                                    session.cumulative() ? 0 : session.open.policy.window,
                                    policy::selects(session.open.policy)
                                        ? policy::selector(session.open.policy)
                                        : Selector::kSnapKv});
}

void ScoreCore::on_message(Session& session, const transport::Commit& commit) {
  const auto count = static_cast<std::int64_t>(commit.tokens.size());
  if (commit.start < 0 || commit.start > session.size()) {
    return refuse(session,
                  fail(Errc::kMismatch,
                       "commit starts at token {}, but the history has {}: open the session again",
                       commit.start,
                       session.size()));
  }
  if (commit.start + count > session.open.max_context) {
    return refuse(session,
                  fail(Errc::kOutOfRange,
                       "commit ends at token {}: the session was opened for {}",
                       commit.start + count,
                       session.open.max_context));
  }
  if (const Status checked = check_tokens(commit.tokens, options_.vocab); !checked.ok()) {
    return refuse(session, checked.error());
  }
  // Tokens that are the same again change nothing.
  const auto begin = session.tokens.begin() + commit.start;
  const auto [mine, theirs] =
      std::mismatch(begin, session.tokens.end(), commit.tokens.begin(), commit.tokens.end());
  const auto same = static_cast<Position>(mine - session.tokens.begin());
  if (same < session.size()) {
    replace_from(session, same);
  }
  session.tokens.insert(session.tokens.end(), theirs, commit.tokens.end());
  clamp_requests(session);
  advance(session);
}

void ScoreCore::on_message(Session& session, const transport::RefreshRequest& request) {
  if (request.tokens < 1 || request.tokens > session.size()) {
    return refuse(session,
                  fail(Errc::kMismatch,
                       "refresh of {} tokens asked for, but the history has {}: commit them first",
                       request.tokens,
                       session.size()));
  }
  if (request.epoch <= session.newest_epoch) {
    return refuse(session,
                  fail(Errc::kMismatch,
                       "refresh epoch {} asked for after epoch {}",
                       static_cast<std::uint32_t>(request.epoch),
                       static_cast<std::uint32_t>(session.newest_epoch)));
  }
  if (session.plan.slots_per_head > 0 && session.open.layout.staging_slots == 0) {
    return refuse(session,
                  fail(Errc::kInvalidArgument,
                       "policy {} has no staging slots to refresh through",
                       to_string(session.open.policy.policy)));
  }
  session.newest_epoch = request.epoch;
  session.queued = request;  // one that waited is superseded
  session.queued_at = now_;
  advance(session);
}

void ScoreCore::on_message(Session& session, const transport::Installed& installed) {
  if (installed.epoch > session.newest_epoch) {
    return refuse(session,
                  fail(Errc::kMismatch,
                       "epoch {} was installed, the newest asked for is {}",
                       static_cast<std::uint32_t>(installed.epoch),
                       static_cast<std::uint32_t>(session.newest_epoch)));
  }
  // A wave without table updates is over before its installation is reported.
  if (!session.refresh || installed.epoch != session.refresh->epoch ||
      installed.wave < session.refresh->wave) {
    return;
  }
  Refresh& refresh = *session.refresh;
  if (refresh.stage != Refresh::Stage::kInstalling || installed.wave > refresh.wave) {
    return refuse(session,
                  fail(Errc::kMismatch,
                       "wave {} of epoch {} was installed before it was sent",
                       installed.wave,
                       static_cast<std::uint32_t>(installed.epoch)));
  }
  session.mirror.install(refresh.updates);
  session.mirror.mark_stale(refresh.replaced_from);
  if (refresh.plan.empty()) {
    session.refresh.reset();
    return advance(session);
  }
  ++refresh.wave;
  start_wave(session);
}

void ScoreCore::on(PeerLost& event) {
  std::vector<SessionRef> lost;
  for (const auto& [ref, session] : sessions_) {
    if (session.peer == event.peer) {
      lost.push_back(ref);
    }
  }
  for (const SessionRef ref : lost) {
    drop(sessions_.at(ref));
  }
  std::erase_if(farewells_, [&](const auto& entry) { return entry.second.peer == event.peer; });
}

// ---- the history ----

void ScoreCore::on(HistoryOpened& event) {
  Session* session = find(event.session);
  if (session == nullptr) {
    return;
  }
  if (event.error) {
    return refuse(*session, *event.error);
  }
  session->history_open = true;
  // Commits may have replaced tokens of the opening meanwhile.
  session->ingested = std::min(event.reused, session->job_limit);
  session->queries_begin = session->ingested;
  advance(*session);
}

void ScoreCore::on(Ingested& event) {
  Session* session = find(event.session);
  if (session == nullptr) {
    return;
  }
  if (event.error) {
    return refuse(*session, *event.error);
  }
  session->ingesting = false;
  session->ingested = std::min(event.size, session->job_limit);
  session->queries_begin = event.queries_begin;
  session->history_bytes = event.history_bytes;
  advance(*session);
}

void ScoreCore::replace_from(Session& session, Position position) {
  session.tokens.resize(static_cast<std::size_t>(position));
  session.ingested = std::min(session.ingested, position);
  session.job_limit = std::min(session.job_limit, position);
  session.mirror.mark_stale(position);
  if (session.refresh) {
    Refresh& refresh = *session.refresh;
    refresh.replaced_from = std::min(refresh.replaced_from, position);
    refresh.outdated = refresh.outdated || position < refresh.tokens;
  }
}

/// A history that became shorter is scored as long as it is.
void ScoreCore::clamp_requests(Session& session) {
  const std::int32_t longest = std::max(session.size(), 1);
  if (session.queued) {
    session.queued->tokens = std::min(session.queued->tokens, longest);
  }
  if (session.refresh && session.refresh->stage <= Refresh::Stage::kScoring) {
    session.refresh->tokens = std::min(session.refresh->tokens, longest);
  }
}

/// Starts the next ingest job if one is due: at once while a refresh waits for it, else when enough
/// tokens have come together. Never past what a refresh is about to be scored at.
void ScoreCore::ingest(Session& session) {
  if (!session.history_open || session.ingesting) {
    return;
  }
  std::int32_t target = session.size();
  bool urgent = false;
  if (session.refresh && session.refresh->stage == Refresh::Stage::kIngesting) {
    const std::int32_t n = session.refresh->tokens;
    if (n <= session.ingested && !session.scorable(n)) {
      // The window's queries are gone, or later ones are in the sums: compute them again.
      session.ingested = session.restart(n);
    }
    target = n;
    urgent = true;
  } else if (!policy::refreshes(session.open.policy)) {
    return;  // nothing will be scored again
  } else if (session.queued) {
    target = std::max(session.queued->tokens, session.ingested);
  }
  target = std::min(target, session.size());
  const std::int32_t pending = target - session.ingested;
  if (pending <= 0 || (!urgent && pending < options_.ingest_min)) {
    return;
  }
  const std::int32_t end = session.ingested + std::min(pending, options_.chunk);
  session.ingesting = true;
  session.job_limit = end;
  actions_.emplace_back(
      Ingest{session.ref,
             session.ingested,
             {session.tokens.begin() + session.ingested, session.tokens.begin() + end}});
}

// ---- the refresh ----

/// Does whatever can be done now.
void ScoreCore::advance(Session& session) {
  if (!session.history_open) {
    return;
  }
  if (!session.refresh && session.queued) {
    start_refresh(session);
  }
  if (session.refresh && session.refresh->stage == Refresh::Stage::kIngesting &&
      !session.ingesting && session.scorable(session.refresh->tokens)) {
    score(session);
  }
  ingest(session);
}

void ScoreCore::start_refresh(Session& session) {
  Refresh& refresh = session.refresh.emplace();
  refresh.epoch = session.queued->epoch;
  refresh.tokens = session.queued->tokens;
  refresh.stage_began = session.queued_at;
  session.queued.reset();
}

void ScoreCore::score(Session& session) {
  Refresh& refresh = *session.refresh;
  refresh.ingest_ns += nanoseconds(refresh.stage_began, now_);
  refresh.stage_began = now_;
  refresh.stage = Refresh::Stage::kScoring;
  refresh.outdated = false;
  refresh.replaced_from = std::numeric_limits<Position>::max();
  const std::int32_t recent = std::min(session.plan.recent, refresh.tokens);
  if (!session.hands_sums_over() &&
      (session.plan.slots_per_head == 0 || recent == refresh.tokens)) {
    // Nothing to choose from; what an earlier, longer history left in the table goes.
    const auto heads = static_cast<std::size_t>(options_.geometry.layers) *
                       static_cast<std::size_t>(options_.geometry.kv_heads);
    Selected nothing;
    nothing.session = session.ref;
    nothing.heads.resize(heads);
    return on(nothing);
  }
  actions_.emplace_back(Select{session.ref,
                               refresh.tokens,
                               recent,
                               session.window(refresh.tokens),
                               session.open.layout.block,
                               session.plan.slots_per_head,
                               session.open.layout.layer_slots,
                               policy::selector(session.open.policy),
                               session.open.policy.allocation,
                               session.open.policy.pooling,
                               session.open.policy.pool_width,
                               session.hands_sums_over()});
}

void ScoreCore::on(Selected& event) {
  Session* session = find(event.session);
  if (session == nullptr) {
    return;
  }
  if (event.error) {
    return refuse(*session, *event.error);
  }
  Refresh& refresh = *session->refresh;
  if (refresh.outdated) {
    refresh.stage = Refresh::Stage::kIngesting;
    return advance(*session);
  }
  refresh.select_ns = event.select_ns;
  // Waiting for the compute thread counts as scoring.
  const std::uint64_t both = nanoseconds(refresh.stage_began, now_);
  refresh.score_ns = std::max(event.score_ns, both - std::min(both, event.select_ns));
  refresh.plan = plan_refresh(
      session->open.layout, session->mirror, event.heads, refresh.tokens - session->plan.recent);
  if (session->hands_sums_over()) {
    refresh.selection = std::move(event.heads);
  }
  start_wave(*session);
}

void ScoreCore::start_wave(Session& session) {
  Refresh& refresh = *session.refresh;
  refresh.stage = Refresh::Stage::kWriting;
  refresh.stage_began = now_;
  refresh.pack_ns = 0;
  refresh.bytes = 0;
  refresh.updates = next_wave(refresh.plan, session.mirror.free_slots());
  RIFT_CHECK(!refresh.updates.empty() || refresh.plan.empty(), "no free slot between waves");
  session.mirror.reserve(refresh.updates);
  RingRange ring;
  if (refresh.epoch == Epoch{0}) {
    ring = {std::max(0, refresh.tokens - session.plan.recent),
            refresh.tokens,
            std::min(session.open.layout.sinks, refresh.tokens)};
  }
  std::vector<Batch> batches = plan_transfer(session.open.layout,
                                             session.open.arena_offset,
                                             refresh.updates,
                                             refresh.wave == 0 ? ring : RingRange{},
                                             options_.send_chunk_bytes);
  refresh.batches_left = static_cast<std::uint32_t>(batches.size());
  for (Batch& batch : batches) {
    refresh.bytes += batch.bytes;
    buffer_.enqueue(
        {session.ref, session.peer, session.open.arena_region, std::move(batch), false, false});
  }
  if (batches.empty()) {
    finish_wave(session);
  }
}

/// All writes of the wave have landed.
void ScoreCore::finish_wave(Session& session) {
  Refresh& refresh = *session.refresh;
  const std::uint64_t elapsed = nanoseconds(refresh.stage_began, now_);
  transport::RefreshReady ready;
  ready.session = session.open.session;
  ready.epoch = refresh.epoch;
  ready.wave = refresh.wave;
  ready.last_wave = refresh.plan.empty();
  ready.covered_tokens = refresh.tokens;
  ready.ring_begin =
      refresh.epoch == Epoch{0} ? std::max(0, refresh.tokens - session.plan.recent) : 0;
  ready.updates = refresh.updates;
  ready.sums = handed_sums(refresh, options_.geometry.kv_heads);
  ready.bytes = refresh.bytes;
  ready.ingest_ns = std::exchange(refresh.ingest_ns, 0);
  ready.score_ns = std::exchange(refresh.score_ns, 0);
  ready.select_ns = std::exchange(refresh.select_ns, 0);
  ready.pack_ns = refresh.pack_ns;
  ready.write_ns = elapsed - std::min(elapsed, refresh.pack_ns);
  ready.history_bytes = session.history_bytes;
  actions_.emplace_back(Send{session.peer, std::move(ready)});
  if (refresh.updates.empty()) {
    session.refresh.reset();  // the table stays: nothing to wait for
    return advance(session);
  }
  refresh.stage = Refresh::Stage::kInstalling;
}

// ---- the send buffer ----

void ScoreCore::pump_buffer() {
  while (const std::optional<std::uint32_t> chunk = buffer_.start_next()) {
    const SendBuffer::Load& load = *buffer_.load(*chunk);
    actions_.emplace_back(Pack{load.session, *chunk, load.batch.copies});
  }
}

void ScoreCore::on(Packed& event) {
  SendBuffer::Load* load = buffer_.load(event.chunk);
  RIFT_CHECK(load != nullptr && !load->writing, "chunk {} was not being packed", event.chunk);
  Session* session = find(load->session);
  if (session == nullptr || event.error) {
    buffer_.release(event.chunk);
    if (session != nullptr) {
      refuse(*session, *event.error);
    }
    return;
  }
  session->refresh->pack_ns += event.pack_ns;
  load->writing = true;
  actions_.emplace_back(Put{load->peer, event.chunk, load->region, std::move(load->batch.ops)});
}

void ScoreCore::on(PutDone& event) {
  SendBuffer::Load* load = buffer_.load(event.chunk);
  RIFT_CHECK(load != nullptr && load->writing, "chunk {} was not being written", event.chunk);
  const SessionRef ref = load->session;
  buffer_.release(event.chunk);
  Session* session = find(ref);
  if (session == nullptr) {
    const auto farewell = farewells_.find(ref);
    if (farewell != farewells_.end() && --farewell->second.writes == 0) {
      actions_.emplace_back(Send{farewell->second.peer, std::move(farewell->second.message)});
      farewells_.erase(farewell);
    }
    return;
  }
  if (event.error) {
    return refuse(*session, *event.error);
  }
  if (--session->refresh->batches_left == 0) {
    finish_wave(*session);
  }
}

// ---- ends ----

void ScoreCore::refuse(Session& session, const Error& error) {
  const SessionRef ref = session.ref;
  Farewell farewell;
  farewell.peer = session.peer;
  farewell.message = {session.open.session, error.code(), error.message()};
  farewell.writes = drop(session);
  if (farewell.writes == 0) {
    actions_.emplace_back(Send{farewell.peer, std::move(farewell.message)});
  } else {
    farewells_.emplace(ref, std::move(farewell));
  }
}

std::uint32_t ScoreCore::drop(Session& session) {
  const std::uint32_t writes = buffer_.drop(session.ref);
  session.tokens.resize(static_cast<std::size_t>(session.ingested));
  actions_.emplace_back(ReleaseHistory{session.ref, std::move(session.tokens)});
  names_.erase({session.peer, session.open.session});
  sessions_.erase(session.ref);
  return writes;
}

}  // namespace rift::score_node
