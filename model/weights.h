// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/matmul.h"
#include "model/config.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace rift::model {

/// One transformer block. Norms and biases are f32; matrices stay in the file's dtype.
struct LayerWeights {
  std::vector<float> attention_norm;          // [C]
  kernels::WeightView q, k, v;                // [H D, C], [G D, C], [G D, C]
  std::vector<float> q_bias, k_bias, v_bias;  // [H D], [G D], [G D]; empty without qkv_bias
  std::vector<float> q_norm, k_norm;          // [D]; empty without qk_norm
  kernels::WeightView o;                      // [C, H D]
  std::vector<float> feed_forward_norm;       // [C]
  kernels::WeightView gate, up, down;         // [F, C], [F, C], [C, F]
};

/// A loaded checkpoint: views into mapped files that it keeps open. Immutable after loading.
/// Resource type; shared by every runner of the process.
struct Weights {
  ModelConfig config;
  kernels::WeightView embedding;  // [V, C]
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;       // [C]
  kernels::WeightView output;           // [V, C]; equals `embedding` when tied
  std::uint64_t bytes = 0;              // all tensors that a forward pass reads
  std::string fingerprint;              // sha256 hex over config and a sample of every tensor
  std::shared_ptr<const void> storage;  // the mappings, shared by all views above
};

/// Opens a .gguf file (first of a split set: the others are found beside it), a .safetensors file
/// or a checkpoint folder with config.json. Checks every count, size, offset and shape against the
/// file's size before it is used. Errors (thrown): kNotFound, kCorrupt, kUnsupported.
[[nodiscard]] std::shared_ptr<const Weights> load_weights(const std::filesystem::path& path);

}  // namespace rift::model
