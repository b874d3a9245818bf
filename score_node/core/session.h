// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "policy/budget.h"
#include "score_node/core/block_mirror.h"
#include "score_node/core/refresh_plan.h"
#include "score_node/core/types.h"
#include "transport/messages.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace rift::score_node {

/// One refresh, from request to the last wave's installation.
struct Refresh {
  enum class Stage : std::uint8_t {
    kIngesting,   // the history does not reach `tokens` yet
    kScoring,     // in the engine
    kWriting,     // a wave's blocks are packed and written
    kInstalling,  // RefreshReady sent, Installed awaited
  };

  Epoch epoch{};
  std::int32_t tokens = 0;
  Stage stage = Stage::kIngesting;
  TimePoint stage_began;
  bool outdated = false;  // tokens that the engine is scoring were replaced

  RefreshPlan plan;  // what is left to send
  /// Of every head, where the draft goes on from the scores (H2O).
  std::vector<HeadSelection> selection;
  std::uint32_t wave = 0;
  std::vector<transport::TableUpdate> updates;  // of this wave
  std::uint32_t batches_left = 0;               // of this wave
  /// Tokens from here on were replaced while the wave was under way.
  Position replaced_from = std::numeric_limits<Position>::max();

  std::uint64_t bytes = 0;  // of this wave, as the stages below
  std::uint64_t ingest_ns = 0;
  std::uint64_t score_ns = 0;
  std::uint64_t select_ns = 0;
  std::uint64_t pack_ns = 0;
};

/// One draft node's request. Owned by the core.
struct Session {
  SessionRef ref{};
  PeerId peer{};
  transport::ScoreOpen open;  // its tokens are moved to `tokens`
  policy::BudgetPlan plan;
  std::vector<TokenId> tokens;  // committed; the truth

  bool history_open = false;
  bool ingesting = false;      // a job is in the engine
  std::int32_t ingested = 0;   // tokens [0, ingested) are in the history
  Position queries_begin = 0;  // lowest position whose query the history still has
  std::int32_t job_limit = 0;  // of what a running job will hold, the part not replaced since
  std::uint64_t history_bytes = 0;

  BlockMirror mirror;
  std::optional<Refresh> refresh;
  std::optional<transport::RefreshRequest> queued;
  TimePoint queued_at;
  Epoch newest_epoch{};  // asked for so far; the opening asks for 0

  Session(SessionRef session_ref,
          PeerId owner,
          transport::ScoreOpen message,
          const policy::BudgetPlan& budget)
      : ref(session_ref),
        peer(owner),
        open(std::move(message)),
        plan(budget),
        tokens(std::move(open.tokens)),
        mirror(open.layout) {}

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(tokens.size()); }
  /// Whether the scores are sums over all queries so far, so that the history is scored as long as
  /// it is, and no window of queries is kept for it.
  [[nodiscard]] bool cumulative() const {
    return policy::selects(open.policy) && policy::selector(open.policy) == Selector::kH2o;
  }
  /// Whether the draft node keeps the sums and goes on from them.
  [[nodiscard]] bool hands_sums_over() const { return open.policy.policy == Policy::kH2o; }
  /// Window of a history of n tokens.
  [[nodiscard]] std::int32_t window(std::int32_t n) const {
    return cumulative() ? 0 : std::min(n, open.policy.window);
  }
  /// Whether the history can be scored as it was after n tokens.
  [[nodiscard]] bool scorable(std::int32_t n) const {
    return cumulative() ? n == ingested : n <= ingested && queries_begin <= n - window(n);
  }
  /// Where a history that holds n tokens, but cannot be scored as of them, is to be ingested from.
  [[nodiscard]] std::int32_t restart(std::int32_t n) const {
    return cumulative() ? 0 : n - window(n);
  }
};

}  // namespace rift::score_node
