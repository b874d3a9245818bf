// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/run_options.h"

#include <boost/json/object.hpp>

#include <cstdint>
#include <string>

namespace rift::cli {

/// Chi-square test of the law of short answers at temperature 1.
struct LawResult {
  std::int32_t samples = 0;
  std::int32_t cells = 0;  // after unlikely answers were joined
  double statistic = 0.0;
  double p_value = 1.0;
  double accepted_length = 0.0;

  /// Fixed before any run: a right implementation fails once in a thousand.
  static constexpr double kAlpha = 1e-3;
  /// One cell always fits: so few answers show nothing.
  [[nodiscard]] bool tested() const { return cells > 1; }
  [[nodiscard]] bool holds() const { return tested() && p_value >= kAlpha; }
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] boost::json::object to_json() const;
};

/// Pearson's statistic of observed counts against expected ones. Cells are joined from the
/// likeliest on until each expects five (what is left goes to the last), so the joining knows
/// nothing of the counts. counts and probabilities have one entry per cell, probabilities sum to 1.
[[nodiscard]] LawResult chi_square(const std::vector<std::int64_t>& counts,
                                   const std::vector<double>& probabilities);

/// Draws the first three tokens of `samples` answers with seeds 1, 2, ... over a vocabulary cut to
/// the four likeliest tokens (top-k), drafts on, and compares with the law computed from the
/// target's logits by plain forward passes. The second and third token are drafts or what replaced
/// them.
[[nodiscard]] LawResult test_law(Backend& backend,
                                 const ModelPair& models,
                                 const RunOptions& options,
                                 std::int32_t samples);

}  // namespace rift::cli
