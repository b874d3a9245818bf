// SPDX-License-Identifier: Apache-2.0
#include "target_node/core/target_core.h"

#include "transport/wire/codec.h"

#include <algorithm>
#include <utility>

namespace rift::target_node {

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

double Outcome::accepted_length() const {
  return progress.steps == 0
             ? 0.0
             : static_cast<double>(committed_by_steps) / static_cast<double>(progress.steps);
}

namespace {

bool stops(const Request& request, TokenId token) {
  return !request.ignore_stop &&
         std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
             request.stop_tokens.end();
}

transport::OpenSession open_message(SessionId id, const Request& request) {
  transport::OpenSession open;
  open.session = id;
  open.tokens = request.prompt;
  open.max_context = static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens;
  open.max_draft_len = request.draft_len;
  open.sampling = request.sampling;
  open.top_n = request.top_n;
  open.policy = request.policy;
  return open;
}

FinishReason stop_reason(const Request& request, const Outcome& outcome) {
  if (!outcome.tokens.empty() && stops(request, outcome.tokens.back())) {
    return FinishReason::kStop;
  }
  return std::ssize(outcome.tokens) >= request.max_tokens ? FinishReason::kLength
                                                          : FinishReason::kCancelled;
}

}  // namespace

std::vector<Action> TargetCore::handle(const Event& event, TimePoint now) {
  now_ = now;
  actions_.clear();
  std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(actions_, {});
}

TargetCore::Session* TargetCore::find(SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

Status TargetCore::check(const Request& request) const {
  const auto prompt = static_cast<std::int64_t>(request.prompt.size());
  if (prompt == 0) {
    return fail(Errc::kInvalidArgument, "the prompt is empty: it needs at least one token");
  }
  if (request.max_tokens < 1) {
    return fail(
        Errc::kInvalidArgument, "{} tokens asked for: at least 1 is needed", request.max_tokens);
  }
  if (prompt + request.max_tokens > options_.max_context) {
    return fail(Errc::kResourceExhausted,
                "a prompt of {} tokens and {} new ones do not fit the context of {} (--ctx); "
                "shorten the prompt, ask for fewer tokens (-n) or raise --ctx to {}",
                prompt,
                request.max_tokens,
                options_.max_context,
                prompt + request.max_tokens);
  }
  if (request.draft_len < 1 || request.draft_len > options_.max_draft_len) {
    return fail(Errc::kInvalidArgument,
                "draft length {}: must be 1 .. {}",
                request.draft_len,
                options_.max_draft_len);
  }
  for (const TokenId token : request.prompt) {
    if (token < 0 || token >= options_.vocab) {
      return fail(Errc::kInvalidArgument,
                  "prompt token {}: the vocabulary has ids 0 .. {}",
                  token,
                  options_.vocab - 1);
    }
  }
  // The draft node would take a value outside its range for damage, and give up the link with every
  // session on it.
  const auto sendable = transport::decode(transport::encode(open_message(SessionId{}, request)));
  return sendable.ok() ? Status{}
                       : fail(Errc::kInvalidArgument,
                              "the request cannot be sent to a draft node: {}",
                              sendable.error().message());
}

void TargetCore::on(const Submit& event) {
  if (const Status status = check(event.request); !status) {
    actions_.emplace_back(Fail{event.session, status.error()});
    return;
  }
  if (find(event.session) != nullptr) {
    actions_.emplace_back(Fail{event.session,
                               fail(Errc::kInvalidArgument,
                                    "session {} is open already",
                                    static_cast<std::uint64_t>(event.session))});
    return;
  }
  Session& s = sessions_[event.session];
  s.id = event.session;
  s.request = event.request;
  s.submitted = now_;
  s.outcome.accepted_per_position.assign(static_cast<std::size_t>(s.request.draft_len), 0);
  s.outcome.drafted_per_position.assign(static_cast<std::size_t>(s.request.draft_len), 0);
  if (s.request.auto_draft_len) {
    s.length.emplace(s.request.draft_len,
                     options_.verify_costs.at(static_cast<std::int32_t>(s.request.prompt.size())));
  }
  if (s.request.use_draft) {
    if (draft_up_) {
      s.draft = DraftState::kOpening;
      s.deadline = now_ + options_.open_timeout +
                   options_.open_timeout_per_token * std::ssize(s.request.prompt);
      actions_.emplace_back(SendDraft{open_message(s.id, s.request)});
    } else {
      s.outcome.draft_error = "no draft node is connected";
    }
  }
  actions_.emplace_back(Prefill{s.id, s.request.prompt, s.request.sampling});
}

void TargetCore::on(const Cancel& event) {
  if (Session* s = find(event.session); s != nullptr) {
    s->cancelled = true;
    // A running pass ends first: its completion must find the session.
    if (s->phase == Phase::kWaitDraft || s->phase == Phase::kWaitProposal) {
      complete(*s, FinishReason::kCancelled);
    }
  }
}

void TargetCore::on(const DraftUp& /*event*/) { draft_up_ = true; }

void TargetCore::on(const DraftLost& event) {
  draft_up_ = false;
  std::vector<SessionId> ids;
  for (const auto& [id, s] : sessions_) {
    if (s.draft != DraftState::kNone) {
      ids.push_back(id);
    }
  }
  for (const SessionId id : ids) {
    Session& s = *find(id);
    if (s.phase == Phase::kClosing) {
      finish(s);
      continue;
    }
    ++s.outcome.draft_lost;
    drop_draft(s, "the draft node was lost: " + event.reason);
  }
}

// The session goes on alone; what the draft said so far is kept in the outcome.
void TargetCore::drop_draft(Session& s, const std::string& reason) {
  s.draft = DraftState::kNone;
  s.deadline.reset();
  s.outcome.progress.drafting = false;
  s.outcome.draft_error = reason;
  if (s.phase == Phase::kWaitDraft || s.phase == Phase::kWaitProposal) {
    verify(s, nullptr);
  }
}

void TargetCore::on(const FromDraft& event) {
  std::visit(
      [this](const auto& message) {
        if constexpr (requires { on_message(message); }) {
          on_message(message);
        }
        // Every other kind is not for a target; a peer that sends one changes nothing.
      },
      event.message);
}

void TargetCore::on_message(const transport::SessionReady& message) {
  Session* s = find(message.session);
  if (s == nullptr || s->draft != DraftState::kOpening) {
    return;
  }
  s->draft = DraftState::kReady;
  s->deadline.reset();
  s->outcome.progress.drafting = true;
  s->outcome.draft_ready = message;
  if (s->phase == Phase::kWaitDraft) {
    s->outcome.draft_wait_seconds += seconds_between(s->phase_start, now_);
    start_round(*s);
  }
}

void TargetCore::on_message(const transport::SessionRefused& message) {
  Session* s = find(message.session);
  if (s != nullptr && s->draft != DraftState::kNone && s->phase != Phase::kClosing) {
    drop_draft(*s, "the draft node refused the session: " + message.message);
  }
}

void TargetCore::on_message(const transport::Proposal& message) {
  Session* s = find(message.session);
  if (s == nullptr || s->phase != Phase::kWaitProposal || message.round != s->round) {
    return;
  }
  const double seconds = seconds_between(s->phase_start, now_);
  s->outcome.draft_wait_seconds += seconds;
  if (s->length && !message.tokens.empty()) {
    s->length->drafted(static_cast<std::int32_t>(message.tokens.size()),
                       std::chrono::duration<double>(Nanoseconds(message.draft_ns)).count(),
                       seconds);
  }
  s->outcome.progress.refreshes = message.refreshes;
  s->outcome.progress.refresh_bytes = message.refresh_bytes;
  ++s->round;
  verify(*s, &message);
}

void TargetCore::on_message(const transport::SessionClosed& message) {
  Session* s = find(message.session);
  if (s == nullptr) {
    return;
  }
  if (s->phase == Phase::kClosing) {
    s->outcome.draft_closed = message;
    finish(*s);
  } else if (s->draft != DraftState::kNone) {
    drop_draft(*s, "the draft node closed the session");
  }
}

void TargetCore::on(const PrefillDone& event) {
  Session* s = find(event.session);
  if (s == nullptr) {
    return;
  }
  s->outcome.prompt_tokens_reused = event.reused;
  s->outcome.prefill_seconds = seconds_between(s->submitted, now_);
  s->first_token = now_;
  const TokenId first = event.first;
  const bool complete_now = commit(*s, {&first, 1});
  actions_.emplace_back(EmitTokens{s->id, s->outcome.tokens, s->outcome.progress});
  if (complete_now) {
    complete(*s, stop_reason(s->request, s->outcome));
  } else {
    start_round(*s);
  }
}

void TargetCore::start_round(Session& s) {
  s.phase_start = now_;
  const auto produced = static_cast<std::int32_t>(s.outcome.tokens.size());
  // A pass commits at most its drafts and one more: longer drafts could not be used.
  const std::int32_t useful = std::min(s.request.draft_len, s.request.max_tokens - produced - 1);
  if (s.draft == DraftState::kOpening && useful > 0) {
    s.phase = Phase::kWaitDraft;
    return;
  }
  if (s.draft != DraftState::kReady || useful <= 0) {
    verify(s, nullptr);
    return;
  }
  send_verdict(s, s.length ? std::min(useful, s.length->next()) : useful);
  if (s.draft_len == 0) {
    ++s.round;  // no proposal will answer it
    verify(s, nullptr);
    return;
  }
  s.phase = Phase::kWaitProposal;
  s.deadline = now_ + options_.round_timeout;
}

void TargetCore::send_verdict(Session& s, std::int32_t draft_len) {
  s.draft_len = draft_len;
  transport::Verdict verdict;
  verdict.session = s.id;
  verdict.round = s.round;
  verdict.accepted = s.accepted;
  verdict.next = s.last;
  verdict.committed = static_cast<std::int32_t>(s.request.prompt.size() + s.outcome.tokens.size());
  verdict.draft_len = draft_len;
  actions_.emplace_back(SendDraft{verdict});
}

void TargetCore::verify(Session& s, const transport::Proposal* proposal) {
  s.phase = Phase::kVerify;
  s.phase_start = now_;
  if (s.draft == DraftState::kReady) {
    s.deadline.reset();
  }
  Verify job;
  job.session = s.id;
  job.committed = static_cast<std::int32_t>(s.request.prompt.size() + s.outcome.tokens.size());
  if (proposal != nullptr) {
    const bool sampled = s.request.sampling.temperature > 0.0F;
    auto count = std::min(proposal->tokens.size(), static_cast<std::size_t>(s.draft_len));
    if (sampled) {
      count = std::min(count, proposal->q.size());
    }
    const auto valid =
        std::find_if(proposal->tokens.begin(),
                     proposal->tokens.begin() + static_cast<std::ptrdiff_t>(count),
                     [this](TokenId token) { return token < 0 || token >= options_.vocab; });
    job.drafted.assign(proposal->tokens.begin(), valid);
    if (sampled) {
      job.q.assign(proposal->q.begin(),
                   proposal->q.begin() + static_cast<std::ptrdiff_t>(job.drafted.size()));
    }
  }
  s.drafted = job.drafted;
  actions_.emplace_back(std::move(job));
}

void TargetCore::on(const VerifyDone& event) {
  Session* s = find(event.session);
  if (s == nullptr || s->phase != Phase::kVerify) {
    return;
  }
  const auto accepted = static_cast<std::size_t>(event.accepted);
  RIFT_CHECK(event.accepted >= 0 && accepted <= s->drafted.size(),
             "{} accepted of {} drafted tokens",
             event.accepted,
             s->drafted.size());
  Outcome& out = s->outcome;
  const double seconds = seconds_between(s->phase_start, now_);
  out.verify_seconds += seconds;
  if (s->length) {
    s->length->verified(static_cast<std::int32_t>(s->drafted.size()), event.accepted, seconds);
  }
  ++out.progress.steps;
  out.progress.drafted_tokens += s->drafted.size();
  for (std::size_t i = 0; i < s->drafted.size(); ++i) {
    ++out.drafted_per_position[i];
  }
  s->accepted = event.accepted;
  const std::size_t before = out.tokens.size();
  std::vector<TokenId> tokens(s->drafted.begin(), s->drafted.begin() + event.accepted);
  tokens.push_back(event.next);
  const bool complete_now = commit(*s, tokens);
  const std::size_t committed = out.tokens.size() - before;
  const std::size_t kept_drafts = std::min(committed, accepted);
  out.committed_by_steps += committed;
  out.progress.accepted_tokens += kept_drafts;
  for (std::size_t i = 0; i < kept_drafts; ++i) {
    ++out.accepted_per_position[i];
  }
  actions_.emplace_back(
      EmitTokens{s->id,
                 {out.tokens.begin() + static_cast<std::ptrdiff_t>(before), out.tokens.end()},
                 out.progress});
  if (complete_now) {
    complete(*s, stop_reason(s->request, out));
  } else {
    start_round(*s);
  }
}

bool TargetCore::commit(Session& s, std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    s.outcome.tokens.push_back(token);
    s.last = token;
    if (stops(s.request, token) || std::ssize(s.outcome.tokens) >= s.request.max_tokens) {
      return true;
    }
  }
  return s.cancelled;
}

void TargetCore::complete(Session& s, FinishReason reason) {
  s.outcome.finish = reason;
  s.outcome.decode_seconds = seconds_between(s.first_token, now_);
  if (s.draft == DraftState::kNone) {
    finish(s);
    return;
  }
  s.phase = Phase::kClosing;
  s.deadline = now_ + options_.close_timeout;
  actions_.emplace_back(SendDraft{transport::CloseSession{s.id}});
}

void TargetCore::finish(Session& s) {
  actions_.emplace_back(Finish{s.id, std::move(s.outcome)});
  sessions_.erase(s.id);
}

void TargetCore::on(const ComputeFailed& event) {
  Session* s = find(event.session);
  if (s == nullptr) {
    return;
  }
  if (s->draft != DraftState::kNone) {
    actions_.emplace_back(SendDraft{transport::CloseSession{s->id}});
  }
  actions_.emplace_back(Fail{s->id, event.error});
  sessions_.erase(s->id);
}

void TargetCore::on(const Tick& /*event*/) {
  std::vector<SessionId> late;
  for (const auto& [id, s] : sessions_) {
    if (s.deadline && now_ >= *s.deadline) {
      late.push_back(id);
    }
  }
  for (const SessionId id : late) {
    Session& s = *find(id);
    if (s.phase == Phase::kClosing) {
      finish(s);
      continue;
    }
    // The draft still holds the session: it must not keep its memory for nobody.
    actions_.emplace_back(SendDraft{transport::CloseSession{id}});
    ++s.outcome.draft_lost;
    drop_draft(s,
               s.draft == DraftState::kOpening ? "the draft node did not open the session in time"
                                               : "the draft node sent no proposal in time");
  }
}

}  // namespace rift::target_node
