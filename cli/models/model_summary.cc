// SPDX-License-Identifier: Apache-2.0
#include "cli/models/model_summary.h"

#include "common/error.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/json_file.h"
#include "model/safetensors.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::uint64_t kShownElements = 6;
constexpr std::size_t kMaxConfigBytes = 16 << 20;
constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();

json::value element(const model::GgufValue& value, std::uint64_t i) {
  if (const auto text = value.string(i)) {
    return json::value(*text);
  }
  if (const auto flag = value.boolean(i)) {
    return *flag;
  }
  if (const auto integer = value.integer(i)) {
    return *integer;
  }
  const auto number = value.number(i);
  if (number && value.type() == model::GgufType::kF32) {
    // The shortest text that gives this float: 1e-06, not 9.999999974752427e-07.
    return std::stod(fmt::format("{}", static_cast<float>(*number)));
  }
  return number ? json::value(*number) : json::value(nullptr);
}

MetadataLine metadata_line(std::string_view key, const model::GgufValue& value) {
  MetadataLine line{std::string(key), std::string(to_string(value.type())), nullptr, false};
  if (!value.is_array()) {
    line.value = element(value, 0);
    return line;
  }
  json::array shown;
  for (std::uint64_t i = 0; i < std::min(value.size(), kShownElements); ++i) {
    shown.push_back(element(value, i));
  }
  line.type += fmt::format(" array [{}]", value.size());
  line.shortened = value.size() > kShownElements;
  line.value = std::move(shown);
  return line;
}

// Every key may be absent or strange here: the file is shown all the same.
std::optional<std::int64_t> lenient_integer(const model::GgufFile& file, const std::string& key) {
  const model::GgufValue* value = file.find(key);
  if (value == nullptr || value->size() == 0) {
    return std::nullopt;
  }
  const auto first = value->integer();
  for (std::uint64_t i = 1; i < value->size(); ++i) {
    if (value->integer(i) != first) {
      return std::nullopt;
    }
  }
  return first;
}

std::optional<KvGeometry> geometry_of(std::int64_t layers, std::int64_t heads, std::int64_t dim) {
  const auto fits = [](std::int64_t value) { return value >= 1 && value <= kMaxInt; };
  if (!fits(layers) || !fits(heads) || !fits(dim) || layers > kMaxInt / heads) {
    return std::nullopt;
  }
  return KvGeometry{static_cast<std::int32_t>(layers),
                    static_cast<std::int32_t>(heads),
                    static_cast<std::int32_t>(dim),
                    DType::kF16};
}

std::optional<KvGeometry> gguf_geometry(const model::GgufFile& file, const std::string& prefix) {
  const auto integer = [&](std::string_view name) {
    return lenient_integer(file, fmt::format("{}.{}", prefix, name));
  };
  const auto layers = integer("block_count");
  const auto heads = integer("attention.head_count");
  const bool stated = file.find(prefix + ".attention.head_count_kv") != nullptr;
  const auto kv_heads = stated ? integer("attention.head_count_kv") : heads;
  auto dim = integer("attention.key_length");
  if (!dim && heads && *heads > 0) {
    dim = integer("embedding_length").value_or(0) / *heads;
  }
  if (!layers || !kv_heads || !dim || integer("attention.value_length").value_or(*dim) != *dim) {
    return std::nullopt;
  }
  return geometry_of(*layers, *kv_heads, *dim);
}

template <typename Read>
std::string why_not(const Read& read) {
  try {
    (void)read();
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

ModelSummary summarise_gguf(const fs::path& path) {
  const auto file = model::GgufFile::open(path);
  ModelSummary summary;
  summary.file = path.string();
  summary.format = fmt::format("GGUF v{}", file->version());
  summary.file_bytes = file->file_bytes();
  for (const auto& [key, value] : file->metadata()) {
    summary.metadata.push_back(metadata_line(key, value));
  }
  for (const model::GgufTensor& tensor : file->tensors()) {
    TensorLine line{std::string(tensor.name), tensor.type_name, {}, tensor.bytes.value_or(0)};
    for (std::uint32_t d = tensor.rank; d > 0; --d) {
      line.shape.push_back(tensor.dims.at(d - 1));
    }
    summary.parameters += tensor.elements();
    summary.tensors.push_back(std::move(line));
  }
  const model::GgufValue* name = file->find("general.architecture");
  if (name != nullptr && name->size() == 1) {
    summary.architecture = name->string().value_or("");
  }
  summary.cannot_run = why_not([&] { return model::config_from_gguf(*file); });
  summary.geometry = gguf_geometry(*file, summary.architecture);
  summary.context_train =
      lenient_integer(*file, summary.architecture + ".context_length").value_or(0);
  summary.sliding_window =
      lenient_integer(*file, summary.architecture + ".attention.sliding_window").value_or(0);
  return summary;
}

void add_config(const fs::path& path, ModelSummary& summary) {
  const json::value document = model::read_json(path, kMaxConfigBytes);
  const json::object* object = document.if_object();
  if (object == nullptr) {
    return;
  }
  for (const auto& [key, value] : *object) {
    summary.metadata.push_back({std::string(key), std::string(to_string(value.kind())), value});
  }
  const json::value* type = object->if_contains("model_type");
  if (type != nullptr && type->is_string()) {
    summary.architecture = type->get_string();
  }
  try {
    const model::ModelConfig config = model::config_from_json(document, path.string());
    summary.geometry = geometry_of(config.layers, config.kv_heads, config.head_dim);
    summary.context_train = config.context_train;
  } catch (const Error& error) {
    summary.cannot_run = error.message();
  }
}

ModelSummary summarise_safetensors(const fs::path& path) {
  const auto file = model::Safetensors::open(path);
  ModelSummary summary;
  summary.file = path.string();
  summary.format = "safetensors";
  summary.file_bytes = file->file_bytes();
  for (const model::Safetensor& tensor : file->tensors()) {
    summary.parameters += tensor.elements();
    summary.tensors.push_back({tensor.name, tensor.dtype_name, tensor.shape, tensor.bytes});
  }
  const fs::path config = (fs::is_directory(path) ? path : path.parent_path()) / "config.json";
  if (fs::exists(config)) {
    add_config(config, summary);
  } else {
    summary.cannot_run = fmt::format("no {} beside it", config.string());
  }
  return summary;
}

}  // namespace

ModelSummary summarise_model(const fs::path& path) {
  if (!fs::exists(path)) {
    throw fail(Errc::kNotFound, "no model at {}", path.string());
  }
  const bool safetensors =
      fs::is_directory(path) || path.extension() == ".safetensors" || path.extension() == ".json";
  return safetensors ? summarise_safetensors(path) : summarise_gguf(path);
}

}  // namespace rift::cli
