// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention.h"

#include <vector>

namespace rift::kernels::ref {

/// Twin of kernels::attend: softmax in two passes, f64. Returns [T, H * D].
[[nodiscard]] std::vector<double> attend(const AttendArgs& args);

/// Twin of kernels::window_scores. Returns [g, N].
[[nodiscard]] std::vector<double> window_scores(const WindowScoreArgs& args);

/// Twin of kernels::add_key_shares from zero. Returns [visible + T - 1].
[[nodiscard]] std::vector<double> key_shares(const KeyShareArgs& args);

}  // namespace rift::kernels::ref
