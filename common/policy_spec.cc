// SPDX-License-Identifier: Apache-2.0
#include "common/policy_spec.h"

#include <array>
#include <utility>

namespace rift {
namespace {

constexpr std::array<std::pair<Policy, std::string_view>, 5> kNames{{
    {Policy::kFull, "full"},
    {Policy::kSwa, "swa"},
    {Policy::kSnapKv, "snapkv"},
    {Policy::kRiftStat, "rift-stat"},
    {Policy::kRiftDyn, "rift-dyn"},
}};

}  // namespace

std::string_view to_string(Policy policy) {
  for (const auto& [value, name] : kNames) {
    if (value == policy) {
      return name;
    }
  }
  return "unknown";
}

std::optional<Policy> parse_policy(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace rift
