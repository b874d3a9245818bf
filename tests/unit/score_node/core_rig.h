// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "score_node/core/score_core.h"

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace rift::score_node {

inline constexpr KvGeometry kGeometry{2, 2, 8, DType::kF32};
inline constexpr std::int32_t kVocab = 1000;
inline constexpr PeerId kPeer{7};

/// A draft node in memory: an arena, the table that it reads, and the waves that it has not
/// installed yet. Checks what a draft node relies on.
struct FakeDraft {
  FakeDraft(SessionId session_id, const PolicySpec& policy_spec, std::int32_t max_context);

  [[nodiscard]] transport::ScoreOpen open_message() const;
  /// Installs the oldest wave; returns what the draft node then sends.
  transport::Installed install();
  /// No write may go to a slot that the table or a wave that has arrived names.
  void check_write(const transport::PutOp& op) const;
  /// The table holds each block once, within the budget.
  void check_table() const;
  /// What lies under the table is what a history of `tokens` has there.
  void check_contents() const;
  [[nodiscard]] std::set<std::pair<std::uint32_t, std::int32_t>> blocks(std::int32_t head) const;

  SessionId id;
  PolicySpec policy;
  WorkingSetLayout layout;
  std::int32_t context;
  std::vector<TokenId> tokens;
  std::uint64_t arena_offset = 4096;
  std::vector<std::byte> arena;
  std::map<std::pair<std::int32_t, std::uint32_t>, transport::TableUpdate> table;
  std::deque<transport::RefreshReady> ready;
  std::vector<transport::RefreshReady> history;  // all that came
  std::vector<transport::SessionRefused> refused;
};

/// Key or value of one position as the fake engine computes it: it depends on all that names it.
[[nodiscard]] std::vector<float> fake_vector(const Copy& copy, Position position, TokenId token);

/// The core with an engine and a link that work when they are told to.
class CoreRig {
 public:
  explicit CoreRig(const CoreOptions& options, std::uint32_t seed);

  void send(const FakeDraft& draft, transport::Message message);
  void event(Event event);
  void lose(PeerId peer) { event(PeerLost{peer}); }

  /// Each does one step; false where there is nothing to do.
  bool run_compute();
  bool run_put();
  void run_all();

  FakeDraft* draft = nullptr;  // gets messages and writes
  ScoreCore core;
  std::deque<Action> jobs;
  std::deque<Put> puts;
  std::vector<Action> log;  // everything that was asked for
  std::int32_t reused = 0;  // answer to the next OpenHistory
  std::int32_t query_slack = 4;
  Position cut_limit = 0;  // a job that starts before it makes the history begin again, once
  std::vector<HeadSelection> last_selection;
  std::mt19937 random;
  TimePoint now{};

 private:
  struct History {
    std::vector<TokenId> tokens;
    Position queries_begin = 0;
    std::int32_t window = 0;
    Selector selector = Selector::kSnapKv;
  };
  Event run(const OpenHistory& job);
  Event run(const Ingest& job);
  Event run(const Select& job);
  Event run(const Pack& job);

  CoreOptions options_;
  std::map<SessionRef, History> histories_;
  std::vector<std::byte> buffer_;
};

[[nodiscard]] CoreOptions small_options();

}  // namespace rift::score_node
