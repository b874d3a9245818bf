// SPDX-License-Identifier: Apache-2.0
#include "common/f16.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/quant_blocks.h"

#include <cmath>
#include <cstring>

namespace rift::kernels {
namespace {

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* out) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]) * x[i];
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(n));
  const float factor = 1.0F / std::sqrt(mean + eps);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = x[i] * factor * weight[i];
  }
}

/// Turns the pairs (x[i], x[i + distance]), i = 0, step, 2 step, ..
void rotate(float* x,
            std::int64_t pairs,
            std::int64_t step,
            std::int64_t distance,
            const float* cos,
            const float* sin) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    float& a = x[i * step];
    float& b = x[i * step + distance];
    const float rotated = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = rotated;
  }
}

void rope_half(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  for (std::int64_t h = 0; h < heads; ++h) {
    rotate(x + h * head_dim, head_dim / 2, 1, head_dim / 2, cos, sin);
  }
}

void rope_interleaved(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  for (std::int64_t h = 0; h < heads; ++h) {
    rotate(x + h * head_dim, head_dim / 2, 2, 1, cos, sin);
  }
}

void silu_multiply(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
  }
}

void add(float* x, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] += y[i];
  }
}

void store_as(DType type, const float* from, void* to, std::int64_t n) {
  if (type == DType::kF32) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  auto* bytes = static_cast<std::byte*>(to);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint16_t half = type == DType::kF16 ? f32_to_f16(from[i]) : f32_to_bf16(from[i]);
    std::memcpy(bytes + 2 * i, &half, sizeof(half));
  }
}

void load_as(DType type, const void* from, float* to, std::int64_t n) {
  dequantize(type, static_cast<const std::byte*>(from), n, to);
}

}  // namespace

const ElementwiseOps kElementwiseScalar = {
    rms_norm, rope_half, rope_interleaved, silu_multiply, add, store_as, load_as};

}  // namespace rift::kernels
