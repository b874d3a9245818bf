// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/compute_thread.h"
#include "common/trace.h"
#include "model/weights.h"
#include "score_node/core/score_core.h"
#include "score_node/engine.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace rift::score_node {

struct ScoreNodeOptions {
  std::shared_ptr<const model::Weights> weights;  // shared with other nodes of the process
  EngineOptions engine;
  std::uint32_t send_chunks = 4;
  std::uint64_t send_chunk_bytes = 8U << 20U;
  std::shared_ptr<Trace> trace;  // shared with the process that closes it; may be null
};

/// How this node introduces itself to draft nodes.
[[nodiscard]] transport::NodeInfo node_info(const model::Weights& weights,
                                            DType kv_dtype,
                                            const std::string& node_id);

/// The score node: joins the core, the engine on its own compute thread, and the links to draft
/// nodes. Thread: the loop of `io`. `io` and `transport` outlive it; the transport has not been
/// started when it is constructed (the send buffer is registered there).
class ScoreNode {
 public:
  /// Errors (thrown): kInvalidArgument, kUnsupported.
  ScoreNode(boost::asio::io_context& io,
            transport::Transport& transport,
            const ScoreNodeOptions& options);
  ~ScoreNode();
  ScoreNode(const ScoreNode&) = delete;
  ScoreNode& operator=(const ScoreNode&) = delete;

  /// Accepts draft nodes; returns the port. Errors (thrown): as Transport::listen.
  std::uint16_t start(const transport::Endpoint& endpoint);
  /// Takes no more events and waits for the job that runs. The transport is stopped by its owner,
  /// before this node is destroyed: writes that are under way read the send buffer. Idempotent.
  void stop();

  /// Sessions open now.
  [[nodiscard]] std::size_t sessions() const { return core_.sessions(); }

 private:
  void on_up(std::shared_ptr<transport::Peer> peer);
  void on_lost(transport::Peer& peer, const Error& error);
  [[nodiscard]] PeerId id_of(const transport::Peer& peer) const;

  void dispatch(Event event);
  void post(Event event);
  void perform(Put action);
  void perform(Send action);
  template <typename Job>
  void perform(Job job);
  [[nodiscard]] std::span<std::byte> chunk(std::uint32_t index) const;

  boost::asio::io_context& io_;
  transport::Transport& transport_;
  ScoreNodeOptions options_;
  ScoreEngine engine_;
  ScoreCore core_;
  std::unique_ptr<transport::Region> buffer_;
  // Shared with the transport while connected.
  std::map<PeerId, std::shared_ptr<transport::Peer>> peers_;
  std::map<const transport::Peer*, PeerId> ids_;
  std::uint64_t next_peer_ = 1;
  bool stopped_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with posted completions
  ComputeThread compute_;                                       // last: its jobs use what is above
};

}  // namespace rift::score_node
