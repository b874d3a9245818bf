// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace rift {

/// Value at quantile `q` (0 to 1) by the nearest-rank rule; 0 for no values.
[[nodiscard]] double percentile(std::vector<double> values, double q);

}  // namespace rift
