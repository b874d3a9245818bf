// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace rift {

/// What the draft keeps of its KV history (ARCHITECTURE.md, 4 and 5).
enum class Policy : std::uint8_t {
  kFull,          // everything; the arena holds the whole context
  kSwa,           // the B newest positions
  kSnapKv,        // chosen once after the prompt: r = window newest, k = B - window best
  kRiftStat,      // chosen once after the prompt: r = floor(rho B), k = B - r
  kRiftDyn,       // as rift-stat, chosen again every delta committed tokens
  kStreamingLlm,  // positions 0..3 (attention sinks) and the B - 4 newest
  kH2o,           // floor(B / 2) heavy hitters, the others newest; evicted one by one in decoding
  kRiftAda,       // as rift-dyn, chosen again when the draft's signals ask for it (AdaSpec)
};

/// What scores candidate positions (policy/README.md).
enum class Selector : std::uint8_t {
  kSnapKv,
  kCriticalKv,
  kExpectedAttention,
  kCurDkv,
  kTriAttention,
  kH2o,  // what the keys were given by all queries so far
};

/// How a layer's and the model's budget is divided among KV heads and layers; the total is the
/// same.
enum class Allocation : std::uint8_t { kUniform, kAdaKv, kPyramidKv };

/// Along the keys before the observation window, before the mean over a group's query heads.
enum class Pooling : std::uint8_t { kNone, kAverage, kMax };

/// How RIFT-ada joins its conditions.
enum class AdaGate : std::uint8_t {
  kOr,     // any of them asks for a refresh
  kAnd,    // all that have a threshold
  kScore,  // the weighted sum of the signals reaches score_threshold
};

[[nodiscard]] std::string_view to_string(Policy policy);
[[nodiscard]] std::string_view to_string(Selector selector);
[[nodiscard]] std::string_view to_string(Allocation allocation);
[[nodiscard]] std::string_view to_string(Pooling pooling);
[[nodiscard]] std::string_view to_string(AdaGate gate);
[[nodiscard]] std::optional<Policy> parse_policy(std::string_view name);
[[nodiscard]] std::optional<Selector> parse_selector(std::string_view name);
[[nodiscard]] std::optional<Allocation> parse_allocation(std::string_view name);
[[nodiscard]] std::optional<Pooling> parse_pooling(std::string_view name);
[[nodiscard]] std::optional<AdaGate> parse_ada_gate(std::string_view name);

/// When RIFT-ada refreshes (ARCHITECTURE.md, 5; golden signals.json). An infinite threshold is
/// switched off. Ages and the stride count committed tokens. Value type.
struct AdaSpec {
  static constexpr float kOff = std::numeric_limits<float>::infinity();
  /// Weights of: -acceptance, entropy, acceptance drop, entropy rise, drift. Not negative, so that
  /// the score never falls when a signal gets worse.
  static constexpr std::size_t kSignals = 5;

  std::int32_t stride = 16;      // d: the signals are looked at this often
  std::int32_t min_age = 32;     // since the last refresh; younger: never
  std::int32_t max_age = 768;    // this old: always
  float acceptance_low = -kOff;  // refresh at or below, accepted length
  float entropy_high = kOff;     // at or above, nats
  float acceptance_drop = kOff;  // since the last refresh, at or above
  float entropy_rise = kOff;     // since the last refresh, at or above
  float drift_high = kOff;       // above
  AdaGate gate = AdaGate::kOr;
  std::array<float, kSignals> weights{};
  float score_threshold = kOff;

  bool operator==(const AdaSpec&) const = default;
};

/// Parameters of one session's working set. Value type.
struct PolicySpec {
  Policy policy = Policy::kRiftDyn;
  std::int32_t budget = 1024;  // B: cached positions that a query may attend to, per KV head
  std::int32_t block = 16;     // P: positions per block
  float rho = 0.5F;            // share of B that is the recent window
  std::int32_t delta = 128;    // committed tokens between refreshes (rift-dyn)
  std::int32_t window = 64;    // observation window, queries
  std::int32_t staging_percent = 100;  // staging slots, as a share of the selected slots
  Selector selector = Selector::kSnapKv;
  Allocation allocation = Allocation::kUniform;
  Pooling pooling = Pooling::kNone;
  std::int32_t pool_width = 5;  // odd
  /// Tokens committed between a refresh's request and its swap: exactly so many, drafting waits for
  /// it if need be; -1: it is swapped in as soon as it is there.
  std::int32_t refresh_lag = -1;
  AdaSpec ada;

  bool operator==(const PolicySpec&) const = default;
};

}  // namespace rift
