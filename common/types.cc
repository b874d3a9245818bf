// SPDX-License-Identifier: Apache-2.0
#include "common/types.h"

#include "common/check.h"

namespace rift {
namespace {

struct TypeInfo {
  std::string_view name;
  std::int64_t elements;
  std::size_t bytes;
};

TypeInfo info(DType type) {
  switch (type) {
    case DType::kF32:
      return {"F32", 1, 4};
    case DType::kF16:
      return {"F16", 1, 2};
    case DType::kBF16:
      return {"BF16", 1, 2};
    case DType::kQ4_0:
      return {"Q4_0", 32, 18};
    case DType::kQ4_1:
      return {"Q4_1", 32, 20};
    case DType::kQ5_0:
      return {"Q5_0", 32, 22};
    case DType::kQ5_1:
      return {"Q5_1", 32, 24};
    case DType::kQ8_0:
      return {"Q8_0", 32, 34};
    case DType::kQ4_K:
      return {"Q4_K", 256, 144};
    case DType::kQ5_K:
      return {"Q5_K", 256, 176};
    case DType::kQ6_K:
      return {"Q6_K", 256, 210};
  }
  RIFT_CHECK(false, "DType {}", static_cast<int>(type));
}

}  // namespace

std::string_view to_string(DType type) { return info(type).name; }
std::int64_t block_elements(DType type) { return info(type).elements; }
std::size_t block_bytes(DType type) { return info(type).bytes; }

std::size_t row_bytes(DType type, std::int64_t cols) {
  const TypeInfo t = info(type);
  RIFT_CHECK(cols >= 0 && cols % t.elements == 0, "{} columns of {}", cols, t.name);
  return static_cast<std::size_t>(cols / t.elements) * t.bytes;
}

}  // namespace rift
