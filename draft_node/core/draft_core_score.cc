// SPDX-License-Identifier: Apache-2.0
// The draft core's side of the score node: first working sets, refreshes, losses.
#include "common/check.h"
#include "draft_node/core/draft_core.h"
#include "policy/budget.h"

#include <algorithm>
#include <utility>

namespace rift::draft_node {

using transport::CloseSession;
using transport::Commit;
using transport::Installed;
using transport::RefreshReady;
using transport::RefreshRequest;
using transport::ScoreOpen;
using transport::SessionRefused;

namespace {

std::uint64_t raw(SessionId id) { return static_cast<std::uint64_t>(id); }
std::uint32_t raw(Epoch epoch) { return static_cast<std::uint32_t>(epoch); }

std::uint64_t nanoseconds(Clock::duration duration) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, std::chrono::duration_cast<Nanoseconds>(duration).count()));
}

}  // namespace

std::vector<SessionId> DraftCore::session_ids() const {
  std::vector<SessionId> ids;
  for (const auto& entry : sessions_) {
    ids.push_back(entry.first);
  }
  return ids;
}

void DraftCore::on(const ScoreUp& event) {
  score_up_ = true;
  score_link_ = event.link;
  for (auto& [id, session] : sessions_) {
    if (session.score != ScoreState::kDetached || !policy::selects(session.open.policy)) {
      continue;
    }
    Result<Placement> placement = place(session);
    if (!placement) {
      note(false,
           fmt::format("session {}: goes on without the score node: {}",
                       raw(id),
                       placement.error().message()));
      continue;
    }
    session.incoming = std::move(placement).value();
    open_on_score(session);
    forward_tokens(session);
  }
}

void DraftCore::on(const ScoreLost& event) {
  score_up_ = false;
  for (const SessionId id : session_ids()) {
    if (const auto session = sessions_.find(id); session != sessions_.end()) {
      detach(session->second, event.reason, true);
    }
  }
  std::vector<WorkingSetId> left;
  for (auto& [id, range] : ranges_) {
    range.score = false;
    range.leaving = false;
    left.push_back(id);
  }
  for (const WorkingSetId id : left) {
    release_if_unused(id);
  }
}

void DraftCore::on(const Tick& /*event*/) {
  for (const SessionId id : session_ids()) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
      continue;
    }
    Session& session = found->second;
    // What has arrived and waits for a round's end is not late.
    if (session.flight && session.ready.empty() && now_ >= session.flight->deadline) {
      detach(session,
             fmt::format("epoch {} did not arrive within its deadline",
                         raw(session.flight->record.epoch)),
             false);
    }
  }
}

void DraftCore::on(const ScoreMessage& event) {
  if (const auto* ready = std::get_if<RefreshReady>(&event.message)) {
    on_ready(*ready);
  } else if (const auto* refused = std::get_if<SessionRefused>(&event.message)) {
    on_score_refused(*refused);
  } else {
    note(true, "the score node sent a message that only other nodes send: ignored");
  }
}

void DraftCore::on_score_refused(const SessionRefused& message) {
  if (end_score_writes(message.session)) {
    return;
  }
  if (const auto session = sessions_.find(message.session); session != sessions_.end()) {
    detach(session->second,
           fmt::format("refused ({}): {}", to_string(message.code), message.message),
           true);
  }
}

void DraftCore::open_on_score(Session& session) {
  ranges_.at(session.incoming->id).score = true;
  session.score = ScoreState::kFilling;
  session.score_tokens = session.history();
  session.last_request = session.committed();
  RefreshFlight flight;
  flight.record.covered_tokens = session.history();
  flight.record.requested_at_ns = nanoseconds(now_.time_since_epoch());
  flight.requested = now_;
  flight.deadline =
      now_ + options_.open_deadline + options_.open_deadline_per_token * session.history();
  flight.committed = session.committed();
  session.flight = flight;
  session.next_epoch = Epoch{1};
  ScoreOpen open;
  open.session = session.id;
  open.tokens.assign(session.tokens.begin(), session.tokens.begin() + session.history());
  open.max_context = session.open.max_context;
  open.policy = session.open.policy;
  open.layout = session.layout;
  open.arena_region = options_.arena_region;
  open.arena_offset = ranges_.at(session.incoming->id).offset;
  out_.emplace_back(SendScore{std::move(open)});
}

void DraftCore::send_commit(Session& session, std::int32_t end) {
  if (end <= session.score_tokens) {
    return;
  }
  Commit commit;
  commit.session = session.id;
  commit.start = session.score_tokens;
  commit.tokens.assign(session.tokens.begin() + session.score_tokens, session.tokens.begin() + end);
  session.score_tokens = end;
  out_.emplace_back(SendScore{std::move(commit)});
}

void DraftCore::forward_tokens(Session& session) {
  // A session that is never refreshed has no use for a history that grows.
  if (session.score == ScoreState::kDetached || !policy::refreshes(session.open.policy)) {
    return;
  }
  if (refresh_due(session)) {
    request_refresh(session);
  }
  send_commit(session, session.committed());
}

