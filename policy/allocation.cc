// SPDX-License-Identifier: Apache-2.0
#include "policy/allocation.h"

#include "common/check.h"
#include "policy/selection.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>

namespace rift::policy {
namespace {

constexpr std::int32_t kAll = std::numeric_limits<std::int32_t>::max();

/// How many of the `count` best candidates of all heads, each head's `skip` best left out, belong
/// to each head. The candidates of all heads in one row, so that top_k's order is the lower head,
/// then the lower index.
std::vector<std::int32_t> best_of_all(std::span<const std::vector<float>> scores,
                                      std::int64_t skip,
                                      std::int64_t count) {
  std::vector<float> all;
  std::vector<std::size_t> owner;
  for (std::size_t head = 0; head < scores.size(); ++head) {
    std::vector<bool> skipped(scores[head].size());
    const auto first = static_cast<std::int32_t>(std::min<std::int64_t>(skip, kAll));
    for (const std::int32_t i : top_k_ranked(scores[head], first)) {
      skipped[static_cast<std::size_t>(i)] = true;
    }
    for (std::size_t i = 0; i < scores[head].size(); ++i) {
      if (!skipped[i]) {
        all.push_back(scores[head][i]);
        owner.push_back(head);
      }
    }
  }
  std::vector<std::int32_t> counts(scores.size());
  const auto taken = static_cast<std::int32_t>(std::clamp<std::int64_t>(count, 0, kAll));
  for (const std::int32_t i : top_k_ranked(all, taken)) {
    ++counts[owner[static_cast<std::size_t>(i)]];
  }
  return counts;
}

/// Rounds parts [n] (numerators over one denominator) down and gives `total` minus their sum, one
/// each, to the largest remainders; equal ones: the lower index.
std::vector<std::int32_t> round_to_total(std::span<const std::int64_t> parts,
                                         std::int64_t denominator,
                                         std::int64_t total) {
  std::vector<std::int32_t> rounded(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    rounded[i] = static_cast<std::int32_t>(parts[i] / denominator);
    total -= rounded[i];
  }
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return parts[a] % denominator > parts[b] % denominator;
  });
  for (std::size_t i = 0; i < order.size() && std::cmp_less(i, total); ++i) {
    ++rounded[order[i]];
  }
  return rounded;
}

std::vector<std::int32_t> mixed(std::span<const std::vector<float>> scores,
                                std::int64_t total,
                                std::int32_t count,
                                Fraction alpha) {
  // share_h = (1 - alpha) c_h + alpha k, times alpha's denominator.
  std::vector<std::int64_t> shares;
  for (const std::int32_t free : best_of_all(scores, 0, total)) {
    shares.push_back(std::int64_t{alpha.denominator - alpha.numerator} * free +
                     std::int64_t{alpha.numerator} * count);
  }
  return round_to_total(shares, alpha.denominator, total);
}

}  // namespace

std::vector<std::int32_t> ada_kv_counts(std::span<const std::vector<float>> scores,
                                        std::int32_t count,
                                        Fraction alpha,
                                        AdaKvRule rule) {
  RIFT_CHECK(count >= 0 && alpha.denominator >= 1 && alpha.numerator >= 0 &&
                 alpha.numerator <= alpha.denominator,
             "count {}, alpha {} / {}",
             count,
             alpha.numerator,
             alpha.denominator);
  const std::int64_t total = std::ssize(scores) * count;
  std::vector<std::int32_t> counts;
  if (rule == AdaKvRule::kMix) {
    counts = mixed(scores, total, count, alpha);
  } else {
    const std::int64_t floor = std::int64_t{alpha.numerator} * count / alpha.denominator;
    counts = best_of_all(scores, floor, total - std::ssize(scores) * floor);
    for (std::int32_t& kept : counts) {
      kept += static_cast<std::int32_t>(floor);
    }
  }
  for (std::size_t head = 0; head < counts.size(); ++head) {
    counts[head] = std::min(counts[head], static_cast<std::int32_t>(scores[head].size()));
  }
  return counts;
}

std::vector<std::int32_t> pyramid_kv_counts(std::int32_t layers,
                                            std::int32_t count,
                                            std::int32_t beta,
                                            std::int32_t available) {
  RIFT_CHECK(
      layers >= 1 && count >= 0 && beta >= 1, "{} layers, count {}, beta {}", layers, count, beta);
  if (layers == 1 || available <= count) {
    return std::vector<std::int32_t>(static_cast<std::size_t>(layers), count);
  }
  // In units of 1 / beta: low = c, high = (2 beta - 1) c, both capped so that their sum stays 2 c.
  const std::int64_t twice = 2 * std::int64_t{count} * beta;
  const std::int64_t high = std::min(twice - count, std::int64_t{available} * beta);
  const std::int64_t low = twice - high;
  // share_l = high - l (high - low) / (L - 1), over beta (L - 1).
  std::vector<std::int64_t> shares;
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    shares.push_back(high * (layers - 1) - layer * (high - low));
  }
  return round_to_total(
      shares, std::int64_t{beta} * (layers - 1), std::int64_t{layers} * std::int64_t{count});
}

}  // namespace rift::policy
