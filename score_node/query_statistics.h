// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::score_node {

/// What is summed over the queries of a head before RoPE.
struct StatisticsSpec {
  enum class Second : std::uint8_t {
    kNone,         // nothing is kept at all
    kProducts,     // q q^T, [D, D]
    kPairLengths,  // length of every RoPE pair, [D / 2]
  };

  Second second = Second::kNone;
  std::int32_t skip = 0;  // positions below it are left out
  bool interleaved_pairs = false;

  bool operator==(const StatisticsSpec&) const = default;
};

/// Sums over a head's queries before RoPE, and over q q^T or the lengths of its pairs, for the
/// positions [skip, n) of any n of the newest `slack` positions: older queries are added up and
/// forgotten, the newest are kept. Position by position in f64, so that the sums up to n have the
/// same bits however the positions came. Memory: L H (D + D^2) doubles, or L H 1.5 D, and
/// slack L H D floats. Thread: one at a time.
class QueryStatistics {
 public:
  struct Shape {
    std::int32_t layers = 0;       // L
    std::int32_t query_heads = 0;  // H
    std::int32_t head_dim = 0;     // D
    std::int32_t slack = 0;        // positions
  };

  QueryStatistics(const Shape& shape, const StatisticsSpec& spec);

  [[nodiscard]] const StatisticsSpec& spec() const { return spec_; }
  [[nodiscard]] std::int32_t slack() const { return shape_.slack; }
  /// Queries [T, H D] of positions first .. of one layer; first is where the layer ends.
  void append(std::int32_t layer, Position first, MatView<const float> q);
  /// Forgets positions from `size` on. Where that reaches into what was added up, everything is
  /// forgotten. Returns the number of positions that are left: `size` or 0.
  Position truncate(Position size);
  /// Sums up to any n >= begin() can be had.
  [[nodiscard]] Position begin() const { return kept() ? folded_.front() : 0; }

  /// Means over [skip, n) of query head `head`: first [D]; second [D, D] or [D / 2] (of products:
  /// the biased covariance). Zeros where there are no such positions.
  void means(std::int32_t layer,
             std::int32_t head,
             Position n,
             std::span<double> first,
             std::span<double> second) const;
  [[nodiscard]] std::size_t second_size() const { return second_; }

  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] static std::uint64_t bytes(const Shape& shape, const StatisticsSpec& spec);

 private:
  [[nodiscard]] bool kept() const { return spec_.second != StatisticsSpec::Second::kNone; }
  [[nodiscard]] const float* query(std::int32_t layer, std::int32_t head, Position p) const;
  [[nodiscard]] std::size_t sum_offset(std::int32_t layer, std::int32_t head) const;
  /// Adds query q [D] to sums [D + second].
  void add(const float* q, double* sums) const;
  void fold_oldest(std::int32_t layer);

  Shape shape_;
  StatisticsSpec spec_;
  std::size_t second_ = 0;
  std::vector<double> sums_;      // [L, H, D + second]: of positions [skip, folded)
  std::vector<float> ring_;       // [L, slack, H, D]; position p at p mod slack
  std::vector<Position> folded_;  // [L]
  std::vector<Position> end_;     // [L]
};

}  // namespace rift::score_node
