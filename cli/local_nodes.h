// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/backend.h"
#include "draft_node/service.h"
#include "model/weights.h"
#include "score_node/service.h"
#include "target_node/service.h"
#include "transport/inproc/inproc.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rift::cli {

struct LocalNodesOptions {
  std::shared_ptr<const model::Weights> target;
  std::shared_ptr<const model::Weights> draft;  // null: the target alone
  std::int32_t context = 0;
  std::int32_t max_draft_len = 31;
  bool verify_costs = false;
  bool measure_verify = false;
  std::uint64_t draft_memory_bytes = 0;  // 0: weights, scratch and draft_arena_bytes
  std::uint64_t draft_arena_bytes = 1ULL << 30U;
  draft_node::RefreshMode refresh_mode = draft_node::RefreshMode::kStage;
  int threads = 1;
  std::vector<int> target_cpus, draft_cpus, score_cpus;  // empty: any
  DType kv_dtype = DType::kF16;
  kernels::MatmulMode mode = kernels::MatmulMode::kQuantized;
  transport::InprocNetwork::LinkModel link;
  std::string trace;  // file; each node adds its name
};

/// The three node services on one loop, joined by transport/inproc: the same code as the three
/// processes run, without sockets. Thread: one, which runs the loop inside generate().
class LocalNodes {
 public:
  /// Returns when the draft node is connected. Errors (thrown).
  explicit LocalNodes(const LocalNodesOptions& options);
  ~LocalNodes();
  LocalNodes(const LocalNodes&) = delete;
  LocalNodes& operator=(const LocalNodes&) = delete;

  /// Errors (thrown): what the target refuses; kCancelled after an interrupt.
  [[nodiscard]] target_node::Outcome generate(const target_node::Request& request,
                                              const AnswerEvents& events);
  /// Faults between the nodes "target0", "draft0" and "score0".
  [[nodiscard]] transport::InprocNetwork& network() { return network_; }
  void stop();

 private:
  void run_until(const std::function<bool()>& done);
  void start_score();
  void start_draft();
  void start_target();

  LocalNodesOptions options_;
  boost::asio::io_context io_{1};
  transport::InprocNetwork network_;
  std::shared_ptr<Trace> score_trace_, draft_trace_, target_trace_;  // shared with their nodes
  std::unique_ptr<transport::Transport> score_link_, target_link_;
  std::unique_ptr<score_node::ScoreNode> score_;
  std::unique_ptr<draft_node::DraftNode> draft_;
  std::unique_ptr<target_node::TargetNode> target_;
};

}  // namespace rift::cli
