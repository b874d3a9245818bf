// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/panels.h"

#include "common/check.h"

#include <cstring>

namespace rift::kernels {
namespace {

/// A block's fields: f16 numbers, words, f16 numbers.
struct Fields {
  int halves_before;
  int words;
  int halves_after;
};

Fields fields_of(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {1, 4, 0};
    case DType::kQ4_1:
      return {2, 4, 0};
    case DType::kQ5_0:
      return {1, 5, 0};
    case DType::kQ5_1:
      return {2, 5, 0};
    case DType::kQ8_0:
      return {1, 8, 0};
    case DType::kQ4_K:
      return {0, 36, 0};
    case DType::kQ5_K:
      return {0, 44, 0};
    case DType::kQ6_K:
      return {0, 52, 1};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  RIFT_CHECK(false, "{} has no panels", to_string(type));
  return {};
}

/// Calls copy(offset in the row, bytes) for every field of `cols` elements.
template <class Copy>
void for_each_field(DType type, std::int64_t cols, const Copy& copy) {
  const Fields fields = fields_of(type);
  std::size_t at = 0;
  const auto repeat = [&](int count, std::size_t bytes) {
    for (int i = 0; i < count; ++i, at += bytes) {
      copy(at, bytes);
    }
  };
  for (std::int64_t block = 0; block < cols / block_elements(type); ++block) {
    repeat(fields.halves_before, 2);
    repeat(fields.words, 4);
    repeat(fields.halves_after, 2);
  }
}

}  // namespace

void pack_panel(
    DType type, const std::byte* const* rows, int panel_rows, std::int64_t cols, std::byte* panel) {
  for_each_field(type, cols, [&](std::size_t at, std::size_t bytes) {
    for (int lane = 0; lane < panel_rows; ++lane, panel += bytes) {
      std::memcpy(panel, rows[lane] + at, bytes);
    }
  });
}

void unpack_row(DType type,
                const std::byte* panel,
                int panel_rows,
                int lane,
                std::int64_t cols,
                std::byte* out) {
  const auto width = static_cast<std::size_t>(panel_rows);
  for_each_field(type, cols, [&](std::size_t at, std::size_t bytes) {
    std::memcpy(out + at, panel + width * at + static_cast<std::size_t>(lane) * bytes, bytes);
  });
}

}  // namespace rift::kernels
