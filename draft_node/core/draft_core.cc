// SPDX-License-Identifier: Apache-2.0
#include "draft_node/core/draft_core.h"

#include "model/sampling.h"
#include "policy/budget.h"

#include <algorithm>
#include <utility>

namespace rift::draft_node {

using transport::CloseSession;
using transport::OpenSession;
using transport::SessionClosed;
using transport::SessionRefused;
using transport::Verdict;

namespace {

constexpr std::int32_t kMaxTopN = 4096;

std::uint64_t raw(SessionId id) { return static_cast<std::uint64_t>(id); }

}  // namespace

DraftCore::DraftCore(const CoreOptions& options) : options_(options), arena_(options.arena) {}

std::vector<Action> DraftCore::handle(const Event& event, TimePoint now) {
  now_ = now;
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(out_, {});
}

void DraftCore::note(bool warning, std::string text) {
  out_.emplace_back(Note{warning, std::move(text)});
}

// ---- target ----

void DraftCore::on(const TargetMessage& event) {
  if (const auto* open = std::get_if<OpenSession>(&event.message)) {
    open_session(event.target, *open);
    return;
  }
  const auto session_of = [&](SessionId id) -> Session* {
    const auto found = sessions_.find(id);
    return found != sessions_.end() && found->second.target == event.target ? &found->second
                                                                            : nullptr;
  };
  if (const auto* verdict = std::get_if<Verdict>(&event.message)) {
    if (Session* session = session_of(verdict->session)) {
      on_verdict(*session, *verdict);
    } else {
      note(false, fmt::format("verdict for session {}, which is not open", raw(verdict->session)));
    }
    return;
  }
  if (const auto* close = std::get_if<CloseSession>(&event.message)) {
    if (Session* session = session_of(close->session)) {
      close_session(*session);
    }
    return;
  }
  note(true, "a target sent a message that only other nodes send: ignored");
}

void DraftCore::on(const TargetLost& event) {
  std::vector<SessionId> gone;
  for (const auto& [id, session] : sessions_) {
    if (session.target == event.target) {
      gone.push_back(id);
    }
  }
  for (const SessionId id : gone) {
    note(false, fmt::format("session {}: closed, its target is lost", raw(id)));
    remove(id);
  }
}

Status DraftCore::check_open(const OpenSession& message) const {
  if (sessions_.contains(message.session)) {
    return fail(Errc::kInvalidArgument, "session {} is already open", raw(message.session));
  }
  if (sessions_.size() >= options_.max_sessions) {
    return fail(
        Errc::kResourceExhausted, "{} sessions are open, the limit of this node", sessions_.size());
  }
  if (message.max_context < 1 || message.max_context > options_.max_context ||
      message.tokens.empty() ||
      message.tokens.size() > static_cast<std::size_t>(message.max_context)) {
    return fail(Errc::kOutOfRange,
                "{} tokens in a context of {}: this node takes 1 to {} tokens of context and a "
                "prompt within it",
                message.tokens.size(),
                message.max_context,
                options_.max_context);
  }
  if (message.max_draft_len < 0 || message.max_draft_len > options_.max_draft_len) {
    return fail(Errc::kOutOfRange,
                "draft length {}: this node takes 0 to {}",
                message.max_draft_len,
                options_.max_draft_len);
  }
  if (message.top_n < 1 || message.top_n > kMaxTopN) {
    return fail(Errc::kOutOfRange, "top_n is {}: this node takes 1 to {}", message.top_n, kMaxTopN);
  }
  for (const TokenId token : message.tokens) {
    if (token < 0 || token >= options_.vocab) {
      return fail(Errc::kOutOfRange,
                  "token {} is outside the draft model's vocabulary of {}",
                  token,
                  options_.vocab);
    }
  }
  return {};
}

void DraftCore::open_session(TargetId target, const OpenSession& message) {
  const auto refuse_open = [&](const Error& error) {
    out_.emplace_back(
        SendTarget{target, SessionRefused{message.session, error.code(), error.message()}});
  };
  if (const Status status = check_open(message); !status) {
    refuse_open(status.error());
    return;
  }
  Session session;
  try {
    session.plan = policy::plan_budget(message.policy, message.max_context);
    session.layout = policy::plan_layout(
        message.policy, options_.geometry, message.max_context, message.max_draft_len);
    [[maybe_unused]] const model::SamplerChain checked(message.sampling);
  } catch (const Error& error) {  // the root of the session: its settings came from a peer
    refuse_open(error);
    return;
  }
  session.id = message.session;
  session.target = target;
  session.open = message;
  session.tokens.reserve(static_cast<std::size_t>(message.max_context));
  session.tokens.assign(message.tokens.begin(), message.tokens.end());
  session.open.tokens = {};
  session.last_request = session.committed();
  if (message.policy.policy == Policy::kRiftAda) {
    session.ada.emplace(message.policy.ada, session.committed());
  }
  Result<Placement> placement = place(session);
  if (!placement) {
    refuse_open(placement.error());
    return;
  }
  Session& stored = sessions_.emplace(message.session, std::move(session)).first->second;
  if (score_up_) {
    stored.incoming = std::move(placement).value();
    open_on_score(stored);
  } else {
    stored.active = std::move(placement).value();
    start_prefill(stored);
  }
}

Status DraftCore::check_verdict(const Session& session, const Verdict& verdict) const {
  const std::int32_t answerable = session.proposed_round + 1 == verdict.round
                                      ? static_cast<std::int32_t>(session.proposal.size())
                                      : 0;
  if (verdict.accepted < 0 || verdict.accepted > answerable) {
    return fail(Errc::kInvalidArgument,
                "verdict {} accepts {} tokens of {} proposed",
                verdict.round,
                verdict.accepted,
                answerable);
  }
  if (verdict.committed != session.committed() + verdict.accepted + 1) {
    return fail(Errc::kMismatch,
                "verdict {} says {} tokens are committed, this node counts {} + {} + 1; open the "
                "session again with all tokens",
                verdict.round,
                verdict.committed,
                session.committed(),
                verdict.accepted);
  }
  if (verdict.committed > session.open.max_context) {
    return fail(Errc::kOutOfRange,
                "{} tokens in a context of {}",
                verdict.committed,
                session.open.max_context);
  }
  if (verdict.next < 0 || verdict.next >= options_.vocab) {
    return fail(Errc::kOutOfRange,
                "token {} is outside the draft model's vocabulary of {}",
                verdict.next,
                options_.vocab);
  }
  if (verdict.draft_len < 0 || verdict.draft_len > session.open.max_draft_len) {
    return fail(Errc::kOutOfRange,
                "draft length {}: the session was opened for at most {}",
                verdict.draft_len,
                session.open.max_draft_len);
  }
  return {};
}

void DraftCore::on_verdict(Session& session, const Verdict& verdict) {
  if (const Status status = check_verdict(session, verdict); !status) {
    refuse(session, status.error());
    return;
  }
  // The first `accepted` drafts stay in the ring, the others are forgotten.
  if (session.active && session.work == Work::kNone) {
    session.active->cached =
        std::min(session.active->cached, session.committed() + verdict.accepted);
  }
  observe(session, verdict.accepted);
  session.work_stale = session.work == Work::kDraft;
  session.tokens.insert(
      session.tokens.end(), session.proposal.begin(), session.proposal.begin() + verdict.accepted);
  session.tokens.push_back(verdict.next);
  session.verdict_seen = true;
  session.proposal.clear();
  session.order.reset();
  if (verdict.draft_len > 0) {
    session.order = DraftOrder{verdict.round, verdict.draft_len};
  }
  // A new table first: a refresh that is complete makes room for the next request.
  if (session.work == Work::kNone && !install_ready(session)) {
    return;
  }
  forward_tokens(session);
  advance(session);
}

void DraftCore::close_session(Session& session) {
  SessionClosed closed;
  closed.session = session.id;
  closed.refreshes = std::move(session.refreshes);
  closed.draft_steps = session.draft_steps;
  closed.draft_step_ns = session.draft_step_ns;
  closed.arena = arena_use(session);
  closed.score_history_bytes = session.score_history_bytes;
  closed.score_lost = session.score_lost;
  out_.emplace_back(SendTarget{session.target, std::move(closed)});
  remove(session.id);
}

void DraftCore::refuse(Session& session, const Error& error) {
  note(true, fmt::format("session {}: closed: {}", raw(session.id), error.message()));
  out_.emplace_back(
      SendTarget{session.target, SessionRefused{session.id, error.code(), error.message()}});
  remove(session.id);
}

void DraftCore::remove(SessionId id) {
  Session& session = sessions_.at(id);
  release_from_score(session, false);
  if (session.incoming) {
    drop(*session.incoming);
  }
  if (session.active) {
    drop(*session.active);
  }
  sessions_.erase(id);
}

}  // namespace rift::draft_node
