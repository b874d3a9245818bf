// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "common/working_set_layout.h"
#include "score_node/core/send_buffer.h"
#include "score_node/core/session.h"
#include "score_node/core/types.h"
#include "transport/messages.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace rift::score_node {

struct CoreOptions {
  KvGeometry geometry;           // of the model
  std::int32_t vocab = 0;        // token ids are below it
  std::int32_t chunk = 512;      // tokens of one ingest job; several sessions take turns
  std::int32_t ingest_min = 32;  // committed tokens that are worth a job without a refresh
  std::uint32_t send_chunks = 4;
  std::uint64_t send_chunk_bytes = 8U << 20U;
};

/// The score node's sessions as a deterministic state machine: events in, actions out; no I/O, no
/// clock, no model code. Rules (score_node/README.md): a history equals the committed tokens; a
/// write goes only to a slot that neither the draft's table nor a wave under way names; one refresh
/// at a time per session, the newest request waits.
/// Thread: one owner.
class ScoreCore {
 public:
  explicit ScoreCore(const CoreOptions& options);

  /// What is to be done because of `event`, in this order.
  [[nodiscard]] std::vector<Action> handle(Event event, TimePoint now);

  [[nodiscard]] std::size_t sessions() const { return sessions_.size(); }
  /// No session, no batch and no write under way.
  [[nodiscard]] bool idle() const { return sessions_.empty() && buffer_.idle(); }

 private:
  void on(PeerMessage& event);
  void on(PeerLost& event);
  void on(HistoryOpened& event);
  void on(Ingested& event);
  void on(Selected& event);
  void on(Packed& event);
  void on(PutDone& event);

  void on_message(PeerId peer, transport::ScoreOpen& open);
  void on_message(Session& session, const transport::Commit& commit);
  void on_message(Session& session, const transport::RefreshRequest& request);
  void on_message(Session& session, const transport::Installed& installed);

  // Steps; each does what can be done now.
  void advance(Session& session);
  static void start_refresh(Session& session);
  void ingest(Session& session);
  void score(Session& session);
  void start_wave(Session& session);
  void finish_wave(Session& session);
  void pump_buffer();

  static void replace_from(Session& session, Position position);
  static void clamp_requests(Session& session);
  void refuse(Session& session, const Error& error);
  /// Forgets the session; its writes under way end on their own. Returns their number.
  std::uint32_t drop(Session& session);
  [[nodiscard]] Session* find(SessionRef ref);
  [[nodiscard]] Session* find(PeerId peer, SessionId id);

  /// The last word to a draft node about a session that is gone. It waits for the session's writes:
  /// the draft node may then use that memory for something else.
  struct Farewell {
    PeerId peer{};
    transport::SessionRefused message;
    std::uint32_t writes = 0;
  };

  CoreOptions options_;
  std::map<SessionRef, Session> sessions_;
  std::map<SessionRef, Farewell> farewells_;
  std::map<std::pair<PeerId, SessionId>, SessionRef> names_;
  SendBuffer buffer_;
  std::uint64_t next_ref_ = 1;
  TimePoint now_;
  std::vector<Action> actions_;
};

}  // namespace rift::score_node
