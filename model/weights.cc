// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include "common/error.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/tensor_table.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace rift::model {
namespace {

// Tensor names of one file format. Those of a layer follow its prefix, "blk.7." for example.
struct TensorNames {
  std::string_view embedding, output_norm, output, layer;
  std::string_view attention_norm, q, k, v, o, q_norm, k_norm;
  std::string_view feed_forward_norm, gate, up, down;
};

constexpr TensorNames kGgufNames{"token_embd.weight",
                                 "output_norm.weight",
                                 "output.weight",
                                 "blk.",
                                 "attn_norm.weight",
                                 "attn_q",
                                 "attn_k",
                                 "attn_v",
                                 "attn_output.weight",
                                 "attn_q_norm.weight",
                                 "attn_k_norm.weight",
                                 "ffn_norm.weight",
                                 "ffn_gate.weight",
                                 "ffn_up.weight",
                                 "ffn_down.weight"};

constexpr TensorNames kSafetensorsNames{"model.embed_tokens.weight",
                                        "model.norm.weight",
                                        "lm_head.weight",
                                        "model.layers.",
                                        "input_layernorm.weight",
                                        "self_attn.q_proj",
                                        "self_attn.k_proj",
                                        "self_attn.v_proj",
                                        "self_attn.o_proj.weight",
                                        "self_attn.q_norm.weight",
                                        "self_attn.k_norm.weight",
                                        "post_attention_layernorm.weight",
                                        "mlp.gate_proj.weight",
                                        "mlp.up_proj.weight",
                                        "mlp.down_proj.weight"};

LayerWeights read_layer(TensorTable& table,
                        const TensorNames& names,
                        const ModelConfig& c,
                        std::int32_t layer) {
  const std::int64_t q_rows = std::int64_t{c.query_heads} * c.head_dim;
  const std::int64_t kv_rows = std::int64_t{c.kv_heads} * c.head_dim;
  const auto name = [&](std::string_view part, std::string_view suffix = "") {
    return fmt::format("{}{}.{}{}", names.layer, layer, part, suffix);
  };
  LayerWeights w;
  w.attention_norm = table.vector(name(names.attention_norm), c.hidden);
  w.q = table.matrix(name(names.q, ".weight"), q_rows, c.hidden);
  w.k = table.matrix(name(names.k, ".weight"), kv_rows, c.hidden);
  w.v = table.matrix(name(names.v, ".weight"), kv_rows, c.hidden);
  if (c.qkv_bias) {
    w.q_bias = table.vector(name(names.q, ".bias"), q_rows);
    w.k_bias = table.vector(name(names.k, ".bias"), kv_rows);
    w.v_bias = table.vector(name(names.v, ".bias"), kv_rows);
  }
  if (c.qk_norm) {
    w.q_norm = table.vector(name(names.q_norm), c.head_dim);
    w.k_norm = table.vector(name(names.k_norm), c.head_dim);
  }
  w.o = table.matrix(name(names.o), c.hidden, q_rows);
  w.feed_forward_norm = table.vector(name(names.feed_forward_norm), c.hidden);
  w.gate = table.matrix(name(names.gate), c.feed_forward, c.hidden);
  w.up = table.matrix(name(names.up), c.feed_forward, c.hidden);
  w.down = table.matrix(name(names.down), c.hidden, c.feed_forward);
  // Older checkpoints store the frequencies that the configuration gives anyway.
  table.ignore(name("self_attn.rotary_emb.inv_freq"));
  return w;
}

// A tensor that nobody reads is a term missing from the forward pass: refuse it.
void refuse_unused(const TensorTable& table, const ModelConfig& config, const std::string& file) {
  const auto unused = table.unused();
  if (!unused.empty()) {
    throw fail(
        Errc::kUnsupported,
        "{}: tensor '{}' ({} such in all) is not part of a {} model as this runtime knows it",
        file,
        unused.front(),
        unused.size(),
        to_string(config.architecture));
  }
}

std::shared_ptr<const Weights> read_weights(TensorTable table,
                                            const TensorNames& names,
                                            ModelConfig config,
                                            std::shared_ptr<const void> storage,
                                            const std::string& file) {
  auto weights = std::make_shared<Weights>();
  const ModelConfig& c = weights->config = std::move(config);
  weights->embedding = table.matrix(names.embedding, c.vocab, c.hidden);
  // One by one: a hostile layer count fails at the first absent tensor, before memory is taken.
  for (std::int32_t layer = 0; layer < c.layers; ++layer) {
    weights->layers.push_back(read_layer(table, names, c, layer));
  }
  weights->output_norm = table.vector(names.output_norm, c.hidden);
  if (c.tied_embeddings) {
    weights->output = weights->embedding;
    table.ignore(names.output);
  } else {
    weights->output = table.matrix(names.output, c.vocab, c.hidden);
  }
  table.ignore("rope_freqs.weight");  // applied by config_from_gguf
  refuse_unused(table, c, file);
  weights->bytes = table.used_bytes();
  weights->fingerprint = table.fingerprint(canonical_text(c));
  weights->storage = std::move(storage);
  return weights;
}

std::shared_ptr<const Weights> load_safetensors(const std::filesystem::path& path) {
  const bool folder = std::filesystem::is_directory(path);
  const auto config_path = (folder ? path : path.parent_path()) / "config.json";
  ModelConfig config = read_config_json(config_path);
  auto file = Safetensors::open(path);
  return read_weights(TensorTable(*file), kSafetensorsNames, std::move(config), file, file->name());
}

std::shared_ptr<const Weights> load_gguf(const std::filesystem::path& path) {
  auto file = GgufFile::open(path);
  return read_weights(TensorTable(*file), kGgufNames, config_from_gguf(*file), file, file->name());
}

}  // namespace

std::shared_ptr<const Weights> load_weights(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw fail(Errc::kNotFound, "no model at {}", path.string());
  }
  const bool safetensors = std::filesystem::is_directory(path) ||
                           path.extension() == ".safetensors" || path.extension() == ".json";
  return safetensors ? load_safetensors(path) : load_gguf(path);
}

}  // namespace rift::model
