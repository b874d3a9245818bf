// SPDX-License-Identifier: Apache-2.0
#include "policy/retained_mass.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

namespace rift::policy {

double retained_mass(std::span<const float> q,
                     MatView<const float> keys,
                     std::span<const Position> kept,
                     float scale) {
  RIFT_CHECK(keys.rows >= 1 && keys.cols == std::ssize(q),
             "keys [{}, {}], query [{}]",
             keys.rows,
             keys.cols,
             q.size());
  std::vector<double> weights(static_cast<std::size_t>(keys.rows));
  for (std::size_t j = 0; j < weights.size(); ++j) {
    weights[j] = std::inner_product(
        q.begin(),
        q.end(),
        keys.row(static_cast<std::int64_t>(j)),
        0.0,
        std::plus<>(),
        [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); });
    weights[j] *= static_cast<double>(scale);
  }
  const double top = *std::max_element(weights.begin(), weights.end());
  double total = 0.0;
  for (double& w : weights) {
    w = std::exp(w - top);
    total += w;
  }
  double sum = weights.back();
  for (const Position j : kept) {
    RIFT_CHECK(j >= 0 && j < keys.rows - 1, "position {} of {}", j, keys.rows - 1);
    sum += weights[static_cast<std::size_t>(j)];
  }
  return sum / total;
}

}  // namespace rift::policy
