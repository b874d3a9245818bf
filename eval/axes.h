// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/types.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::eval {

// What of a setting a policy has at all, and how settings are told apart. Pure. Thread: any.

/// A number that a sweep varies.
enum class Axis : std::uint8_t { kBudget, kBlock, kRho, kDelta, kDraftLen };

[[nodiscard]] bool has_axis(Policy policy, Axis axis);
/// Precondition: has_axis.
[[nodiscard]] double axis_value(const Setting& setting, Axis axis);
/// Symbol of tables and plots: "B", "P", "ρ", "Δ", "γ" (UTF-8).
[[nodiscard]] std::string_view symbol(Axis axis);
/// Values over the rows that have the axis, ascending, each once.
[[nodiscard]] std::vector<double> axis_values(std::span<const Row> rows, Axis axis);

/// Scored by a selector, its budget divided by an allocation.
[[nodiscard]] bool has_selector(Policy policy);
/// Refreshes while the answer is being written.
[[nodiscard]] bool has_refreshes(Policy policy);

/// Reading order of results: full, swa, streaming-llm, h2o, snapkv, rift-stat, rift-dyn, rift-ada.
/// 0 to kPolicyRanks - 1.
[[nodiscard]] std::int32_t rank(Policy policy);
inline constexpr std::int32_t kPolicyRanks = 8;

/// Names of settings in plots: the policy and, of what differs between the rows of one evaluation,
/// everything but budget, block, ρ and γ. "rift-dyn Δ=32 curdkv". Keeps no reference to the rows.
class Labels {
 public:
  explicit Labels(std::span<const Row> rows);
  [[nodiscard]] std::string with_delta(const Setting& setting) const;
  [[nodiscard]] std::string without_delta(const Setting& setting) const;

 private:
  bool selector_ = false;
  bool allocation_ = false;
  bool pooling_ = false;
  bool window_ = false;
  bool lag_ = false;
  bool min_age_ = false;
  bool temperature_ = false;
};

/// "0.5", "16": as few digits as tell the value.
[[nodiscard]] std::string number(double value);
/// "as it comes" for -1.
[[nodiscard]] std::string lag_text(std::int32_t lag);

}  // namespace rift::eval
