// SPDX-License-Identifier: Apache-2.0
#include "model/rope.h"

#include <cmath>
#include <numbers>

namespace rift::model {

std::vector<double> rope_frequencies(double base, std::int32_t head_dim) {
  std::vector<double> frequencies;
  for (std::int32_t i = 0; i < head_dim / 2; ++i) {
    frequencies.push_back(std::pow(base, -2.0 * i / head_dim));
  }
  return frequencies;
}

void scale_linear(std::vector<double>& frequencies, double factor) {
  for (double& frequency : frequencies) {
    frequency /= factor;
  }
}

void scale_llama3(std::vector<double>& frequencies, const Llama3Scaling& scaling) {
  const double longest = scaling.original_context / scaling.low_factor;
  const double shortest = scaling.original_context / scaling.high_factor;
  for (double& frequency : frequencies) {
    const double wavelength = 2.0 * std::numbers::pi / frequency;
    if (wavelength > longest) {
      frequency /= scaling.factor;
    } else if (wavelength >= shortest) {
      const double kept = (scaling.original_context / wavelength - scaling.low_factor) /
                          (scaling.high_factor - scaling.low_factor);
      frequency = (1.0 - kept) * frequency / scaling.factor + kept * frequency;
    }
  }
}

}  // namespace rift::model
