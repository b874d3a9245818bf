// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/compute_thread.h"
#include "common/trace.h"
#include "target_node/core/target_core.h"
#include "target_node/engine.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rift::target_node {

struct NodeOptions {
  std::shared_ptr<const model::Weights> weights;
  EngineOptions engine;
  CoreOptions core;  // max_context, vocab and max_draft_len are taken from `engine` and the model
  int threads = 1;
  std::vector<int> cpus;  // as ThreadPool takes them; empty: any
  /// Know at start-up what a verification pass costs, for requests with auto_draft_len: from
  /// `verify_cache`, measured and kept there where it has none, or `measure_verify` asks for it.
  bool verify_costs = false;
  bool measure_verify = false;
  std::filesystem::path verify_cache;  // folder (verify_cache.h); empty: none
  std::shared_ptr<Trace> trace;        // shared with the process that closes it; may be null
};

/// What a target says about itself in the handshake; `tokenizer_hash` as model::Tokenizer gives it.
[[nodiscard]] transport::NodeInfo node_info(const model::Weights& weights,
                                            const std::string& node_id,
                                            const std::string& tokenizer_hash);

/// The target: joins the core, the model on its own compute thread, and the link to a draft node.
/// Thread: the loop of `io`. `io` and `transport` outlive it.
class TargetNode {
 public:
  TargetNode(boost::asio::io_context& io,
             transport::Transport& transport,
             const NodeOptions& options);
  ~TargetNode();
  TargetNode(const TargetNode&) = delete;
  TargetNode& operator=(const TargetNode&) = delete;

  /// Connects to a draft node; `done` is called once, with success or why there is none. Afterwards
  /// the node serves either way; after a loss it decodes plainly.
  void connect_draft(const transport::Endpoint& draft,
                     std::chrono::milliseconds deadline,
                     std::function<void(Status)> done);

  /// Starts an answer. Events come on the loop.
  SessionId submit(Request request, RequestEvents events);
  void cancel(SessionId id);
  [[nodiscard]] bool idle() const { return requests_.empty(); }

  /// No callbacks after it. Waits for the pass that runs.
  void stop();

 private:
  void dispatch(const Event& event);
  void perform(const SendDraft& action);
  void perform(Prefill action);
  void perform(Verify action);
  void perform(const EmitTokens& action);
  void perform(Finish action);
  void perform(const Fail& action);
  template <typename Job>
  void compute(SessionId id, const char* name, Job job);
  void release(SessionId id);
  void schedule_tick();
  transport::PeerHandler draft_handler();

  boost::asio::io_context& io_;
  transport::Transport& transport_;
  NodeOptions options_;
  TargetEngine engine_;
  TargetCore core_;
  ComputeThread compute_;
  boost::asio::steady_timer tick_;
  std::shared_ptr<transport::Peer> draft_;  // shared with the transport while connected
  std::function<void(Status)> on_draft_;
  std::map<SessionId, RequestEvents> requests_;
  std::uint64_t next_session_;
  bool stopped_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with posted completions
};

}  // namespace rift::target_node
