// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/matmul.h"

#include <vector>

namespace rift::kernels::ref {

/// Plain twins of the operations, for tests: one loop per formula, sums in f64, no tiles.

/// What kQuantized mode multiplies: per group of 32 columns x rounded to a multiple of
/// max|x| / 127. x [n] in f32, n a multiple of 32.
[[nodiscard]] std::vector<double> round_activations(const float* x, std::int64_t n);

/// y[t, n] = sum over c of x[t, c] w[n, c], and what rounding is measured by: magnitude[t, n] = the
/// sum of |x| |w|, in kQuantized mode with the row's largest |w| for each, since scaled integers
/// and offsets, which may cancel, are summed apart.
struct MatmulResult {
  std::vector<double> y;          // [T, rows]
  std::vector<double> magnitude;  // [T, rows]
};
[[nodiscard]] MatmulResult matmul(MatView<const float> x, const WeightView& w, MatmulMode mode);

}  // namespace rift::kernels::ref
