// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::kernels {

/// Keys of one KV head, [N, D] contiguous, D a multiple of 8.
struct KeyPlane {
  const void* keys = nullptr;
  DType dtype = DType::kF16;  // F16, BF16 or F32
  std::int32_t count = 0;     // N
  std::int32_t head_dim = 0;  // D
};

/// out[j] = linear . k_j + k_j^T M k_j, in f32. linear [D], matrix [D, D] row-major, out [N].
/// Single-threaded: callers run heads side by side. Cost: N D^2 multiply-adds.
void quadratic_scores(const KeyPlane& plane,
                      std::span<const float> linear,
                      std::span<const float> matrix,
                      std::span<float> out);

/// Which elements of a head RoPE rotates together: (f, f + D/2) or (2f, 2f + 1).
enum class RopePairs : std::uint8_t { kHalf, kInterleaved };

/// out[i, j] = linear_i . k_j + sum over pairs f of norm_i[f] |k_j|_f for n rows i, where |k|_f is
/// the length of the pair f of k. linear [n, D], norm [n, D / 2], out [n, N]; f32.
/// Single-threaded. Cost: 1.5 n N D multiply-adds.
void pair_scores(const KeyPlane& plane,
                 RopePairs pairs,
                 MatView<const float> linear,
                 MatView<const float> norm,
                 MatView<float> out);

/// out[j] = |x_j|^2 of the N vectors of a plane of keys or values, summed in f64.
void squared_norms(const KeyPlane& plane, std::span<float> out);

}  // namespace rift::kernels
