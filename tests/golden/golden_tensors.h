// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rift::golden {

/// A tensor of a golden file, widened to one of two element types. Value type.
struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> f32;         // F32 tensors
  std::vector<std::int32_t> i32;  // I32 tensors

  /// Elements below the first `rank` axes, e.g. of one head of a [G, N, D] tensor for rank = 1.
  [[nodiscard]] std::int64_t stride(std::size_t rank) const {
    std::int64_t product = 1;
    for (std::size_t i = rank; i < shape.size(); ++i) {
      product *= shape[i];
    }
    return product;
  }
};

/// RIFT_GOLDEN, or the folder given at build time.
[[nodiscard]] std::filesystem::path golden_folder();
/// Throws std::runtime_error with the path where the file is missing or has other element types.
[[nodiscard]] std::map<std::string, Tensor> read_tensors(const std::filesystem::path& path);
[[nodiscard]] boost::json::value read_json(const std::filesystem::path& path);

}  // namespace rift::golden
