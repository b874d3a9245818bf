// SPDX-License-Identifier: Apache-2.0
#include "common/policy_spec.h"

#include <array>
#include <cstddef>
#include <utility>

namespace rift {
namespace {

template <typename Value, std::size_t kCount>
using Names = std::array<std::pair<Value, std::string_view>, kCount>;

constexpr Names<Policy, 8> kPolicies{{
    {Policy::kFull, "full"},
    {Policy::kSwa, "swa"},
    {Policy::kSnapKv, "snapkv"},
    {Policy::kRiftStat, "rift-stat"},
    {Policy::kRiftDyn, "rift-dyn"},
    {Policy::kStreamingLlm, "streaming-llm"},
    {Policy::kH2o, "h2o"},
    {Policy::kRiftAda, "rift-ada"},
}};
constexpr Names<Selector, 6> kSelectors{{
    {Selector::kSnapKv, "snapkv"},
    {Selector::kCriticalKv, "critical-kv"},
    {Selector::kExpectedAttention, "expected-attention"},
    {Selector::kCurDkv, "curdkv"},
    {Selector::kTriAttention, "triattention"},
    {Selector::kH2o, "h2o"},
}};
constexpr Names<Allocation, 3> kAllocations{{
    {Allocation::kUniform, "uniform"},
    {Allocation::kAdaKv, "ada-kv"},
    {Allocation::kPyramidKv, "pyramidkv"},
}};
constexpr Names<Pooling, 3> kPoolings{{
    {Pooling::kNone, "none"},
    {Pooling::kAverage, "average"},
    {Pooling::kMax, "max"},
}};
constexpr Names<AdaGate, 3> kGates{{
    {AdaGate::kOr, "or"},
    {AdaGate::kAnd, "and"},
    {AdaGate::kScore, "score"},
}};

template <typename Value, std::size_t kCount>
std::string_view name_of(const Names<Value, kCount>& names, Value wanted) {
  for (const auto& [value, name] : names) {
    if (value == wanted) {
      return name;
    }
  }
  return "unknown";
}

template <typename Value, std::size_t kCount>
std::optional<Value> value_of(const Names<Value, kCount>& names, std::string_view wanted) {
  for (const auto& [value, name] : names) {
    if (name == wanted) {
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string_view to_string(Policy policy) { return name_of(kPolicies, policy); }
std::string_view to_string(Selector selector) { return name_of(kSelectors, selector); }
std::string_view to_string(Allocation allocation) { return name_of(kAllocations, allocation); }
std::string_view to_string(Pooling pooling) { return name_of(kPoolings, pooling); }
std::string_view to_string(AdaGate gate) { return name_of(kGates, gate); }

std::optional<Policy> parse_policy(std::string_view name) { return value_of(kPolicies, name); }
std::optional<Selector> parse_selector(std::string_view name) { return value_of(kSelectors, name); }
std::optional<Allocation> parse_allocation(std::string_view name) {
  return value_of(kAllocations, name);
}
std::optional<Pooling> parse_pooling(std::string_view name) { return value_of(kPoolings, name); }
std::optional<AdaGate> parse_ada_gate(std::string_view name) { return value_of(kGates, name); }

}  // namespace rift
