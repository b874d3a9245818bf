// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/ops.h"

#include <cmath>

namespace rift::kernels::ref {
namespace {

/// Pair i of a head lies at (i * step, i * step + distance).
std::vector<double> rope(std::span<const float> x,
                         std::int64_t head_dim,
                         std::int64_t step,
                         std::int64_t distance,
                         const float* cos,
                         const float* sin) {
  std::vector<double> out(x.begin(), x.end());
  for (std::int64_t head = 0; head < static_cast<std::int64_t>(x.size()); head += head_dim) {
    for (std::int64_t i = 0; i < head_dim / 2; ++i) {
      const auto first = static_cast<std::size_t>(head + i * step);
      const auto second = first + static_cast<std::size_t>(distance);
      const double a = x[first];
      const double b = x[second];
      out[first] = a * cos[i] - b * sin[i];
      out[second] = b * cos[i] + a * sin[i];
    }
  }
  return out;
}

}  // namespace

std::vector<double> rms_norm(std::span<const float> x, std::span<const float> weight, float eps) {
  double sum = 0.0;
  for (const float value : x) {
    sum += static_cast<double>(value) * value;
  }
  const double root = std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.push_back(x[i] / root * weight[i]);
  }
  return out;
}

std::vector<double> rope_half(std::span<const float> x,
                              std::int64_t head_dim,
                              const float* cos,
                              const float* sin) {
  return rope(x, head_dim, 1, head_dim / 2, cos, sin);
}

std::vector<double> rope_interleaved(std::span<const float> x,
                                     std::int64_t head_dim,
                                     const float* cos,
                                     const float* sin) {
  return rope(x, head_dim, 2, 1, cos, sin);
}

std::vector<double> silu_multiply(std::span<const float> gate, std::span<const float> up) {
  std::vector<double> out;
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double g = gate[i];
    out.push_back(g / (1.0 + std::exp(-g)) * up[i]);
  }
  return out;
}

}  // namespace rift::kernels::ref
