// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include "common/error.h"
#include "model/config_check.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace rift::model {

std::string_view to_string(Architecture architecture) {
  switch (architecture) {
    case Architecture::kLlama:
      return "llama";
    case Architecture::kQwen2:
      return "qwen2";
    case Architecture::kQwen3:
      return "qwen3";
  }
  return "unknown";
}

Architecture parse_architecture(std::string_view name, std::string_view file) {
  for (const auto architecture :
       {Architecture::kLlama, Architecture::kQwen2, Architecture::kQwen3}) {
    if (name == to_string(architecture)) {
      return architecture;
    }
  }
  throw fail(Errc::kUnsupported,
             "{}: architecture '{}' cannot be run; known are llama, qwen2, qwen3",
             file,
             name.substr(0, 80));
}

std::int32_t checked_size(std::int64_t value,
                          std::int64_t limit,
                          std::string_view key,
                          std::string_view file) {
  if (value < 1 || value > limit) {
    throw fail(Errc::kCorrupt, "{}: {} is {}, not between 1 and {}", file, key, value, limit);
  }
  return static_cast<std::int32_t>(value);
}

double checked_positive(double value, std::string_view key, std::string_view file) {
  if (!std::isfinite(value) || value <= 0.0) {
    throw fail(Errc::kCorrupt, "{}: {} is {}, not a positive number", file, key, value);
  }
  return value;
}

void finish_config(ModelConfig& config,
                   const std::vector<double>& frequencies,
                   std::string_view file) {
  if (config.query_heads % config.kv_heads != 0) {
    throw fail(Errc::kCorrupt,
               "{}: {} query heads cannot share {} KV heads evenly",
               file,
               config.query_heads,
               config.kv_heads);
  }
  if (config.head_dim % 8 != 0) {
    throw fail(Errc::kUnsupported,
               "{}: head dimension {}; only multiples of 8 can be run",
               file,
               config.head_dim);
  }
  config.attention_scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  config.rope_frequencies.clear();
  for (const double frequency : frequencies) {
    config.rope_frequencies.push_back(static_cast<float>(frequency));
  }
}

std::string canonical_text(const ModelConfig& config) {
  std::string text = fmt::format(
      "architecture={}\nlayers={}\nquery_heads={}\nkv_heads={}\nhead_dim={}\nhidden={}\n"
      "feed_forward={}\nvocab={}\ncontext_train={}\nnorm_eps={:08x}\nattention_scale={:08x}\n"
      "tied_embeddings={}\nqkv_bias={}\nqk_norm={}\nrope_layout={}\nrope_frequencies=",
      to_string(config.architecture),
      config.layers,
      config.query_heads,
      config.kv_heads,
      config.head_dim,
      config.hidden,
      config.feed_forward,
      config.vocab,
      config.context_train,
      std::bit_cast<std::uint32_t>(config.norm_eps),
      std::bit_cast<std::uint32_t>(config.attention_scale),
      config.tied_embeddings,
      config.qkv_bias,
      config.qk_norm,
      config.rope_layout == RopeLayout::kHalf ? "half" : "interleaved");
  for (const float frequency : config.rope_frequencies) {
    text += fmt::format("{:08x},", std::bit_cast<std::uint32_t>(frequency));
  }
  return text + "\n";
}

}  // namespace rift::model
