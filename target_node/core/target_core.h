// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "target_node/core/draft_length.h"
#include "target_node/types.h"
#include "transport/messages.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace rift::target_node {

// ---- events ----

struct Submit {
  SessionId session{};
  Request request;
};
struct Cancel {
  SessionId session{};
};
struct DraftUp {};
struct DraftLost {
  std::string reason;
};
struct FromDraft {
  transport::Message message;
};
/// The prompt is in the cache; `first` is the target's first own token.
struct PrefillDone {
  SessionId session{};
  TokenId first = 0;
  std::int32_t reused = 0;
};
/// A verification pass is done: `accepted` drafted tokens hold, then comes `next`.
struct VerifyDone {
  SessionId session{};
  std::int32_t accepted = 0;
  TokenId next = 0;
};
/// The model could not do a job (context full, bad token): the session fails.
struct ComputeFailed {
  SessionId session{};
  Error error;
};
struct Tick {};

using Event = std::variant<Submit,
                           Cancel,
                           DraftUp,
                           DraftLost,
                           FromDraft,
                           PrefillDone,
                           VerifyDone,
                           ComputeFailed,
                           Tick>;

// ---- actions ----

struct SendDraft {
  transport::Message message;
};
struct Prefill {
  SessionId session{};
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};
/// Verify `drafted` after the committed history `history` (its last token is not cached yet).
struct Verify {
  SessionId session{};
  std::int32_t committed = 0;  // tokens of the history, prompt included
  std::vector<TokenId> drafted;
  std::vector<transport::SparseDistribution> q;
};
struct EmitTokens {
  SessionId session{};
  std::vector<TokenId> tokens;
  Progress progress;
};
struct Finish {
  SessionId session{};
  Outcome outcome;
};
struct Fail {
  SessionId session{};
  Error error;
};

using Action = std::variant<SendDraft, Prefill, Verify, EmitTokens, Finish, Fail>;

struct CoreOptions {
  std::int32_t max_context = 0;  // prompt and answer of one session
  std::int32_t vocab = 0;
  std::int32_t max_draft_len = 31;
  VerifyCosts verify_costs;
  /// OpenSession -> SessionReady: this, and more for every token of the prompt, which the score
  /// node prefills while the target does.
  std::chrono::milliseconds open_timeout{180'000};
  std::chrono::milliseconds open_timeout_per_token{60};
  std::chrono::milliseconds round_timeout{30'000};  // Verdict -> Proposal
  std::chrono::milliseconds close_timeout{2'000};   // CloseSession -> SessionClosed
};

/// The target's side of every session: events in, actions out; no I/O, no model, no clock of its
/// own. Tokens depend on the model's answers alone: whatever the draft sends, or fails to send,
/// only decides how many tokens a pass commits. Thread: one at a time. Source: ARCHITECTURE.md, 2
/// and 3.
class TargetCore {
 public:
  explicit TargetCore(const CoreOptions& options) : options_(options) {}

  [[nodiscard]] std::vector<Action> handle(const Event& event, TimePoint now);
  [[nodiscard]] std::size_t sessions() const { return sessions_.size(); }

 private:
  enum class DraftState : std::uint8_t { kNone, kOpening, kReady, kClosing };
  enum class Phase : std::uint8_t { kPrefill, kWaitDraft, kWaitProposal, kVerify, kClosing };
  struct Session {
    SessionId id{};
    Request request;
    Phase phase = Phase::kPrefill;
    DraftState draft = DraftState::kNone;
    std::uint32_t round = 0;            // of the next proposal
    std::int32_t draft_len = 0;         // asked for in the running round
    std::optional<DraftLength> length;  // of a request with auto_draft_len
    std::vector<TokenId> drafted;       // of the running pass
    std::int32_t accepted = 0;          // of the last pass
    TokenId last = 0;                   // newest committed token
    bool cancelled = false;
    TimePoint submitted;
    TimePoint first_token;
    TimePoint phase_start;
    std::optional<TimePoint> deadline;  // of the wait that `phase` is
    Outcome outcome;
  };

  void on(const Submit& event);
  void on(const Cancel& event);
  void on(const DraftUp& event);
  void on(const DraftLost& event);
  void on(const FromDraft& event);
  void on(const PrefillDone& event);
  void on(const VerifyDone& event);
  void on(const ComputeFailed& event);
  void on(const Tick& event);

  void on_message(const transport::SessionReady& message);
  void on_message(const transport::SessionRefused& message);
  void on_message(const transport::Proposal& message);
  void on_message(const transport::SessionClosed& message);

  [[nodiscard]] Status check(const Request& request) const;
  void start_round(Session& session);
  void send_verdict(Session& session, std::int32_t draft_len);
  void verify(Session& session, const transport::Proposal* proposal);
  /// Appends tokens up to a stop or the limit; returns whether the answer is complete.
  bool commit(Session& session, std::span<const TokenId> tokens);
  void drop_draft(Session& session, const std::string& reason);
  void complete(Session& session, FinishReason reason);
  void finish(Session& session);
  [[nodiscard]] Session* find(SessionId id);

  CoreOptions options_;
  std::map<SessionId, Session> sessions_;
  bool draft_up_ = false;
  TimePoint now_;
  std::vector<Action> actions_;
};

}  // namespace rift::target_node
