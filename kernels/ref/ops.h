// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rift::kernels::ref {

/// Twins of kernels/ops.h in f64. Results have the size of x.
[[nodiscard]] std::vector<double> rms_norm(std::span<const float> x,
                                           std::span<const float> weight,
                                           float eps);
[[nodiscard]] std::vector<double> rope_half(std::span<const float> x,
                                            std::int64_t head_dim,
                                            const float* cos,
                                            const float* sin);
[[nodiscard]] std::vector<double> rope_interleaved(std::span<const float> x,
                                                   std::int64_t head_dim,
                                                   const float* cos,
                                                   const float* sin);
[[nodiscard]] std::vector<double> silu_multiply(std::span<const float> gate,
                                                std::span<const float> up);

}  // namespace rift::kernels::ref
