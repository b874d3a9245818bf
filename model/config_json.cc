// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "model/config.h"
#include "model/config_check.h"
#include "model/json_file.h"
#include "model/rope.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <optional>
#include <string>

namespace rift::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxConfigBytes = 16 << 20;

// Reads keys of one JSON object; an absent key and null are the same.
class Keys {
 public:
  Keys(const json::object& object, std::string_view file) : object_(object), file_(file) {}

  [[nodiscard]] const json::value* find(std::string_view key) const {
    const json::value* value = object_.if_contains(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!value->is_int64()) {
      throw wrong(key, "an integer below 2^63");
    }
    return value->get_int64();
  }
  [[nodiscard]] std::optional<double> number(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!value->is_number()) {
      throw wrong(key, "a number");
    }
    return value->to_number<double>();
  }
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const {
    const json::value* value = find(key);
    if (value == nullptr) {
      return otherwise;
    }
    if (!value->is_bool()) {
      throw wrong(key, "true or false");
    }
    return value->get_bool();
  }
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!value->is_string()) {
      throw wrong(key, "a string");
    }
    return std::string(std::string_view(value->get_string()).substr(0, 80));
  }
  [[nodiscard]] std::optional<Keys> object(std::string_view key) const {
    const json::value* value = find(key);
    if (value == nullptr) {
      return std::nullopt;
    }
    if (!value->is_object()) {
      throw wrong(key, "an object");
    }
    return Keys(value->get_object(), file_);
  }
  [[nodiscard]] double required_number(std::string_view key) const {
    const auto value = number(key);
    if (!value) {
      throw fail(Errc::kCorrupt, "{}: no {}", file_, key);
    }
    return checked_positive(*value, key, file_);
  }
  [[nodiscard]] std::int32_t size(std::string_view key,
                                  std::int64_t limit,
                                  std::optional<std::int64_t> otherwise = std::nullopt) const {
    const auto value = integer(key);
    if (!value && !otherwise) {
      throw fail(Errc::kCorrupt, "{}: no {}", file_, key);
    }
    return checked_size(value ? *value : *otherwise, limit, key, file_);
  }

 private:
  [[nodiscard]] Error wrong(std::string_view key, std::string_view expected) const {
    return fail(Errc::kCorrupt, "{}: {} is not {}", file_, key, expected);
  }
  const json::object& object_;
  std::string_view file_;
};

void read_sizes(const Keys& keys, ModelConfig& config) {
  config.layers = keys.size("num_hidden_layers", kMaxLayers);
  config.hidden = keys.size("hidden_size", kMaxWidth);
  config.feed_forward = keys.size("intermediate_size", kMaxWidth);
  config.vocab = keys.size("vocab_size", kMaxWidth);
  config.context_train = keys.size("max_position_embeddings", kMaxContext);
  config.query_heads = keys.size("num_attention_heads", kMaxHeads);
  config.kv_heads = keys.size("num_key_value_heads", kMaxHeads, config.query_heads);
  config.head_dim = keys.size("head_dim", kMaxHeadDim, config.hidden / config.query_heads);
  config.norm_eps = static_cast<float>(keys.required_number("rms_norm_eps"));
}

// What published checkpoints of these families can switch on and this runtime does not compute.
void refuse_extensions(const Keys& keys, const ModelConfig& config, std::string_view file) {
  if (const auto act = keys.text("hidden_act"); act && *act != "silu") {
    throw fail(Errc::kUnsupported, "{}: hidden_act '{}'; only silu can be run", file, *act);
  }
  if (config.architecture != Architecture::kQwen2 && keys.flag("attention_bias", false)) {
    throw fail(Errc::kUnsupported, "{}: attention_bias is true", file);
  }
  if (keys.flag("mlp_bias", false)) {
    throw fail(Errc::kUnsupported, "{}: mlp_bias is true", file);
  }
  if (keys.flag("use_sliding_window", false)) {
    throw fail(Errc::kUnsupported, "{}: use_sliding_window is true", file);
  }
  if (keys.number("partial_rotary_factor").value_or(1.0) != 1.0) {
    throw fail(Errc::kUnsupported, "{}: partial_rotary_factor is not 1", file);
  }
  if (keys.find("quantization_config") != nullptr) {
    throw fail(Errc::kUnsupported,
               "{}: quantised checkpoint (quantization_config); use a GGUF file or the original",
               file);
  }
  const json::value* types = keys.find("layer_types");
  if (types == nullptr) {
    return;
  }
  if (!types->is_array()) {
    throw fail(Errc::kCorrupt, "{}: layer_types is not an array", file);
  }
  for (const json::value& type : types->get_array()) {
    if (!type.is_string() || type.get_string() != "full_attention") {
      throw fail(Errc::kUnsupported,
                 "{}: layer type {}; only full_attention can be run",
                 file,
                 json::serialize(type).substr(0, 80));
    }
  }
}

