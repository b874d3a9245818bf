// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace rift {

/// What the draft keeps of its KV history (ARCHITECTURE.md, 4 and 5).
enum class Policy : std::uint8_t {
  kFull,      // everything; the arena holds the whole context
  kSwa,       // the B newest positions
  kSnapKv,    // chosen once after the prompt: r = window newest, k = B - window best
  kRiftStat,  // chosen once after the prompt: r = floor(rho B), k = B - r
  kRiftDyn,   // as rift-stat, chosen again every delta committed tokens
};

[[nodiscard]] std::string_view to_string(Policy policy);
[[nodiscard]] std::optional<Policy> parse_policy(std::string_view name);

/// Parameters of one session's working set. Value type.
struct PolicySpec {
  Policy policy = Policy::kRiftDyn;
  std::int32_t budget = 1024;  // B: cached positions that a query may attend to, per KV head
  std::int32_t block = 16;     // P: positions per block
  float rho = 0.5F;            // share of B that is the recent window
  std::int32_t delta = 128;    // committed tokens between refreshes (rift-dyn)
  std::int32_t window = 64;    // observation window, queries
  std::int32_t staging_percent = 100;  // staging slots, as a share of the selected slots

  bool operator==(const PolicySpec&) const = default;
};

}  // namespace rift
