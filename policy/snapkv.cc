// SPDX-License-Identifier: Apache-2.0
#include "policy/snapkv.h"

#include "common/check.h"

#include <algorithm>
#include <cstddef>

namespace rift::policy {
namespace {

// One pooled value: the `width` keys around j, those outside [0, keys.size()) being padding.
double pooled(std::span<const float> keys, std::int64_t j, Pooling pooling, std::int32_t width) {
  const std::int64_t begin = std::max<std::int64_t>(0, j - width / 2);
  const std::int64_t end = std::min<std::int64_t>(std::ssize(keys), j + width / 2 + 1);
  const std::span<const float> around =
      keys.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  if (pooling == Pooling::kMax) {
    return *std::max_element(around.begin(), around.end());
  }
  double sum = 0.0;
  for (const float s : around) {
    sum += s;
  }
  return sum / width;  // zeros outside count: always divided by the whole width
}

}  // namespace

void combine_heads(MatView<const float> per_head,
                   std::int32_t window,
                   Pooling pooling,
                   std::int32_t pool_width,
                   std::span<float> out) {
  RIFT_CHECK(per_head.rows >= 1 && per_head.cols == std::ssize(out),
             "per_head [{}, {}], out [{}]",
             per_head.rows,
             per_head.cols,
             out.size());
  RIFT_CHECK(pooling == Pooling::kNone || (pool_width >= 1 && pool_width % 2 == 1),
             "pool_width = {}",
             pool_width);
  // Keys of the window neither take part in the pooling nor are changed by it.
  const std::int64_t before_window =
      pooling == Pooling::kNone ? 0 : std::max<std::int64_t>(0, per_head.cols - window);
  for (std::int64_t j = 0; j < per_head.cols; ++j) {
    double sum = 0.0;
    for (std::int64_t h = 0; h < per_head.rows; ++h) {
      const std::span<const float> row = per_head.row_span(h);
      sum +=
          j < before_window
              ? pooled(row.first(static_cast<std::size_t>(before_window)), j, pooling, pool_width)
              : row[static_cast<std::size_t>(j)];
    }
    out[static_cast<std::size_t>(j)] = static_cast<float>(sum / static_cast<double>(per_head.rows));
  }
}

}  // namespace rift::policy
