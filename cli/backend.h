// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/load_seconds.h"
#include "target_node/types.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::cli {

/// What the three local nodes run with.
struct ClusterOptions {
  std::string target_model;
  std::string draft_model;  // empty: no draft and no score node
  std::string pre;          // pre-tokenizer override
  std::int32_t context = 0;
  std::int32_t max_draft_len = 31;
  std::uint64_t draft_memory_bytes = 0;  // 0: as much as one session of `context` needs
  int threads = 0;                       // of each node; 0: one for each of its CPUs
  std::vector<int> target_cpus;          // that a node runs on; empty: any
  std::vector<int> draft_cpus;
  std::vector<int> score_cpus;
  bool verify_costs = false;    // requests leave the draft length to the target
  bool measure_verify = false;  // measure those costs again
  bool exact = false;
  bool no_repack = false;
  std::string require_transport;
  std::string trace;      // file; empty: none
  std::string log_level;  // of the nodes
  /// Bytes of a node's model that are ready, of all.
  std::function<void(std::string_view node, std::uint64_t done, std::uint64_t total)> on_load;
};

/// What the nodes' start-up spent on their weights; zeros for nodes that were not started.
struct StartUp {
  LoadSeconds target;
  LoadSeconds draft;
  LoadSeconds score;
};

struct AnswerEvents {
  std::function<void(std::int32_t done, std::int32_t total)> on_prefill;
  std::function<void(std::span<const TokenId> tokens, const target_node::Progress&)> on_tokens;
};

/// Three running nodes that answer one request after the other. Thread: one.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Blocks until the answer is complete. Errors (thrown): what the target refuses; kCancelled
  /// after SIGINT or SIGTERM; kUnavailable when the target ended.
  [[nodiscard]] virtual target_node::Outcome generate(const target_node::Request& request,
                                                      const AnswerEvents& events) = 0;
  [[nodiscard]] virtual StartUp start_up() const = 0;
  /// Ends the nodes and, with ClusterOptions::trace, joins their traces. Idempotent.
  virtual void stop() = 0;
};

/// Three processes on loopback, joined by UCX. Returns when all are up.
[[nodiscard]] std::unique_ptr<Backend> start_ucx_backend(const ClusterOptions& options);
/// The same three cores in this process.
[[nodiscard]] std::unique_ptr<Backend> start_inproc_backend(const ClusterOptions& options);

}  // namespace rift::cli
