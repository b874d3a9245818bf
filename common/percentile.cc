// SPDX-License-Identifier: Apache-2.0
#include "common/percentile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rift {

double percentile(std::vector<double> values, double q) {
  if (values.empty()) {
    return 0.0;
  }
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(values.size())));
  const std::size_t index = std::clamp<std::size_t>(rank, 1, values.size()) - 1;
  const auto found = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), found, values.end());
  return *found;
}

}  // namespace rift
