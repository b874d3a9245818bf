// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "common/error.h"
#include "common/sampling_params.h"
#include "common/types.h"
#include "common/working_set_layout.h"
#include "policy/ada.h"
#include "transport/messages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace rift::draft_node {

/// A connected target; given by the service, never used again after it is lost.
enum class TargetId : std::uint64_t {};
/// A working set of the engine; never used again. A session has one, for a while two when a score
/// node fills the next one.
enum class WorkingSetId : std::uint64_t {};

// ---- work for the engine: done in the order in which it was asked for ----

struct OpenWorkingSet {
  WorkingSetId id{};
  WorkingSetLayout layout;
  std::uint64_t offset = 0;  // in the registered region
  std::int32_t recent = 0;
  SamplingParams sampling;
  std::int32_t top_n = 0;
  std::int32_t max_tokens = 0;   // of the sequence, drafts included
  std::vector<TokenId> history;  // tokens [0, n), for penalties
  bool signals = false;          // DraftDone tells entropy and drift
};

/// Runs tokens [start, start + tokens.size()) with nothing before `start` in sight but the sinks.
struct PrefillJob {
  WorkingSetId id{};
  std::vector<TokenId> sinks;  // tokens [0, sinks.size()), before `start`
  Position start = 0;
  std::vector<TokenId> tokens;
};

/// One wave of a refresh, validated.
struct Wave {
  std::vector<transport::TableUpdate> updates;
  std::int32_t covered = 0;
};

/// Installs what has arrived, then feeds committed tokens and drafts.
struct DraftJob {
  WorkingSetId id{};
  std::optional<std::pair<Position, Position>> ring;  // filled by the score node since the last job
  std::vector<Wave> waves;
  Position first = 0;           // position of tokens[0]; what is cached from there on is forgotten
  std::vector<TokenId> tokens;  // committed, at least one
  std::int32_t draft_len = 0;   // >= 1
  bool end_stride = false;      // the running stride of queries ends before `first`
  bool refreshed = false;       // and drift is measured from its mean query on
};

/// Answered with WorkingSetDropped: the range is not touched afterwards.
struct DropWorkingSet {
  WorkingSetId id{};
};

// ---- events ----

struct TargetMessage {
  TargetId target{};
  transport::Message message;
};
struct TargetLost {
  TargetId target{};
};
struct ScoreMessage {
  transport::Message message;
};
struct ScoreUp {
  std::string link;  // for people: "ucx tcp/lo (emulated)"
};
struct ScoreLost {
  std::string reason;
};
struct PrefillDone {
  WorkingSetId id{};
  std::optional<Error> error;
};
struct DraftDone {
  WorkingSetId id{};
  std::vector<TokenId> tokens;
  std::vector<transport::SparseDistribution> q;  // per token; empty for greedy
  std::uint64_t steps = 0;                       // forward passes
  std::uint64_t step_ns = 0;                     // their sum
  std::uint64_t draft_ns = 0;                    // the whole job
  std::vector<float> entropy;                    // per token, nats; where signals are wanted
  std::vector<float> drift;                      // [i]: of the stride if i of the drafts hold
  std::optional<Error> error;
};
struct WorkingSetDropped {
  WorkingSetId id{};
};
/// Time has passed: looks at deadlines.
struct Tick {};

using Event = std::variant<TargetMessage,
                           TargetLost,
                           ScoreMessage,
                           ScoreUp,
                           ScoreLost,
                           PrefillDone,
                           DraftDone,
                           WorkingSetDropped,
                           Tick>;

// ---- actions, in order ----

struct SendTarget {
  TargetId target{};
  transport::Message message;
};
struct SendScore {
  transport::Message message;
};
/// For the log.
struct Note {
  bool warning = false;
  std::string text;
};
/// For the trace: a refresh was swapped in.
struct RefreshSwapped {
  SessionId session{};
  transport::RefreshRecord record;
};

/// For the trace and for calibration: a stride of a RIFT-ada session has ended.
struct StrideEnded {
  SessionId session{};
  policy::Signals signals;
  policy::AdaDecision decision;
  std::int32_t committed = 0;
};

using Action = std::variant<SendTarget,
                            SendScore,
                            OpenWorkingSet,
                            PrefillJob,
                            DraftJob,
                            DropWorkingSet,
                            Note,
                            RefreshSwapped,
                            StrideEnded>;

}  // namespace rift::draft_node