void scale_rope(const Keys& scaling,
                const ModelConfig& config,
                std::string_view file,
                std::vector<double>& frequencies) {
  const std::string type =
      scaling.text("rope_type").value_or(scaling.text("type").value_or("default"));
  if (type == "default") {
    return;
  }
  if (type == "linear") {
    scale_linear(frequencies, scaling.required_number("factor"));
    return;
  }
  if (type != "llama3") {
    throw fail(
        Errc::kUnsupported, "{}: rope scaling '{}'; known are default, linear, llama3", file, type);
  }
  Llama3Scaling parameters;
  parameters.factor = scaling.required_number("factor");
  parameters.low_factor = scaling.required_number("low_freq_factor");
  parameters.high_factor = scaling.required_number("high_freq_factor");
  parameters.original_context = checked_positive(
      scaling.number("original_max_position_embeddings").value_or(config.context_train),
      "original_max_position_embeddings",
      file);
  if (parameters.high_factor <= parameters.low_factor) {
    throw fail(Errc::kCorrupt,
               "{}: high_freq_factor {} is not above low_freq_factor {}",
               file,
               parameters.high_factor,
               parameters.low_factor);
  }
  scale_llama3(frequencies, parameters);
}

std::vector<double> read_rope(const Keys& keys, const ModelConfig& config, std::string_view file) {
  const auto current = keys.object("rope_parameters");
  const auto legacy = keys.object("rope_scaling");
  double base = keys.number("rope_theta").value_or(10000.0);
  if (current) {
    base = current->number("rope_theta").value_or(base);
    if (current->number("partial_rotary_factor").value_or(1.0) != 1.0) {
      throw fail(Errc::kUnsupported, "{}: partial_rotary_factor is not 1", file);
    }
  }
  std::vector<double> frequencies =
      rope_frequencies(checked_positive(base, "rope_theta", file), config.head_dim);
  if (current || legacy) {
    scale_rope(current ? *current : *legacy, config, file, frequencies);
  }
  return frequencies;
}

}  // namespace

ModelConfig config_from_json(const json::value& document, std::string_view name) {
  const json::object* object = document.if_object();
  if (object == nullptr) {
    throw fail(Errc::kCorrupt, "{}: config.json is not a JSON object", name);
  }
  const Keys keys(*object, name);
  const auto type = keys.text("model_type");
  if (!type) {
    throw fail(Errc::kCorrupt, "{}: no model_type", name);
  }
  ModelConfig config;
  config.architecture = parse_architecture(*type, name);
  config.name = name;
  read_sizes(keys, config);
  refuse_extensions(keys, config, name);
  config.tied_embeddings = keys.flag("tie_word_embeddings", false);
  config.qkv_bias = config.architecture == Architecture::kQwen2;
  config.qk_norm = config.architecture == Architecture::kQwen3;
  config.rope_layout = RopeLayout::kHalf;
  finish_config(config, read_rope(keys, config, name), name);
  return config;
}

ModelConfig read_config_json(const std::filesystem::path& path) {
  const json::value document = read_json(path, kMaxConfigBytes);
  const auto folder = std::filesystem::absolute(path).parent_path().filename();
  ModelConfig config = config_from_json(document, path.string());
  config.name = folder.string();
  return config;
}

}  // namespace rift::model
