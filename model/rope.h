// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace rift::model {

/// Wavelength-dependent scaling of Llama 3.1: frequencies whose wavelength is above
/// original_context / low_factor are divided by `factor`, those below original_context /
/// high_factor stay, those between are interpolated.
struct Llama3Scaling {
  double factor = 1.0;
  double low_factor = 1.0;
  double high_factor = 4.0;
  double original_context = 8192.0;
};

/// base^(-2 i / D) for i < D / 2: radians per position. head_dim even. Computed in double.
[[nodiscard]] std::vector<double> rope_frequencies(double base, std::int32_t head_dim);

/// Linear scaling (position interpolation): every frequency divided by `factor`.
void scale_linear(std::vector<double>& frequencies, double factor);

void scale_llama3(std::vector<double>& frequencies, const Llama3Scaling& scaling);

}  // namespace rift::model
