// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/matmul.h"

#include <algorithm>
#include <cmath>

namespace rift::kernels::ref {

std::vector<double> round_activations(const float* x, std::int64_t n) {
  std::vector<double> out(static_cast<std::size_t>(n));
  for (std::int64_t group = 0; group < n; group += 32) {
    float largest = 0.0F;
    for (std::int64_t i = group; i < group + 32; ++i) {
      largest = std::max(largest, std::fabs(x[i]));
    }
    if (largest <= 1e-30F) {
      continue;
    }
    const float inverse = 127.0F / largest;
    for (std::int64_t i = group; i < group + 32; ++i) {
      const double rounded = std::nearbyint(x[i] * inverse);
      out[static_cast<std::size_t>(i)] = rounded * static_cast<double>(largest / 127.0F);
    }
  }
  return out;
}

MatmulResult matmul(MatView<const float> x, const WeightView& w, MatmulMode mode) {
  const bool rounded = mode == MatmulMode::kQuantized && block_elements(w.dtype) > 1;
  const auto cols = static_cast<std::size_t>(w.cols);
  MatmulResult result;
  std::vector<float> weights(cols);
  result.y.resize(static_cast<std::size_t>(x.rows * w.rows));
  result.magnitude.resize(result.y.size());
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const std::vector<double> row = rounded ? round_activations(x.row(t), x.cols)
                                            : std::vector<double>(x.row(t), x.row(t) + x.cols);
    for (std::int64_t n = 0; n < w.rows; ++n) {
      dequantize_row(w, n, weights.data());
      float widest = 0.0F;
      for (const float weight : weights) {
        widest = std::max(widest, std::fabs(weight));
      }
      double sum = 0.0;
      double magnitude = 0.0;
      for (std::size_t c = 0; c < cols; ++c) {
        sum += row[c] * weights[c];
        magnitude += std::fabs(row[c]) * (rounded ? widest : std::fabs(weights[c]));
      }
      result.y[static_cast<std::size_t>(t * w.rows + n)] = sum;
      result.magnitude[static_cast<std::size_t>(t * w.rows + n)] = magnitude;
    }
  }
  return result;
}

}  // namespace rift::kernels::ref
