// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"
#include "common/types.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// SnapKV scores of one KV head from the per-query-head window scores (kernels::window_scores):
/// optional pooling along the keys before the window, then the mean over the group's heads.
/// per_head [g, N], out [N]. pool_width odd; ignored for kNone.
/// Source: Li et al. 2024; golden `score.snapkv.{none,avg5,max7}`.
void combine_heads(MatView<const float> per_head,
                   std::int32_t window,
                   Pooling pooling,
                   std::int32_t pool_width,
                   std::span<float> out);

}  // namespace rift::policy
