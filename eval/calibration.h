// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"
#include "eval/types.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

// How thresholds of RIFT-ada are found (ARCHITECTURE.md, 5): signals of a calibration split give
// candidates, a selection split chooses among them, a confirmation split that nothing was chosen on
// tells what the choice is worth. Pure.
namespace rift::eval {

/// Indices of the sequences of each split, ascending.
struct Splits {
  std::vector<std::size_t> calibration, selection, confirmation;
};
/// Shuffles `count` sequences by `seed`: two fifths calibrate, the others are halved, each split
/// has one at least. Errors (thrown): kInvalidArgument for fewer than three.
[[nodiscard]] Splits split_sequences(std::size_t count, std::uint64_t seed);

/// A point of the trade-off that refreshes buy.
struct TradeOff {
  double refreshes_per_1k = 0.0;  // of committed tokens
  double accepted_length = 0.0;   // pooled
};
[[nodiscard]] TradeOff trade_off(std::span<const Measurement> runs);
/// Of the runs `drawn`, repeated ones counted again.
[[nodiscard]] TradeOff trade_off(std::span<const Measurement> runs,
                                 std::span<const std::size_t> drawn);

struct Comparison {
  /// Accepted length over that of the fixed schedules at the same number of refreshes.
  double gain = 0.0;
  /// Share of refreshes saved against the fixed schedules at the same accepted length: 1 - r / r'.
  double reduction = 0.0;
};
/// `fixed`: the same sequences under schedules that refresh at fixed distances, and under none.
/// Between their points straight lines are drawn, with the best accepted length for at most so many
/// refreshes; beyond the ends the ends' values hold.
[[nodiscard]] Comparison compare(const TradeOff& point, std::vector<TradeOff> fixed);

/// A candidate, and what it is for people.
struct Candidate {
  AdaSpec ada;
  std::string name;
};
/// Thresholds at percentiles of the signals that `collected` saw at ages of `base.min_age` and
/// more: each signal alone, all of one severity together (or), pairs (and), and a weighted sum of
/// all, fitted with weights that are not negative to how far the next stride's accepted length
/// falls short of the base. Stride and ages are `base`'s.
[[nodiscard]] std::vector<Candidate> candidates(std::span<const Measurement> collected,
                                                const AdaSpec& base);

/// Least squares with x >= 0: columns [n][m], target [m]. Coordinate descent to convergence.
[[nodiscard]] std::vector<double> nonnegative_least_squares(
    const std::vector<std::vector<double>>& columns, const std::vector<double>& target);

}  // namespace rift::eval
