// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/compute_thread.h"
#include "common/thread_pool.h"
#include "common/trace.h"
#include "draft_node/core/draft_core.h"
#include "draft_node/engine.h"
#include "model/weights.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rift::draft_node {

struct DraftNodeOptions {
  std::shared_ptr<const model::Weights> weights;
  int threads = 1;                            // of the forward pass
  std::vector<int> cpus;                      // as ThreadPool takes them; empty: any
  std::uint64_t memory_bytes = 0;             // of the device; 0: weights + scratch + arena_bytes
  std::uint64_t arena_bytes = 256ULL << 20U;  // for sessions, where memory_bytes is 0
  std::size_t max_sessions = 16;
  std::optional<transport::Endpoint> score;  // none: every session keeps a recent window
  RefreshMode refresh_mode = RefreshMode::kStage;
  EngineOptions engine;
  std::chrono::milliseconds tick{250};          // deadlines are looked at this often
  std::chrono::milliseconds score_retry{2000};  // between two series of attempts to connect
  Trace* trace = nullptr;                       // outlives the node
};

/// What a draft node says about itself in the handshake. `tokenizer_hash` as model::Tokenizer gives
/// it.
[[nodiscard]] transport::NodeInfo node_info(const model::Weights& weights,
                                            DType kv_dtype,
                                            const std::string& node_id,
                                            const std::string& tokenizer_hash);

/// The draft node: core and engine behind a transport. All memory for weights, scratch and sessions
/// is taken in the constructor. The loop never computes, so that writes into the arena make
/// progress during a forward pass. Thread: loop of `io`. Resource type, pinned; stop() before
/// destruction.
class DraftNode {
 public:
  /// Errors (thrown): kResourceExhausted when the model does not fit memory_bytes.
  DraftNode(boost::asio::io_context& io,
            std::unique_ptr<transport::Transport> transport,
            const DraftNodeOptions& options);
  ~DraftNode();
  DraftNode(const DraftNode&) = delete;
  DraftNode& operator=(const DraftNode&) = delete;

  /// Accepts targets, and starts connecting to the score node where there is one. Returns the port.
  /// Errors (thrown): kPermission, kIo.
  std::uint16_t start(const transport::Endpoint& listen);
  /// No new work; waits for the computation that runs; peers lose this node. Idempotent.
  void stop();

  [[nodiscard]] bool score_connected() const { return score_ != nullptr; }
  [[nodiscard]] const DraftCore& core() const { return *core_; }

 private:
  void on_target_up(std::shared_ptr<transport::Peer> peer);
  void on_target_lost(const transport::Peer& peer, const Error& error);
  [[nodiscard]] std::optional<TargetId> target_of(const transport::Peer& peer) const;
  void connect_score();
  void on_score_up(std::shared_ptr<transport::Peer> peer);
  void on_score_lost(const Error& error);
  void retry_score();
  void schedule_tick();

  void handle(const Event& event);
  void act(SendTarget& action);
  void act(SendScore& action);
  void act(OpenWorkingSet& action);
  void act(PrefillJob& action);
  void act(DraftJob& action);
  void act(DropWorkingSet& action);
  void act(Note& action);
  void act(RefreshSwapped& action);
  void act(StrideEnded& action);
  /// Runs `job` on the compute thread and hands the event that it returns to the core.
  template <typename Job>
  void submit(Job job);
  void trace_draft(const DraftDone& done);

  boost::asio::io_context& io_;
  DraftNodeOptions options_;
  ThreadPool pool_;
  std::unique_ptr<transport::Transport> transport_;
  Engine engine_;
  std::unique_ptr<transport::Region> region_;
  std::unique_ptr<DraftCore> core_;
  std::map<TargetId, std::shared_ptr<transport::Peer>> targets_;
  std::shared_ptr<transport::Peer> score_;
  std::uint64_t next_target_ = 1;
  boost::asio::steady_timer tick_timer_;
  boost::asio::steady_timer retry_timer_;
  bool stopped_ = false;
  std::shared_ptr<int> alive_;  // posted results look at it: they may run after the destruction
  ComputeThread compute_;
};

}  // namespace rift::draft_node
