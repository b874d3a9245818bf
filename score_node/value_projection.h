// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"
#include "common/types.h"
#include "kernels/matmul.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rift::score_node {

struct ProjectionShape {
  std::int32_t query_heads = 0;  // H
  std::int32_t kv_heads = 0;     // G
  std::int32_t head_dim = 0;     // D
  std::int32_t hidden = 0;       // C
};

/// What a value adds to the residual stream at most: per KV head the mean over its query heads h of
/// |v W_o^h|_1 (CriticalKV; golden `value_projection_norm`). In f32, weights dequantised; a value's
/// norm has the same bits in every batch. Holds scratch that grows to the largest batch.
/// Thread: the pool's owner.
class ValueProjection {
 public:
  explicit ValueProjection(const ProjectionShape& shape);

  /// o [C, H D]; values [T, G D]; norms [G, T], overwritten.
  void norms(const kernels::WeightView& o,
             MatView<const float> values,
             MatView<float> norms,
             ThreadPool& pool);

 private:
  /// Rows [begin, end) of o, divided by query head: weights_ [H, end - begin, D].
  void load_rows(const kernels::WeightView& o,
                 std::int64_t begin,
                 std::int64_t end,
                 ThreadPool& pool);

  ProjectionShape shape_;
  std::vector<std::unique_ptr<kernels::Activations>> activations_;  // [G]
  std::int64_t reserved_rows_ = 0;
  std::vector<float> weights_;
  std::vector<float> products_;  // [T, rows of o at a time]
};

}  // namespace rift::score_node
