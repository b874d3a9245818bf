// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "draft_node/core/arena.h"
#include "draft_node/core/session.h"
#include "draft_node/core/types.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rift::draft_node {

enum class RefreshMode : std::uint8_t {
  kStage,  // drafting goes on with the old table until the new one is complete
  kPause,  // as a refresh_lag of 0: drafting waits for the swap, to measure what staging is worth
};

struct CoreOptions {
  KvGeometry geometry;
  ArenaBudget arena;
  std::uint32_t arena_region = 0;  // id of the registered region
  std::int32_t vocab = 0;
  std::int32_t max_context = 1 << 20;  // of any session
  std::int32_t max_draft_len = 256;    // of any session
  std::size_t max_sessions = 16;
  RefreshMode refresh_mode = RefreshMode::kStage;
  /// For the first working set: this, and more for every token that the score node prefills. Less
  /// than a target waits (its open_timeout).
  std::chrono::seconds open_deadline{120};
  std::chrono::milliseconds open_deadline_per_token{50};
  std::chrono::seconds refresh_deadline{60};
};

/// The draft node without its I/O: sessions, the arena's ranges, refreshes and their epochs.
/// Events in, actions out; the same events at the same times give the same actions. The service
/// carries the actions out in order. Thread: loop.
///
/// A session is drafted from one working set, whose range in the arena the score node may write to
/// only in slots that the active table does not name. When a score node has to fill a working set
/// anew while another is in use, it gets a range of its own and takes over between two rounds. A
/// range is given out again only after the engine has dropped it and no write can be under way.
class DraftCore {
 public:
  explicit DraftCore(const CoreOptions& options);

  [[nodiscard]] std::vector<Action> handle(const Event& event, TimePoint now);

  [[nodiscard]] const Arena& arena() const { return arena_; }
  [[nodiscard]] std::size_t session_count() const { return sessions_.size(); }

 private:
  /// Who may still touch a range of the arena.
  struct RangeUse {
    std::uint64_t offset = 0;
    SessionId session{};
    bool engine = true;
    bool score = false;    // the score node knows it
    bool leaving = false;  // told to leave it, but its writes may still be under way
  };

  // Events. draft_core.cc: the target's and the engine's; draft_core_score.cc: the score node's.
  void on(const TargetMessage& event);
  void on(const TargetLost& event);
  void on(const ScoreMessage& event);
  void on(const ScoreUp& event);
  void on(const ScoreLost& event);
  void on(const PrefillDone& event);
  void on(const DraftDone& event);
  void on(const WorkingSetDropped& event);
  void on(const Tick& event);

  void open_session(TargetId target, const transport::OpenSession& message);
  [[nodiscard]] Status check_open(const transport::OpenSession& message) const;
  void on_verdict(Session& session, const transport::Verdict& verdict);
  [[nodiscard]] Status check_verdict(const Session& session,
                                     const transport::Verdict& verdict) const;
  void close_session(Session& session);
  /// Answers that the session is not open any more, and forgets it.
  void refuse(Session& session, const Error& error);
  void remove(SessionId id);

  /// Takes the session as far as it goes without another event: swaps, readiness, the next draft.
  void advance(Session& session);
  void start_draft(Session& session);
  void start_prefill(Session& session);
  void send_ready(Session& session);
  void send_proposal(Session& session, const DraftOrder& order, const DraftDone& done);

  [[nodiscard]] Result<Placement> place(Session& session);
  void drop(const Placement& placement);
  void release_if_unused(WorkingSetId id);
  [[nodiscard]] Session* find_by_working_set(WorkingSetId id);

  void open_on_score(Session& session);
  void on_score_refused(const transport::SessionRefused& message);
  void on_ready(const transport::RefreshReady& message);
  [[nodiscard]] Status check_ready(const Session& session,
                                   const transport::RefreshReady& message) const;
  /// Installs the waves that have arrived; between two rounds only. False: one of them was bad, the
  /// score node is given up, and `session` may be gone.
  [[nodiscard]] bool install_ready(Session& session);
  [[nodiscard]] Status install_wave(Session& session, const ReadyWave& wave);
  void finish_refresh(Session& session);
  void adopt_incoming(Session& session);
  void forward_tokens(Session& session);
  void send_commit(Session& session, std::int32_t end);
  /// What the accepted part of the proposal says, before it is forgotten.
  static void observe(Session& session, std::int32_t accepted);
  /// Whether a refresh is to be asked for now; ends RIFT-ada's stride where it is over.
  [[nodiscard]] bool refresh_due(Session& session);
  void request_refresh(Session& session);
  /// Tokens between a refresh's request and its swap; negative: as soon as it is there.
  [[nodiscard]] std::int32_t refresh_lag(const Session& session) const;
  /// Whether the refresh under way is to be swapped in before anything else is drafted.
  [[nodiscard]] bool swap_due(const Session& session) const;
  /// The session goes on without the score node, as far as it can without another event.
  /// writes_ended: nothing that the score node posted for it can still arrive. `session` may be
  /// gone afterwards.
  void detach(Session& session, const std::string& reason, bool writes_ended);
  /// Tells the score node that the session is over, and keeps what it may still write to.
  void release_from_score(Session& session, bool writes_ended);
  /// The writes of a session that has left the score node have ended; false: none were waited for.
  bool end_score_writes(SessionId id);
  void prefill_instead(Session& session, bool writes_ended);
  [[nodiscard]] std::vector<SessionId> session_ids() const;

  [[nodiscard]] transport::ArenaUse arena_use(const Session& session) const;
  void note(bool warning, std::string text);

  CoreOptions options_;
  Arena arena_;
  std::map<SessionId, Session> sessions_;
  std::map<WorkingSetId, RangeUse> ranges_;
  std::uint64_t next_working_set_ = 1;
  bool score_up_ = false;
  std::string score_link_;
  TimePoint now_;
  std::vector<Action> out_;
};

}  // namespace rift::draft_node
