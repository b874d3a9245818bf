// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace rift::target_node {

/// Seconds of a verification pass, as measured once: of 1, 2, ... rows on an empty cache and after
/// `depth` cached positions. Value type.
struct VerifyCosts {
  std::vector<double> empty;  // no costs: not measured
  std::vector<double> deep;   // as long
  std::int32_t depth = 0;

  /// The costs after `position` cached positions: each grows with every position by the same time,
  /// that of reading its key and value.
  [[nodiscard]] std::vector<double> at(std::int32_t position) const;
  bool operator==(const VerifyCosts&) const = default;
};

/// Chooses the draft length of every round of one session: the gamma with the most expected tokens
/// per second, (1 + sum over i <= gamma of the chance that drafts 1 .. i all hold) / (gamma draft
/// steps + a round trip to the draft node + a verification of gamma + 1 rows). Chances are counted
/// per position, recent rounds first; costs are those seen, and where none was seen yet those
/// measured beforehand.
/// 0 means that plain decoding pays better; then a short draft now and then shows whether it still
/// does. Knows nothing of the tokens that the round will draft, so that the law of the answer stays
/// the target's. Value type. Thread: one at a time.
class DraftLength {
 public:
  /// verify_seconds[w - 1]: of a pass of w rows, w = 1 .. longest + 1; empty if not measured.
  DraftLength(std::int32_t longest, std::vector<double> verify_seconds);

  /// A proposal of `tokens` >= 1 tokens arrived after `seconds`; of these the draft node says that
  /// it drafted for `draft_seconds`, what it cannot have taken longer than the wait.
  void drafted(std::int32_t tokens, double draft_seconds, double seconds);
  /// A pass over `drafted` drafts took `seconds`; the first `accepted` hold.
  void verified(std::int32_t drafted, std::int32_t accepted, double seconds);
  /// In [0, longest].
  [[nodiscard]] std::int32_t next();

 private:
  [[nodiscard]] double verify_cost(std::int32_t drafted) const;
  [[nodiscard]] std::int32_t best() const;

  std::int32_t longest_;
  std::vector<double> measured_;  // [longest + 1], beforehand
  std::vector<double> seen_;      // [longest + 1], of this session; 0: none yet
  double scale_ = 1.0;            // seen over measured
  bool scaled_ = false;
  bool drafts_seen_ = false;
  double step_seconds_ = 0.0;   // of a draft step
  double round_seconds_ = 0.0;  // of a round, besides its steps and its verification
  std::vector<double> tries_;   // [longest], fading
  std::vector<double> hits_;    // [longest]
  std::int32_t plain_rounds_ = 0;
};

}  // namespace rift::target_node
