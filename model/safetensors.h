// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "model/mapped_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rift::model {

/// One entry of a safetensors header. shape outermost first; empty for a scalar.
struct Safetensor {
  std::string name;
  std::string dtype_name;      // as in the file, "F32", "I64", "F8_E4M3", ...
  std::optional<DType> dtype;  // F32, F16, BF16; empty: cannot be computed with
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  // into the mapping, any alignment
  std::uint64_t bytes = 0;

  [[nodiscard]] std::int64_t elements() const;
};

/// A safetensors checkpoint: one file, or all files named by an index. Every range is checked
/// against the file's size, and ranges must cover the data without overlap or hole, as the format
/// demands. Immutable. Thread: any.
class Safetensors {
 public:
  /// path: a .safetensors file, a model.safetensors.index.json, or a folder with either (the index
  /// wins). Errors (thrown): kNotFound, kIo, kCorrupt.
  [[nodiscard]] static std::shared_ptr<const Safetensors> open(const std::filesystem::path& path);
  /// One file held in memory; `bytes` outlive the result. Errors (thrown): kCorrupt.
  [[nodiscard]] static std::shared_ptr<const Safetensors> parse(std::span<const std::byte> bytes,
                                                                std::string name);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  /// In the order of their data; file by file.
  [[nodiscard]] std::span<const Safetensor> tensors() const { return tensors_; }
  /// nullptr where there is none.
  [[nodiscard]] const Safetensor* find(std::string_view name) const;

 private:
  Safetensors() = default;
  static std::shared_ptr<const Safetensors> open_index(const std::filesystem::path& path);
  void add_file(const std::filesystem::path& path);
  void add(std::span<const std::byte> bytes, const std::string& file);
  void build_index();

  std::string name_;
  std::uint64_t file_bytes_ = 0;
  std::vector<Safetensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> index_;
  std::vector<MappedFile> mappings_;
};

}  // namespace rift::model
