// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/backend.h"
#include "model/tokenizer.h"
#include "model/weights.h"
#include "target_node/types.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace rift::cli {

/// Options that every command with running nodes shares.
struct RunOptions {
  std::string target_model;
  std::string draft_model;
  std::string transport = "ucx";
  std::string policy = "rift-dyn";
  std::string policy_file;       // of rift-ada
  target_node::Request request;  // prompt, stop tokens and policy name are filled in later
  ClusterOptions cluster;
  std::int32_t context = 0;  // 0: what prompt and answer need
  bool no_draft = false;
  std::vector<int> cpus;  // of every node that has none of its own
};

/// Adds -m, -md, policy, sampling, transport and machine options to a subcommand.
void add_run_options(CLI::App& command, RunOptions& options);

/// Both models' headers and tokenizers, checked against each other.
struct ModelPair {
  std::shared_ptr<const model::Weights> target;
  std::shared_ptr<const model::Weights> draft;  // null without a draft
  std::shared_ptr<const model::Tokenizer> tokenizer;
};
/// Errors (thrown): what loading throws; kMismatch naming the first token that differs.
[[nodiscard]] ModelPair open_models(const RunOptions& options);

/// Every end-of-generation id of the vocabulary.
[[nodiscard]] std::vector<TokenId> stop_tokens(const model::Tokenizer& tokenizer);

/// Starts the nodes for contexts of `context` tokens. Errors (thrown).
[[nodiscard]] std::unique_ptr<Backend> start_backend(const RunOptions& options,
                                                     std::int32_t context);

}  // namespace rift::cli
