// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "common/policy_spec.h"
#include "draft_node/core/block_table.h"
#include "draft_node/core/types.h"
#include "policy/ada.h"
#include "policy/budget.h"
#include "transport/messages.h"

#include <deque>
#include <optional>
#include <vector>

namespace rift::draft_node {

/// Where the score node stands with one session.
enum class ScoreState : std::uint8_t {
  kDetached,  // no score node, or it was given up
  kFilling,   // ScoreOpen sent, the first working set is under way
  kAttached,  // follows the session; refreshes are possible
};

/// A working set as the core knows it: what will be in it once all jobs so far are done.
struct Placement {
  Placement(WorkingSetId working_set, const WorkingSetLayout& layout)
      : id(working_set), table(layout) {}

  WorkingSetId id;
  BlockTable table;
  Position cached = 0;  // the next query's position
  bool complete = false;
  // Since the last job:
  std::optional<std::pair<Position, Position>> ring;
  std::vector<Wave> waves;
};

/// A refresh between request and last swap.
struct RefreshFlight {
  transport::RefreshRecord record;  // what has been added up so far
  TimePoint requested;
  TimePoint deadline;
  std::int32_t committed = 0;  // at the request
  std::uint32_t next_wave = 0;
  std::optional<TimePoint> waiting_since;  // drafting waits for it (pause mode)
};

struct ReadyWave {
  transport::RefreshReady message;
  TimePoint arrived;
};

/// The proposal that the target waits for.
struct DraftOrder {
  std::uint32_t round = 0;
  std::int32_t draft_len = 0;
};

enum class Work : std::uint8_t { kNone, kPrefill, kDraft };

/// One request. Owned by the core.
struct Session {
  SessionId id{};
  TargetId target{};
  transport::OpenSession open;  // its tokens are moved to `tokens`
  policy::BudgetPlan plan;
  WorkingSetLayout layout;
  std::vector<TokenId> tokens;  // committed; the truth
  bool verdict_seen = false;    // the last token has not been a query yet
  bool ready_sent = false;

  std::optional<Placement> active;
  std::optional<Placement> incoming;  // being filled by the score node
  Work work = Work::kNone;            // of `active`, in the engine
  std::int32_t work_committed = 0;    // tokens when it began
  bool work_stale = false;            // a verdict came before its proposal was sent
  std::optional<DraftOrder> order;
  std::optional<DraftOrder> drafting;  // the order that the job in the engine answers
  std::uint32_t proposed_round = 0;
  std::vector<TokenId> proposal;  // of that round, until it is answered

  std::optional<policy::AdaState> ada;  // of rift-ada
  std::vector<float> entropy, drift;    // of the proposal, as in DraftDone
  bool end_stride = false;              // for the next job
  bool refreshed = false;

  ScoreState score = ScoreState::kDetached;
  std::int32_t score_tokens = 0;  // tokens that the score node has been sent
  std::optional<RefreshFlight> flight;
  std::deque<ReadyWave> ready;
  Epoch next_epoch{1};
  std::int32_t last_request = 0;  // committed tokens at the last request

  std::vector<transport::RefreshRecord> refreshes;
  std::uint32_t refresh_count = 0;  // swapped in, the first working set not counted
  std::uint64_t refresh_bytes = 0;
  std::uint64_t score_history_bytes = 0;
  std::uint64_t score_prefill_ns = 0;
  std::uint64_t draft_steps = 0;
  std::uint64_t draft_step_ns = 0;
  std::uint32_t score_lost = 0;

  [[nodiscard]] std::int32_t committed() const { return static_cast<std::int32_t>(tokens.size()); }
  /// Position of the next query, which is also what a refresh scores up to: the newest token is
  /// that query.
  [[nodiscard]] std::int32_t history() const { return committed() - (verdict_seen ? 1 : 0); }
};

}  // namespace rift::draft_node
