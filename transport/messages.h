// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/policy_spec.h"
#include "common/sampling_params.h"
#include "common/types.h"
#include "common/working_set_layout.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace rift::transport {

// Control messages between nodes (ARCHITECTURE.md, 3). Plain values; wire.h turns them into Cap'n
// Proto and back. Sessions are named by the target; every message belongs to one.

/// Draft distribution at one position, ascending ids, probabilities > 0 that sum to 1 in f32.
struct SparseDistribution {
  std::vector<TokenId> ids;
  std::vector<float> probabilities;
  bool operator==(const SparseDistribution&) const = default;
};

// ---- target -> draft ----

struct OpenSession {
  SessionId session{};
  std::vector<TokenId> tokens;     // prompt, and what is committed so far
  std::int32_t max_context = 0;    // prompt and answer never exceed it
  std::int32_t max_draft_len = 0;  // largest gamma of any round
  SamplingParams sampling;
  std::int32_t top_n = 64;  // support of q at temperature > 0
  PolicySpec policy;
  bool operator==(const OpenSession&) const = default;
};

/// Result of a verification pass, and the order for the next draft. The first one of a session has
/// accepted = 0 and the target's first token.
struct Verdict {
  SessionId session{};
  std::uint32_t round = 0;     // of the next proposal; verdict r answers proposal r - 1
  std::int32_t accepted = 0;   // drafted tokens of the last proposal that were committed
  TokenId next = 0;            // the target's own token, committed after them
  std::int32_t committed = 0;  // tokens of the session now, prompt included
  std::int32_t draft_len = 0;  // gamma of the next proposal; 0: do not draft
  bool operator==(const Verdict&) const = default;
};

/// Also draft -> score.
struct CloseSession {
  SessionId session{};
  bool operator==(const CloseSession&) const = default;
};

// ---- draft -> target ----

/// Bytes of the draft node's arena, by purpose.
struct ArenaUse {
  std::uint64_t capacity = 0;  // device.memory_bytes
  std::uint64_t weights = 0;
  std::uint64_t working_set = 0;  // rings and selected slots of this session
  std::uint64_t staging = 0;
  std::uint64_t state = 0;  // recurrent states
  std::uint64_t scratch = 0;
  bool operator==(const ArenaUse&) const = default;
};

struct SessionReady {
  SessionId session{};
  ArenaUse arena;
  std::uint64_t score_history_bytes = 0;
  std::uint64_t score_prefill_ns = 0;
  bool score_attached = false;  // false: drafting from a recent window of its own
  std::string score_link;       // "ucx tcp/lo (emulated)"; empty without a score node
  bool operator==(const SessionReady&) const = default;
};

/// Also score -> draft, there after the session's last write has ended, and in answer to every
/// CloseSession. The session is not open.
struct SessionRefused {
  SessionId session{};
  Errc code = Errc::kInternal;
  std::string message;
  bool operator==(const SessionRefused&) const = default;
};

struct Proposal {
  SessionId session{};
  std::uint32_t round = 0;
  std::vector<TokenId> tokens;        // at most the verdict's draft_len; may be fewer
  std::vector<SparseDistribution> q;  // per token; empty at temperature 0
  std::uint64_t draft_ns = 0;         // time spent drafting this proposal
  std::uint32_t refreshes = 0;        // installed so far in this session
  std::uint64_t refresh_bytes = 0;    // streamed so far, first working set included
  bool operator==(const Proposal&) const = default;
};

/// One refresh, from the draft's clock (requested, ready, swapped) and the score's durations.
struct RefreshRecord {
  Epoch epoch{};
  std::int32_t covered_tokens = 0;  // history length that was scored
  std::int32_t stale_tokens = 0;    // tokens committed between request and swap
  std::uint32_t waves = 0;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ingest_ns = 0;
  std::uint64_t score_ns = 0;
  std::uint64_t select_ns = 0;
  std::uint64_t pack_ns = 0;
  std::uint64_t write_ns = 0;
  std::uint64_t install_ns = 0;       // ready at the draft -> swapped in
  std::uint64_t total_ns = 0;         // requested -> swapped
  std::uint64_t stall_ns = 0;         // of it, drafting waited
  std::uint64_t requested_at_ns = 0;  // draft node's monotonic clock, for traces
  bool operator==(const RefreshRecord&) const = default;
};

/// Last message of a session.
struct SessionClosed {
  SessionId session{};
  std::vector<RefreshRecord> refreshes;
  std::uint64_t draft_steps = 0;    // forward passes of the draft
  std::uint64_t draft_step_ns = 0;  // their sum
  ArenaUse arena;
  std::uint64_t score_history_bytes = 0;
  std::uint32_t score_lost = 0;  // times the score node was lost
  bool operator==(const SessionClosed&) const = default;
};

// ---- draft -> score ----

struct ScoreOpen {
  SessionId session{};
  std::vector<TokenId> tokens;
  std::int32_t max_context = 0;
  PolicySpec policy;
  WorkingSetLayout layout;
  std::uint32_t arena_region = 0;  // registered region of the draft node
  std::uint64_t arena_offset = 0;  // base of this session in it
  bool operator==(const ScoreOpen&) const = default;
};

/// Tokens committed since the last one; the score node's history follows the target's, exactly.
struct Commit {
  SessionId session{};
  std::int32_t start = 0;  // position of tokens[0]
  std::vector<TokenId> tokens;
  bool operator==(const Commit&) const = default;
};

struct RefreshRequest {
  SessionId session{};
  Epoch epoch{};
  std::int32_t tokens = 0;  // score the history up to here
  bool operator==(const RefreshRequest&) const = default;
};

/// The working set of (epoch, wave) is installed: slots its table does not name are free again.
struct Installed {
  SessionId session{};
  Epoch epoch{};
  std::uint32_t wave = 0;
  bool operator==(const Installed&) const = default;
};

// ---- score -> draft ----

/// Entry `entry` of (layer, head) in the block table now names `slot`, which holds block `block`
/// (positions [block P, block P + count)).
struct TableUpdate {
  std::uint16_t layer = 0;
  std::uint16_t head = 0;
  std::uint32_t entry = 0;
  std::uint32_t slot = 0;
  std::uint32_t block = 0;
  std::uint16_t count = 0;  // real positions; 0: the entry is empty
  bool operator==(const TableUpdate&) const = default;
};

/// All writes of one wave have landed. Epoch 0 is the first working set and also fills the rings
/// with positions [ring_begin, covered_tokens). Under H2O `sums` says what attention every key has
/// gathered: one value per update, in their order, then those of the ring, [L, G, covered_tokens -
/// ring_begin]; empty for other policies.
struct RefreshReady {
  SessionId session{};
  Epoch epoch{};
  std::uint32_t wave = 0;
  bool last_wave = true;
  std::int32_t covered_tokens = 0;
  std::int32_t ring_begin = 0;  // epoch 0 only
  std::vector<TableUpdate> updates;
  std::vector<float> sums;
  std::uint64_t bytes = 0;
  std::uint64_t ingest_ns = 0;
  std::uint64_t score_ns = 0;
  std::uint64_t select_ns = 0;
  std::uint64_t pack_ns = 0;
  std::uint64_t write_ns = 0;
  std::uint64_t history_bytes = 0;
  bool operator==(const RefreshReady&) const = default;
};

using Message = std::variant<OpenSession,
                             Verdict,
                             CloseSession,
                             SessionReady,
                             SessionRefused,
                             Proposal,
                             SessionClosed,
                             ScoreOpen,
                             Commit,
                             RefreshRequest,
                             Installed,
                             RefreshReady>;

}  // namespace rift::transport
