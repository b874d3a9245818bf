// SPDX-License-Identifier: Apache-2.0
#include "policy/selection.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace rift::policy {
namespace {

// Strict weak order: larger first, NaN last, then the lower index.
struct MoreValuable {
  std::span<const float> scores;

  bool operator()(std::int32_t a, std::int32_t b) const {
    const float x = scores[static_cast<std::size_t>(a)];
    const float y = scores[static_cast<std::size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) {
      return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
    }
    return x != y ? x > y : a < b;
  }
};

}  // namespace

std::vector<float> block_scores(std::span<const float> scores,
                                std::int32_t block,
                                std::int32_t limit) {
  RIFT_CHECK(block >= 1, "block = {}", block);
  RIFT_CHECK(limit <= static_cast<std::int64_t>(scores.size()), "limit = {}", limit);
  if (limit <= 0) {
    return {};
  }
  const auto count = static_cast<std::size_t>((std::int64_t{limit} + block - 1) / block);
  std::vector<float> means(count);
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t begin = j * static_cast<std::size_t>(block);
    const std::size_t size =
        std::min(static_cast<std::size_t>(block), static_cast<std::size_t>(limit) - begin);
    const std::span<const float> keys = scores.subspan(begin, size);
    means[j] = static_cast<float>(std::accumulate(keys.begin(), keys.end(), 0.0) /
                                  static_cast<double>(size));
  }
  return means;
}

std::vector<std::int32_t> top_k_ranked(std::span<const float> scores, std::int32_t count) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const std::ptrdiff_t kept =
      std::min(static_cast<std::ptrdiff_t>(std::max(count, 0)), std::ssize(order));
  const auto less = MoreValuable{scores};
  if (kept < std::ssize(order)) {
    std::nth_element(order.begin(), order.begin() + kept, order.end(), less);
    order.resize(static_cast<std::size_t>(kept));
  }
  std::sort(order.begin(), order.end(), less);
  return order;
}

std::vector<std::int32_t> top_k(std::span<const float> scores, std::int32_t count) {
  std::vector<std::int32_t> chosen = top_k_ranked(scores, count);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace rift::policy
