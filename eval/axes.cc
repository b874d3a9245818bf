// SPDX-License-Identifier: Apache-2.0
#include "eval/axes.h"

#include <fmt/format.h>

#include <algorithm>

namespace rift::eval {

bool has_axis(Policy policy, Axis axis) {
  switch (axis) {
    case Axis::kBudget:
      return policy != Policy::kFull;
    case Axis::kBlock:
      return has_selector(policy);
    case Axis::kRho:
      return has_selector(policy) && policy != Policy::kSnapKv;
    case Axis::kDelta:
      return policy == Policy::kRiftDyn;
    case Axis::kDraftLen:
      return true;
  }
  return false;
}

double axis_value(const Setting& setting, Axis axis) {
  switch (axis) {
    case Axis::kBudget:
      return setting.policy.budget;
    case Axis::kBlock:
      return setting.policy.block;
    case Axis::kRho:
      return std::stod(number(setting.policy.rho));  // 0.7, not the float's 0.699999988
    case Axis::kDelta:
      return setting.policy.delta;
    case Axis::kDraftLen:
      return setting.draft_len;
  }
  return 0.0;
}

std::string_view symbol(Axis axis) {
  switch (axis) {
    case Axis::kBudget:
      return "B";
    case Axis::kBlock:
      return "P";
    case Axis::kRho:
      return "ρ";
    case Axis::kDelta:
      return "Δ";
    case Axis::kDraftLen:
      return "γ";
  }
  return "";
}

std::vector<double> axis_values(std::span<const Row> rows, Axis axis) {
  std::vector<double> out;
  for (const Row& row : rows) {
    if (has_axis(row.setting.policy.policy, axis)) {
      out.push_back(axis_value(row.setting, axis));
    }
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool has_selector(Policy policy) {
  switch (policy) {
    case Policy::kFull:
    case Policy::kSwa:
    case Policy::kStreamingLlm:
    case Policy::kH2o:
      return false;
    case Policy::kSnapKv:
    case Policy::kRiftStat:
    case Policy::kRiftDyn:
    case Policy::kRiftAda:
      return true;
  }
  return false;
}

bool has_refreshes(Policy policy) {
  return policy == Policy::kRiftDyn || policy == Policy::kRiftAda;
}

std::int32_t rank(Policy policy) {
  switch (policy) {
    case Policy::kFull:
      return 0;
    case Policy::kSwa:
      return 1;
    case Policy::kStreamingLlm:
      return 2;
    case Policy::kH2o:
      return 3;
    case Policy::kSnapKv:
      return 4;
    case Policy::kRiftStat:
      return 5;
    case Policy::kRiftDyn:
      return 6;
    case Policy::kRiftAda:
      return 7;
  }
  return 0;
}

namespace {

// Whether `value` differs between those rows whose policy `has` it.
template <typename Has, typename Value>
bool differs(std::span<const Row> rows, Has has, Value value) {
  const Setting* first = nullptr;
  for (const Row& row : rows) {
    if (!has(row.setting.policy.policy)) {
      continue;
    }
    if (first == nullptr) {
      first = &row.setting;
    } else if (value(*first) != value(row.setting)) {
      return true;
    }
  }
  return false;
}

bool is_ada(Policy policy) { return policy == Policy::kRiftAda; }

}  // namespace

Labels::Labels(std::span<const Row> rows)
    : selector_(differs(rows, has_selector, [](const Setting& s) { return s.policy.selector; })),
      allocation_(
          differs(rows, has_selector, [](const Setting& s) { return s.policy.allocation; })),
      pooling_(differs(rows, has_selector, [](const Setting& s) { return s.policy.pooling; })),
      window_(differs(rows, has_selector, [](const Setting& s) { return s.policy.window; })),
      lag_(differs(rows, has_refreshes, [](const Setting& s) { return s.policy.refresh_lag; })),
      min_age_(differs(rows, is_ada, [](const Setting& s) { return s.policy.ada.min_age; })),
      temperature_(differs(
          rows, [](Policy) { return true; }, [](const Setting& s) { return s.temperature; })) {}

std::string Labels::with_delta(const Setting& setting) const {
  std::string out = without_delta(setting);
  if (has_axis(setting.policy.policy, Axis::kDelta)) {
    const std::size_t name = to_string(setting.policy.policy).size();
    out.insert(name, fmt::format(" Δ={}", setting.policy.delta));
  }
  return out;
}

std::string Labels::without_delta(const Setting& setting) const {
  const PolicySpec& p = setting.policy;
  std::string out{to_string(p.policy)};
  const auto add = [&out](bool wanted, std::string_view text) {
    if (wanted) {
      out += ' ';
      out += text;
    }
  };
  const bool selects = has_selector(p.policy);
  add(min_age_ && is_ada(p.policy), fmt::format("age≥{}", p.ada.min_age));
  add(selects && selector_, to_string(p.selector));
  add(selects && allocation_, to_string(p.allocation));
  add(selects && pooling_, fmt::format("pooling={}", to_string(p.pooling)));
  add(selects && window_, fmt::format("w={}", p.window));
  add(lag_ && has_refreshes(p.policy), fmt::format("lag={}", lag_text(p.refresh_lag)));
  add(temperature_, fmt::format("T={}", number(setting.temperature)));
  return out;
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

std::string lag_text(std::int32_t lag) { return lag < 0 ? "as it comes" : std::to_string(lag); }

}  // namespace rift::eval
