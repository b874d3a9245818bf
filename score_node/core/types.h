// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/policy_spec.h"
#include "common/types.h"
#include "transport/messages.h"
#include "transport/transport.h"

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

namespace rift::score_node {

/// A connected draft node; given by the service, never used again after it is lost.
enum class PeerId : std::uint64_t {};
/// One opening of a session; never used again, so that late completions name what they were for.
enum class SessionRef : std::uint64_t {};

// ---- work for the engine: done one after the other, in the order in which it was asked for ----

/// Takes over a cached history that shares a prefix with `tokens`, or starts an empty one.
struct OpenHistory {
  SessionRef session{};
  std::vector<TokenId> tokens;
  std::int32_t capacity = 0;  // positions
  std::int32_t window = 0;    // queries that it is scored with
  Selector selector = Selector::kSnapKv;
};

/// Makes the history end after tokens [0, start + tokens.size()); what it had from `start` on is
/// forgotten. Where the selector's statistics cannot be cut at `start`, nothing is ingested and the
/// event names the size from which to go on.
struct Ingest {
  SessionRef session{};
  Position start = 0;
  std::vector<TokenId> tokens;
};

/// Scores the blocks of [0, tokens - recent) for every (layer, KV head), and chooses.
struct Select {
  SessionRef session{};
  std::int32_t tokens = 0;
  std::int32_t recent = 0;
  std::int32_t window = 0;
  std::int32_t block = 0;
  std::int32_t slots_per_head = 0;
  std::vector<std::int32_t> layer_slots{};  // [L], or empty: slots_per_head in each
  Selector selector = Selector::kSnapKv;
  Allocation allocation = Allocation::kUniform;
  Pooling pooling = Pooling::kNone;
  std::int32_t pool_width = 1;
  bool recent_scores = false;  // HeadSelection::recent is wanted
};

/// `count` keys or values of one head from position `first` on, then zeros up to `padded`.
struct Copy {
  std::int32_t layer = 0;
  std::int32_t head = 0;
  bool values = false;
  Position first = 0;
  std::int32_t count = 0;
  std::int32_t padded = 0;
  std::uint64_t offset = 0;  // in the send buffer

  bool operator==(const Copy&) const = default;
};

struct Pack {
  SessionRef session{};
  std::uint32_t chunk = 0;  // of the send buffer; written to by nobody else meanwhile
  std::vector<Copy> copies;
};

/// The session's history is free: kept for later openings if `tokens` is not empty.
struct ReleaseHistory {
  SessionRef session{};
  std::vector<TokenId> tokens;  // what it certainly holds
};

// ---- actions of the service ----

struct Put {
  PeerId peer{};
  std::uint32_t chunk = 0;
  std::uint32_t region = 0;
  std::vector<transport::PutOp> ops;
};

struct Send {
  PeerId peer{};
  transport::Message message;
};

using Action = std::variant<OpenHistory, Ingest, Select, Pack, ReleaseHistory, Put, Send>;

// ---- events ----

struct PeerMessage {
  PeerId peer{};
  transport::Message message;
};
/// Of a peer that was lost or said goodbye.
struct PeerLost {
  PeerId peer{};
};

struct HistoryOpened {
  SessionRef session{};
  std::int32_t reused = 0;  // positions that the history already holds
  std::optional<Error> error;
};

struct Ingested {
  SessionRef session{};
  std::int32_t size = 0;       // positions that the history holds
  Position queries_begin = 0;  // queries of [queries_begin, size) can be scored with
  std::uint64_t history_bytes = 0;
  std::optional<Error> error;
};

/// Of one (layer, KV head).
struct HeadSelection {
  std::vector<std::int32_t> ranked;  // chosen blocks, most valuable first
  std::vector<float> scores;         // of every candidate block
  std::vector<float> recent{};       // of positions [tokens - recent, tokens), where wanted
};

struct Selected {
  SessionRef session{};
  std::vector<HeadSelection> heads;  // [L, G]
  std::uint64_t score_ns = 0;
  std::uint64_t select_ns = 0;
  std::optional<Error> error;
};

struct Packed {
  SessionRef session{};
  std::uint32_t chunk = 0;
  std::uint64_t pack_ns = 0;
  std::optional<Error> error;
};

/// Every operation of the put has ended.
struct PutDone {
  std::uint32_t chunk = 0;
  std::optional<Error> error;
};

using Event =
    std::variant<PeerMessage, PeerLost, HistoryOpened, Ingested, Selected, Packed, PutDone>;

}  // namespace rift::score_node