void DraftCore::observe(Session& session, std::int32_t accepted) {
  if (!session.ada || session.entropy.empty()) {
    return;
  }
  // The step after the last accepted draft was at a position that is committed too: its own token
  // was rejected, not its distribution.
  const auto used = std::min(static_cast<std::size_t>(accepted) + 1, session.entropy.size());
  session.ada->on_step(accepted + 1,
                       std::span(session.entropy).first(used),
                       static_cast<double>(session.drift[used - 1]));
  session.entropy.clear();
  session.drift.clear();
}

bool DraftCore::refresh_due(Session& session) {
  const bool possible = session.score == ScoreState::kAttached && !session.flight &&
                        session.layout.slots_per_head > 0;
  if (!session.ada) {
    return possible && session.committed() - session.last_request >= session.open.policy.delta;
  }
  if (!session.ada->stride_over(session.committed())) {
    return false;
  }
  const policy::AdaDecision decision = session.ada->end_stride(session.committed(), possible);
  session.end_stride = true;
  session.refreshed = session.refreshed || decision.refresh;
  out_.emplace_back(StrideEnded{session.id, session.ada->signals(), decision, session.committed()});
  return decision.refresh;
}

void DraftCore::request_refresh(Session& session) {
  // The newest token is the next query, not part of what the draft has cached: the request goes out
  // while the score node's history ends before it.
  send_commit(session, session.history());
  RefreshFlight flight;
  flight.record.epoch = session.next_epoch;
  flight.record.covered_tokens = session.history();
  flight.record.requested_at_ns = nanoseconds(now_.time_since_epoch());
  flight.requested = now_;
  flight.deadline = now_ + options_.refresh_deadline;
  flight.committed = session.committed();
  session.flight = flight;
  session.next_epoch = Epoch{raw(session.next_epoch) + 1};
  session.last_request = session.committed();
  out_.emplace_back(SendScore{RefreshRequest{session.id, flight.record.epoch, session.history()}});
}

std::int32_t DraftCore::refresh_lag(const Session& session) const {
  const std::int32_t lag = session.open.policy.refresh_lag;
  return lag < 0 && options_.refresh_mode == RefreshMode::kPause ? 0 : lag;
}

bool DraftCore::swap_due(const Session& session) const {
  const std::int32_t lag = refresh_lag(session);
  return lag >= 0 && session.score == ScoreState::kAttached && session.flight &&
         session.committed() - session.flight->committed >= lag;
}

void DraftCore::on_ready(const RefreshReady& message) {
  const auto found = sessions_.find(message.session);
  if (found == sessions_.end() || found->second.score == ScoreState::kDetached) {
    if (message.last_wave) {
      end_score_writes(message.session);
    }
    return;
  }
  Session& session = found->second;
  if (!session.flight || session.flight->record.epoch != message.epoch) {
    note(true,
         fmt::format("session {}: epoch {} was not asked for: ignored",
                     raw(session.id),
                     raw(message.epoch)));
    return;
  }
  if (const Status status = check_ready(session, message); !status) {
    detach(session, status.error().message(), false);
    return;
  }
  ++session.flight->next_wave;
  session.ready.push_back({message, now_});
  advance(session);
}

Status DraftCore::check_ready(const Session& session, const RefreshReady& message) const {
  const RefreshFlight& flight = *session.flight;
  if (message.wave != flight.next_wave ||
      (!session.ready.empty() && session.ready.back().message.last_wave)) {
    return fail(Errc::kInvalidArgument,
                "epoch {}: wave {} came where {} was expected",
                raw(message.epoch),
                message.wave,
                flight.next_wave);
  }
  if (message.covered_tokens != flight.record.covered_tokens) {
    return fail(Errc::kInvalidArgument,
                "epoch {}: covers {} tokens, {} were asked for",
                raw(message.epoch),
                message.covered_tokens,
                flight.record.covered_tokens);
  }
  if (message.epoch == Epoch{0} &&
      (message.ring_begin < 0 || message.ring_begin > message.covered_tokens ||
       message.covered_tokens - message.ring_begin > session.layout.ring_capacity)) {
    return fail(Errc::kOutOfRange,
                "epoch 0: ring positions [{}, {}) in a ring of {}",
                message.ring_begin,
                message.covered_tokens,
                session.layout.ring_capacity);
  }
  return {};
}

bool DraftCore::install_ready(Session& session) {
  if (session.score == ScoreState::kAttached && refresh_lag(session) >= 0 && !swap_due(session)) {
    return true;
  }
  while (!session.ready.empty()) {
    const ReadyWave wave = std::move(session.ready.front());
    session.ready.pop_front();
    if (const Status status = install_wave(session, wave); !status) {
      detach(session, status.error().message(), wave.message.last_wave);
      return false;
    }
    if (wave.message.last_wave) {
      finish_refresh(session);
    }
  }
  return true;
}

