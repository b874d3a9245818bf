// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/gguf.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rift::model {

/// Reads one GGUF file's header front to back. Private to gguf.cc.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string name);

  /// Errors (thrown): as GgufFile::parse.
  [[nodiscard]] GgufFile parse();

 private:
  [[nodiscard]] std::uint64_t left() const { return bytes_.size() - at_; }
  std::span<const std::byte> take(std::uint64_t count, std::string_view what);
  template <typename T>
  T read(std::string_view what);
  std::string_view read_string(std::string_view what);
  GgufType read_type(std::string_view key);
  GgufValue read_value(std::string_view key);
  GgufValue read_array(std::string_view key);

  void read_header();
  void read_metadata();
  void read_alignment();
  void read_tensor_table();
  GgufTensor read_tensor();
  void read_dimensions(GgufTensor& tensor);
  void set_type(GgufTensor& tensor, std::uint32_t number);
  void place_tensors();

  std::span<const std::byte> bytes_;
  std::uint64_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t key_count_ = 0;
  std::vector<std::uint64_t> offsets_;  // of tensors, from the start of the data
  GgufFile file_;
};

}  // namespace rift::model
