// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rift::model {

enum class Architecture : std::uint8_t { kLlama, kQwen2, kQwen3 };

enum class RopeLayout : std::uint8_t { kHalf, kInterleaved };

/// What is fixed about a model, from GGUF metadata or config.json. Value type.
struct ModelConfig {
  Architecture architecture = Architecture::kLlama;
  std::string name;
  std::int32_t layers = 0;        // L
  std::int32_t query_heads = 0;   // H
  std::int32_t kv_heads = 0;      // G
  std::int32_t head_dim = 0;      // D
  std::int32_t hidden = 0;        // C
  std::int32_t feed_forward = 0;  // F
  std::int32_t vocab = 0;         // V: rows of the output matrix
  std::int32_t context_train = 0;
  float norm_eps = 1e-6F;
  float attention_scale = 0.0F;  // 1 / sqrt(D)
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  RopeLayout rope_layout = RopeLayout::kHalf;
  /// [D / 2]: angle per position of every pair, scaling (llama3, linear) applied.
  std::vector<float> rope_frequencies;
};

}  // namespace rift::model
