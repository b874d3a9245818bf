// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/golden/golden_json.h"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rift::testing {

/// One tensor of a golden file, [shape] row-major. Exactly one of the two is filled.
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> floats;
  std::vector<std::int32_t> ints;
};

template <typename T>
std::vector<T> copy_as(std::string_view bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

/// All F32 and I32 tensors of a safetensors file: u64 length of the header, the header (JSON: name
/// -> dtype, shape, data_offsets), the data. Reads it apart from the runtime's own loader, so that
/// a mistake there cannot hide itself.
inline std::map<std::string, Tensor> golden_tensors(const std::filesystem::path& path) {
  const std::string file = read_bytes(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::string_view all(file);
  const std::string_view data = all.substr(sizeof(header_bytes) + header_bytes);
  const auto header = boost::json::parse(all.substr(sizeof(header_bytes), header_bytes));

  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.as_object()) {
    if (name == "__metadata__") {
      continue;
    }
    Tensor tensor;
    tensor.shape = boost::json::value_to<std::vector<std::int64_t>>(entry.at("shape"));
    const auto begin = entry.at("data_offsets").at(0).to_number<std::size_t>();
    const auto end = entry.at("data_offsets").at(1).to_number<std::size_t>();
    const std::string_view bytes = data.substr(begin, end - begin);
    if (entry.at("dtype").as_string() == "F32") {
      tensor.floats = copy_as<float>(bytes);
    } else if (entry.at("dtype").as_string() == "I32") {
      tensor.ints = copy_as<std::int32_t>(bytes);
    }
    tensors.emplace(std::string(name), std::move(tensor));
  }
  return tensors;
}

}  // namespace rift::testing
