// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/working_set_layout.h"

#include <boost/json/value.hpp>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rift::cli {

struct MetadataLine {
  std::string key;
  std::string type;          // "u32", "string array [151936]"
  boost::json::value value;  // arrays: their first elements
  bool shortened = false;    // there are more elements
};

struct TensorLine {
  std::string name;
  std::string type;
  std::vector<std::int64_t> shape;  // outermost first
  std::uint64_t bytes = 0;
};

/// What a model file says about itself; also for architectures that cannot run. Value type.
struct ModelSummary {
  std::string file;
  std::string format;        // "GGUF v3", "safetensors"
  std::string architecture;  // empty where the file does not say
  std::string cannot_run;    // why; empty where it can
  std::uint64_t file_bytes = 0;
  std::int64_t parameters = 0;
  std::int64_t context_train = 0;      // 0: not stated
  std::int64_t sliding_window = 0;     // 0: none, or not stated
  std::optional<KvGeometry> geometry;  // f16; empty where heads differ between layers
  std::vector<MetadataLine> metadata;
  std::vector<TensorLine> tensors;
};

/// path: a .gguf file, a .safetensors file or a checkpoint folder.
/// Errors (thrown): kNotFound, kIo, kCorrupt, kUnsupported (the file's format, not its model).
[[nodiscard]] ModelSummary summarise_model(const std::filesystem::path& path);

}  // namespace rift::cli
