// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "model/config.h"
#include "model/config_check.h"
#include "model/gguf.h"
#include "model/rope.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>

namespace rift::model {
namespace {

class GgufConfigReader {
 public:
  explicit GgufConfigReader(const GgufFile& file) : file_(file) {}

  ModelConfig read() {
    const auto architecture = file_.string("general.architecture");
    if (!architecture) {
      throw fail(Errc::kCorrupt, "{}: no general.architecture", file_.name());
    }
    prefix_ = *architecture;
    config_.architecture = parse_architecture(prefix_, file_.name());
    config_.name = file_.string("general.name").value_or(prefix_);
    read_sizes();
    read_tensor_facts();
    refuse_extensions();
    finish_config(config_, read_rope(), file_.name());
    return std::move(config_);
  }

 private:
  [[nodiscard]] std::string key(std::string_view name) const {
    return fmt::format("{}.{}", prefix_, name);
  }

  [[nodiscard]] std::int32_t size(std::string_view name,
                                  std::int64_t limit,
                                  std::optional<std::int64_t> otherwise = std::nullopt) const {
    const std::string full = key(name);
    const auto value = uniform_integer(full);
    if (!value && !otherwise) {
      throw fail(Errc::kCorrupt, "{}: no {}", file_.name(), full);
    }
    return checked_size(value ? *value : *otherwise, limit, full, file_.name());
  }

  // Some files state one value per layer; this runtime needs them to be the same.
  [[nodiscard]] std::optional<std::int64_t> uniform_integer(const std::string& full) const {
    const GgufValue* value = file_.find(full);
    if (value == nullptr || !value->is_array()) {
      return file_.integer(full);
    }
    if (value->size() == 0) {
      throw fail(Errc::kCorrupt, "{}: {} is an empty array", file_.name(), full);
    }
    const auto first = value->integer();
    for (std::uint64_t i = 0; i < value->size(); ++i) {
      if (!first || value->integer(i) != first) {
        throw fail(Errc::kUnsupported, "{}: {} differs between layers", file_.name(), full);
      }
    }
    return first;
  }

  void read_sizes() {
    config_.layers = size("block_count", kMaxLayers);
    config_.hidden = size("embedding_length", kMaxWidth);
    config_.feed_forward = size("feed_forward_length", kMaxWidth);
    config_.context_train = size("context_length", kMaxContext);
    config_.query_heads = size("attention.head_count", kMaxHeads);
    config_.kv_heads = size("attention.head_count_kv", kMaxHeads, config_.query_heads);
    config_.head_dim =
        size("attention.key_length", kMaxHeadDim, config_.hidden / config_.query_heads);
    if (size("attention.value_length", kMaxHeadDim, config_.head_dim) != config_.head_dim) {
      throw fail(
          Errc::kUnsupported, "{}: keys and values of different lengths per head", file_.name());
    }
    const std::string eps = key("attention.layer_norm_rms_epsilon");
    const auto value = file_.number(eps);
    if (!value) {
      throw fail(Errc::kCorrupt, "{}: no {}", file_.name(), eps);
    }
    config_.norm_eps = static_cast<float>(checked_positive(*value, eps, file_.name()));
  }

  void read_tensor_facts() {
    const GgufTensor* embedding = file_.find_tensor("token_embd.weight");
    if (embedding == nullptr) {
      throw fail(Errc::kCorrupt, "{}: no tensor 'token_embd.weight'", file_.name());
    }
    config_.vocab =
        checked_size(embedding->dims[1], kMaxWidth, "rows of token_embd.weight", file_.name());
    config_.tied_embeddings = file_.find_tensor("output.weight") == nullptr;
    config_.qkv_bias = config_.architecture == Architecture::kQwen2 ||
                       file_.find_tensor("blk.0.attn_q.bias") != nullptr;
    config_.qk_norm = config_.architecture == Architecture::kQwen3;
    config_.rope_layout =
        config_.architecture == Architecture::kLlama ? RopeLayout::kInterleaved : RopeLayout::kHalf;
  }

  void refuse_extensions() const {
    for (const std::string_view name :
         {"expert_count", "attention.sliding_window", "attention.relative_buckets_count"}) {
      if (uniform_integer(key(name)).value_or(0) != 0) {
        throw fail(Errc::kUnsupported, "{}: {} is not 0", file_.name(), key(name));
      }
    }
    const auto rotated = uniform_integer(key("rope.dimension_count"));
    if (rotated && *rotated != config_.head_dim) {
      throw fail(Errc::kUnsupported,
                 "{}: rope over {} of {} dimensions per head",
                 file_.name(),
                 *rotated,
                 config_.head_dim);
    }
  }

  [[nodiscard]] std::vector<double> read_rope() const {
    const std::string base_key = key("rope.freq_base");
    const double base =
        checked_positive(file_.number(base_key).value_or(10000.0), base_key, file_.name());
    std::vector<double> frequencies = rope_frequencies(base, config_.head_dim);
    const std::string type_key = key("rope.scaling.type");
    const auto type = file_.string(type_key);
    if (type && *type != "none" && *type != "linear") {
      throw fail(Errc::kUnsupported,
                 "{}: rope scaling '{}'; known are none, linear and llama3 (as rope_freqs.weight)",
                 file_.name(),
                 type->substr(0, 80));
    }
    if (!type || *type == "linear") {
      // Files older than rope.scaling.type carry the factor under rope.scale_linear.
      const std::string factor_key =
          key(type || file_.find(key("rope.scaling.factor")) != nullptr ? "rope.scaling.factor"
                                                                        : "rope.scale_linear");
      scale_linear(
          frequencies,
          checked_positive(file_.number(factor_key).value_or(1.0), factor_key, file_.name()));
    }
    apply_rope_factors(frequencies);
    return frequencies;
  }

  // Llama 3.1 and later: the converter stores what each frequency is divided by.
  void apply_rope_factors(std::vector<double>& frequencies) const {
    const GgufTensor* factors = file_.find_tensor("rope_freqs.weight");
    if (factors == nullptr) {
      return;
    }
    if (factors->dtype != DType::kF32 ||
        factors->elements() != static_cast<std::int64_t>(frequencies.size())) {
      throw fail(Errc::kCorrupt,
                 "{}: rope_freqs.weight has {} elements of {}, expected {} of F32",
                 file_.name(),
                 factors->elements(),
                 factors->type_name,
                 frequencies.size());
    }
    std::vector<float> values(frequencies.size());
    std::memcpy(values.data(), factors->data, values.size() * sizeof(float));
    for (std::size_t i = 0; i < values.size(); ++i) {
      frequencies[i] /=
          checked_positive(static_cast<double>(values[i]), "rope_freqs.weight", file_.name());
    }
  }

  const GgufFile& file_;
  std::string prefix_;
  ModelConfig config_;
};

}  // namespace

ModelConfig config_from_gguf(const GgufFile& file) { return GgufConfigReader(file).read(); }

}  // namespace rift::model
