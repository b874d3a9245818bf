// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace rift::model {

/// A tensor type of the GGUF format, also those that this runtime cannot compute with: their sizes
/// are still checked and their names still shown.
struct GgufTensorType {
  std::uint32_t number = 0;
  std::string_view name;
  std::int64_t block_elements = 1;
  std::uint64_t block_bytes = 1;
  std::optional<DType> dtype;
};

/// nullptr where the number is unknown.
[[nodiscard]] const GgufTensorType* find_gguf_tensor_type(std::uint32_t number);

}  // namespace rift::model
