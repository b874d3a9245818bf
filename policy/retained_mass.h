// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <span>

namespace rift::policy {

/// Share of a query's attention that falls on what is kept: p = softmax of scale q.k_j over
/// j in [0, N], the query's own key N included; the sum of p over `kept` and N.
/// q [D], keys [N + 1, D] f32 after RoPE; kept: distinct positions below N. In f64.
/// Source: paper, section 3 (figure 2); golden `<case>.mass`.
[[nodiscard]] double retained_mass(std::span<const float> q,
                                   MatView<const float> keys,
                                   std::span<const Position> kept,
                                   float scale);

}  // namespace rift::policy
