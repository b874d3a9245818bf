// SPDX-License-Identifier: Apache-2.0
// The draft core's side of the engine: jobs, what they gave, and the ranges of the arena they use.
#include "common/check.h"
#include "draft_node/core/draft_core.h"

#include <algorithm>
#include <utility>

namespace rift::draft_node {

using transport::Proposal;
using transport::SessionReady;

void DraftCore::on(const PrefillDone& event) {
  Session* session = find_by_working_set(event.id);
  if (session == nullptr) {
    return;
  }
  session->work = Work::kNone;
  if (event.error) {
    refuse(*session, *event.error);
    return;
  }
  session->active->complete = true;
  session->active->cached = session->work_committed;
  advance(*session);
}

void DraftCore::on(const DraftDone& event) {
  Session* session = find_by_working_set(event.id);
  if (session == nullptr) {
    return;
  }
  session->work = Work::kNone;
  session->draft_steps += event.steps;
  session->draft_step_ns += event.step_ns;
  if (event.error) {
    refuse(*session, *event.error);
    return;
  }
  const DraftOrder order = *std::exchange(session->drafting, std::nullopt);
  if (std::exchange(session->work_stale, false)) {
    // The target went on without this proposal: its drafts are not in the sequence.
    session->active->cached = session->work_committed;
  } else {
    session->active->cached =
        session->work_committed + static_cast<std::int32_t>(event.tokens.size()) - 1;
    send_proposal(*session, order, event);
  }
  advance(*session);
}

void DraftCore::on(const WorkingSetDropped& event) {
  const auto range = ranges_.find(event.id);
  RIFT_CHECK(range != ranges_.end(),
             "working set {} was dropped twice",
             static_cast<std::uint64_t>(event.id));
  range->second.engine = false;
  release_if_unused(event.id);
}

void DraftCore::advance(Session& session) {
  if (session.work != Work::kNone) {
    return;
  }
  if (!install_ready(session)) {
    return;
  }
  adopt_incoming(session);
  if (!session.active || !session.active->complete) {
    return;
  }
  if (!session.ready_sent) {
    send_ready(session);
  }
  if (!session.order) {
    return;
  }
  if (swap_due(session)) {
    if (!session.flight->waiting_since) {
      session.flight->waiting_since = now_;
    }
    return;
  }
  start_draft(session);
}

void DraftCore::start_draft(Session& session) {
  const DraftOrder order = *std::exchange(session.order, std::nullopt);
  DraftJob job;
  // Tokens past the context are never verified.
  job.draft_len = std::min(order.draft_len, session.open.max_context - session.committed());
  if (job.draft_len < 1) {
    send_proposal(session, order, {});
    return;
  }
  Placement& active = *session.active;
  job.id = active.id;
  job.ring = std::exchange(active.ring, std::nullopt);
  job.waves = std::exchange(active.waves, {});
  job.first = active.cached;
  job.tokens.assign(session.tokens.begin() + active.cached, session.tokens.end());
  job.end_stride = std::exchange(session.end_stride, false);
  job.refreshed = std::exchange(session.refreshed, false);
  RIFT_CHECK(!job.tokens.empty(),
             "session {} has nothing to feed",
             static_cast<std::uint64_t>(session.id));
  session.work = Work::kDraft;
  session.work_committed = session.committed();
  session.work_stale = false;
  session.drafting = order;
  out_.emplace_back(std::move(job));
}

void DraftCore::start_prefill(Session& session) {
  const std::int32_t count = std::min(session.plan.recent, session.history());
  PrefillJob job;
  job.id = session.active->id;
  job.start = session.history() - count;
  job.sinks.assign(session.tokens.begin(),
                   session.tokens.begin() + std::min(session.layout.sinks, job.start));
  job.tokens.assign(session.tokens.begin() + job.start, session.tokens.begin() + session.history());
  session.work = Work::kPrefill;
  session.work_committed = session.history();
  out_.emplace_back(std::move(job));
}

void DraftCore::send_ready(Session& session) {
  session.ready_sent = true;
  SessionReady ready;
  ready.session = session.id;
  ready.arena = arena_use(session);
  ready.score_history_bytes = session.score_history_bytes;
  ready.score_prefill_ns = session.score_prefill_ns;
  ready.score_attached = session.score == ScoreState::kAttached;
  ready.score_link = ready.score_attached ? score_link_ : "";
  out_.emplace_back(SendTarget{session.target, std::move(ready)});
}

void DraftCore::send_proposal(Session& session, const DraftOrder& order, const DraftDone& done) {
  session.proposed_round = order.round;
  session.proposal = done.tokens;
  session.entropy = done.entropy;
  session.drift = done.drift;
  Proposal proposal;
  proposal.session = session.id;
  proposal.round = order.round;
  proposal.tokens = done.tokens;
  proposal.q = done.q;
  proposal.draft_ns = done.draft_ns;
  proposal.refreshes = session.refresh_count;
  proposal.refresh_bytes = session.refresh_bytes;
  out_.emplace_back(SendTarget{session.target, std::move(proposal)});
}

// ---- arena ----

Result<Placement> DraftCore::place(Session& session) {
  const Result<std::uint64_t> offset = arena_.reserve(
      {session.open.policy, session.layout, session.open.max_context, session.open.max_draft_len});
  if (!offset) {
    return offset.error();
  }
  Placement placement(WorkingSetId{next_working_set_++}, session.layout);
  RangeUse use;
  use.offset = offset.value();
  use.session = session.id;
  ranges_.emplace(placement.id, use);
  OpenWorkingSet open;
  open.id = placement.id;
  open.layout = session.layout;
  open.offset = use.offset;
  open.recent = session.plan.recent;
  open.sampling = session.open.sampling;
  open.top_n = session.open.top_n;
  open.max_tokens = session.open.max_context + session.open.max_draft_len;
  open.history.assign(session.tokens.begin(), session.tokens.begin() + session.history());
  open.signals = session.ada.has_value();
  out_.emplace_back(std::move(open));
  return placement;
}

void DraftCore::drop(const Placement& placement) {
  out_.emplace_back(DropWorkingSet{placement.id});
}

void DraftCore::release_if_unused(WorkingSetId id) {
  const auto range = ranges_.find(id);
  if (range->second.engine || range->second.score) {
    return;
  }
  arena_.release(range->second.offset);
  ranges_.erase(range);
}

Session* DraftCore::find_by_working_set(WorkingSetId id) {
  const auto range = ranges_.find(id);
  if (range == ranges_.end()) {
    return nullptr;
  }
  const auto session = sessions_.find(range->second.session);
  if (session == sessions_.end() || !session->second.active || session->second.active->id != id) {
    return nullptr;
  }
  return &session->second;
}

transport::ArenaUse DraftCore::arena_use(const Session& session) const {
  transport::ArenaUse use;
  use.capacity = arena_.budget().capacity;
  use.weights = arena_.budget().weights;
  use.scratch = arena_.budget().scratch;
  use.working_set = session.layout.working_set_bytes();
  use.staging = session.layout.staging_bytes();
  return use;
}

}  // namespace rift::draft_node
