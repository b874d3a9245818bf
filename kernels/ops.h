// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace rift::kernels {

/// Instruction set in use: "scalar", "avx2" or "avx512". Chosen once from the CPU;
/// RIFT_CPU_TARGET overrides downwards (an unknown or unavailable name is an Error).
[[nodiscard]] std::string_view cpu_target();

/// out[c] = x[c] / sqrt(mean(x^2) + eps) * weight[c]. x may be out.
void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, float* out);

/// Rotates pairs (i, i + D/2) of every head in place ("neox" layout): x [heads, D],
/// cos and sin [D/2] of the row's position.
void rope_half(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin);
/// Rotates pairs (2i, 2i + 1) in place (the layout of llama GGUF files).
void rope_interleaved(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin);

/// out[i] = silu(gate[i]) * up[i]. gate may be out.
void silu_multiply(std::span<const float> gate, std::span<const float> up, float* out);
/// x += y.
void add(std::span<float> x, std::span<const float> y);

/// Converts n floats to dtype F16, BF16 or F32, to nearest even.
void store_as(DType dtype, const float* from, void* to, std::int64_t n);
/// Converts n elements of F16, BF16 or F32 to floats, exact.
void load_as(DType dtype, const void* from, float* to, std::int64_t n);

}  // namespace rift::kernels
