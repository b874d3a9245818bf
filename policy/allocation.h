// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// An exact share, so that no budget depends on rounding. denominator >= 1.
struct Fraction {
  std::int32_t numerator = 0;
  std::int32_t denominator = 1;
};

/// Part of a head's budget that Ada-KV never takes away from it: 0.2.
inline constexpr Fraction kAdaKvFloor{1, 5};
/// Ratio between the mean budget of a layer and that of the last one in PyramidKV.
inline constexpr std::int32_t kPyramidKvBeta = 20;

/// How Ada-KV guards heads against getting too little.
enum class AdaKvRule : std::uint8_t {
  kFloor,  // every head keeps its floor(alpha k) best; the rest is shared out by score
  kMix,    // alpha k + (1 - alpha) times what it would get by score alone
};

/// Numbers [G] of positions or blocks that every KV head of one layer keeps of its own best, in all
/// at most G count. scores [G][n], of candidates of the same kind; count = k. Ties go to the lower
/// head, then to the lower index; NaN counts as the smallest; a head never gets more than it has.
/// Errors: none. Thread: any. Cost: G n log(G n).
/// Source: Feng et al. 2024, Ada-KV, algorithm 1 (kFloor: as in its code); golden `adakv.*`.
[[nodiscard]] std::vector<std::int32_t> ada_kv_counts(std::span<const std::vector<float>> scores,
                                                      std::int32_t count,
                                                      Fraction alpha,
                                                      AdaKvRule rule);

/// Positions or blocks per KV head of every layer [layers] by PyramidKV: from high in layer 0
/// linearly down to low = count / beta in the last; their sum is layers * count. available: what
/// a layer has at most (the prompt before the recent window); a lower `high` raises `low`; where
/// even `count` is more than that, every layer gets `count`. Exact; what rounding down leaves goes
/// to the largest remainders, equal ones to the lower layer.
/// layers >= 1, count >= 0, beta >= 1.
/// Source: Cai et al. 2024, PyramidKV, section 3.2; golden `pyramidkv`.
[[nodiscard]] std::vector<std::int32_t> pyramid_kv_counts(std::int32_t layers,
                                                          std::int32_t count,
                                                          std::int32_t beta,
                                                          std::int32_t available);

}  // namespace rift::policy
