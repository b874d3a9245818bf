// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/local_nodes.h"
#include "common/log.h"
#include "tests/golden/golden_json.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rift::test {

inline std::shared_ptr<const model::Weights> tiny_weights(const std::string& name) {
  return model::load_weights(testing::golden_path("models/" + name));
}

/// A target and a draft of shared/golden/models, and how both compute.
struct TinyPair {
  std::string target;
  std::string draft;
  DType kv_dtype = DType::kF32;
  kernels::MatmulMode mode = kernels::MatmulMode::kExact;

  [[nodiscard]] std::string name() const {
    return target + "_from_" + draft + (kv_dtype == DType::kF32 ? "_f32" : "_f16") +
           (mode == kernels::MatmulMode::kExact ? "_exact" : "_quantized");
  }
};

/// Three nodes for prompts and answers of up to 256 tokens.
inline std::unique_ptr<cli::LocalNodes> tiny_nodes(
    const TinyPair& pair, draft_node::RefreshMode refresh_mode = draft_node::RefreshMode::kStage) {
  init_logging("test", "error");  // thousands of sessions
  cli::LocalNodesOptions options;
  options.target = tiny_weights(pair.target);
  options.draft = tiny_weights(pair.draft);
  options.context = 256;
  options.max_draft_len = 11;
  options.draft_arena_bytes = 32U << 20U;
  options.kv_dtype = pair.kv_dtype;
  options.mode = pair.mode;
  options.refresh_mode = refresh_mode;
  return std::make_unique<cli::LocalNodes>(options);
}

/// `count` ids that every tiny vocabulary (256 and more) has; the same ones in every run.
inline std::vector<TokenId> tiny_prompt(std::int32_t count) {
  std::vector<TokenId> out;
  std::uint32_t state = 12345;
  for (std::int32_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    out.push_back(static_cast<TokenId>(state >> 24U));
  }
  return out;
}

}  // namespace rift::test
