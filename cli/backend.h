// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "target_node/types.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace rift::cli {

/// What the three local nodes run with.
struct ClusterOptions {
  std::string target_model;
  std::string draft_model;  // empty: no draft and no score node
  std::string pre;          // pre-tokenizer override
  std::int32_t context = 0;
  std::int32_t max_draft_len = 31;
  std::uint64_t draft_memory_bytes = 0;  // 0: as much as one session of `context` needs
  int threads = 2;                       // of each node
  bool measure_verify = false;           // requests leave the draft length to the target
  bool exact = false;
  bool no_repack = false;
  std::string require_transport;
  std::string trace;      // file; empty: none
  std::string log_level;  // of the nodes
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
  /// Ends the nodes and, with ClusterOptions::trace, joins their traces. Idempotent.
  virtual void stop() = 0;
};

/// Three processes on loopback, joined by UCX. Returns when all are up.
[[nodiscard]] std::unique_ptr<Backend> start_ucx_backend(const ClusterOptions& options);
/// The same three cores in this process.
[[nodiscard]] std::unique_ptr<Backend> start_inproc_backend(const ClusterOptions& options);

}  // namespace rift::cli