Status DraftCore::install_wave(Session& session, const ReadyWave& wave) {
  const RefreshReady& message = wave.message;
  const bool filling = session.score == ScoreState::kFilling;
  Placement& placement = filling ? *session.incoming : *session.active;
  const std::int32_t limit = std::max(0, message.covered_tokens - session.plan.recent);
  if (Status status = placement.table.apply(message.updates, limit); !status) {
    return status;
  }
  placement.waves.push_back({message.updates, message.covered_tokens});
  if (filling) {
    placement.ring = {message.ring_begin, message.covered_tokens};
    session.score_prefill_ns += message.ingest_ns;
  }
  transport::RefreshRecord& record = session.flight->record;
  ++record.waves;
  record.blocks += static_cast<std::uint64_t>(
      std::count_if(message.updates.begin(), message.updates.end(), [](const auto& update) {
        return update.count > 0;
      }));
  record.bytes += message.bytes;
  record.ingest_ns += message.ingest_ns;
  record.score_ns += message.score_ns;
  record.select_ns += message.select_ns;
  record.pack_ns += message.pack_ns;
  record.write_ns += message.write_ns;
  record.install_ns += nanoseconds(now_ - wave.arrived);
  session.refresh_bytes += message.bytes;
  session.score_history_bytes = message.history_bytes;
  session.flight->deadline = now_ + options_.refresh_deadline;
  out_.emplace_back(SendScore{Installed{session.id, message.epoch, message.wave}});
  return {};
}

void DraftCore::finish_refresh(Session& session) {
  RefreshFlight flight = *std::exchange(session.flight, std::nullopt);
  flight.record.stale_tokens = session.committed() - flight.committed;
  flight.record.total_ns = nanoseconds(now_ - flight.requested);
  if (flight.waiting_since) {
    flight.record.stall_ns = nanoseconds(now_ - *flight.waiting_since);
  }
  if (session.score == ScoreState::kFilling) {
    session.score = ScoreState::kAttached;
    session.incoming->complete = true;
    session.incoming->cached = flight.record.covered_tokens;
  } else {
    ++session.refresh_count;
  }
  session.refreshes.push_back(flight.record);
  out_.emplace_back(RefreshSwapped{session.id, flight.record});
}

void DraftCore::adopt_incoming(Session& session) {
  if (!session.incoming || !session.incoming->complete) {
    return;
  }
  if (session.active) {
    drop(*session.active);
  }
  session.active = std::exchange(session.incoming, std::nullopt);
}

void DraftCore::detach(Session& session, const std::string& reason, bool writes_ended) {
  if (session.score == ScoreState::kDetached) {
    return;
  }
  ++session.score_lost;
  note(true,
       fmt::format("session {}: goes on without the score node: {}", raw(session.id), reason));
  release_from_score(session, writes_ended);
  session.flight.reset();
  session.ready.clear();
  if (!session.active) {
    prefill_instead(session, writes_ended);
    return;
  }
  if (session.incoming) {
    drop(*session.incoming);
    session.incoming.reset();
  }
  advance(session);
}

void DraftCore::prefill_instead(Session& session, bool writes_ended) {
  if (writes_ended) {
    session.active = std::exchange(session.incoming, std::nullopt);
    session.active->table = BlockTable(session.layout);
    session.active->waves.clear();
    session.active->ring.reset();
  } else {
    // The score node may still write to the range that it was given.
    drop(*session.incoming);
    session.incoming.reset();
    Result<Placement> placement = place(session);
    if (!placement) {
      refuse(session,
             fail(Errc::kTimeout,
                  "the score node gave no usable working set, and there is no room for another: {}",
                  placement.error().message()));
      return;
    }
    session.active = std::move(placement).value();
  }
  start_prefill(session);
}

void DraftCore::release_from_score(Session& session, bool writes_ended) {
  if (session.score == ScoreState::kDetached) {
    return;
  }
  const bool arrived = !session.ready.empty() && session.ready.back().message.last_wave;
  const bool quiet = writes_ended || !session.flight || arrived;
  for (const std::optional<Placement>* placement : {&session.active, &session.incoming}) {
    if (!placement->has_value()) {
      continue;
    }
    RangeUse& range = ranges_.at((*placement)->id);
    range.leaving = range.score && !quiet;
    range.score = range.leaving;
  }
  if (score_up_) {
    out_.emplace_back(SendScore{CloseSession{session.id}});
  }
  session.score = ScoreState::kDetached;
}

bool DraftCore::end_score_writes(SessionId id) {
  std::vector<WorkingSetId> ended;
  for (auto& [working_set, range] : ranges_) {
    if (range.session == id && range.leaving) {
      range.score = false;
      range.leaving = false;
      ended.push_back(working_set);
    }
  }
  for (const WorkingSetId working_set : ended) {
    release_if_unused(working_set);
  }
  return !ended.empty();
}

}  // namespace rift::draft_node
