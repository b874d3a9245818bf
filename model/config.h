// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

class GgufFile;

enum class Architecture : std::uint8_t { kLlama, kQwen2, kQwen3 };

/// "llama", "qwen2", "qwen3", as files name them.
[[nodiscard]] std::string_view to_string(Architecture architecture);

/// Which elements of a head rotate together: (i, i + D/2), or (2i, 2i + 1) as in llama GGUF files,
/// whose query and key rows were reordered for it.
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

  bool operator==(const ModelConfig&) const = default;
};

/// Configuration of a GGUF model: its metadata, and what only its tensors tell (vocabulary size,
/// tied embeddings, biases, `rope_freqs.weight`). Errors (thrown): kCorrupt (a key is absent, of
/// another type or out of range), kUnsupported (another architecture, rope scaling other than
/// linear or llama3, experts, sliding windows; the message names it).
[[nodiscard]] ModelConfig config_from_gguf(const GgufFile& file);

/// Configuration from a checkpoint's config.json, in the current key style (`rope_parameters`,
/// `layer_types`) or the older one (`rope_theta`, `rope_scaling`). `name` becomes ModelConfig::name
/// and is used in messages. Errors (thrown): as config_from_gguf.
[[nodiscard]] ModelConfig config_from_json(const boost::json::value& document,
                                           std::string_view name);

/// Reads a config.json of at most 16 MiB; the model's name is that of its folder.
/// Errors (thrown): also kNotFound, kIo.
[[nodiscard]] ModelConfig read_config_json(const std::filesystem::path& path);

/// One line per value, the same for every file format and key style; the name is left out.
[[nodiscard]] std::string canonical_text(const ModelConfig& config);

}  // namespace rift::model
