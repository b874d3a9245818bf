// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

// RIFT-ada: when a working set is chosen again (ARCHITECTURE.md, 5). Pure; definitions and expected
// values: golden signals.json.
namespace rift::policy {

/// H = -sum p ln p of p = softmax(logits), nats; temperature 1 over the whole vocabulary.
[[nodiscard]] double entropy(std::span<const float> logits);

/// Mean length of the newest four verification steps, `lengths` oldest first and not empty: step i
/// weighs (1 - 0.4)^age.
[[nodiscard]] double recent_acceptance(std::span<const double> lengths);

/// What RIFT-ada looks at when a stride ends.
struct Signals {
  std::int32_t age = 0;          // tokens committed since the last refresh
  double acceptance = 0.0;       // recent accepted length
  double acceptance_base = 0.0;  // the same in the first stride after the last refresh
  double entropy = 0.0;          // mean of the stride's draft steps, nats
  double entropy_base = 0.0;
  double drift = 0.0;  // QueryDrift, 0..2

  bool operator==(const Signals&) const = default;
};

/// What decided.
enum class AdaRule : std::uint8_t {
  kNone,
  kMinAge,  // too young
  kMaxAge,
  kAcceptanceLow,
  kEntropyHigh,
  kAcceptanceDrop,
  kEntropyRise,
  kDriftHigh,
  kAll,    // AdaGate::kAnd
  kScore,  // AdaGate::kScore
};
[[nodiscard]] std::string_view to_string(AdaRule rule);

struct AdaDecision {
  bool refresh = false;
  AdaRule rule = AdaRule::kNone;
};
/// Rules in the order of AdaRule. With kAnd no condition switched on means no.
[[nodiscard]] AdaDecision decide(const AdaSpec& spec, const Signals& signals);
/// The weighted sum that AdaGate::kScore compares with score_threshold.
[[nodiscard]] double ada_score(const AdaSpec& spec, const Signals& signals);

/// Query drift of one session: how far the mean query of the running stride has turned from that of
/// the stride in which the last refresh was decided. Rows are queries before RoPE; rows that are
/// pending belong to drafts and count once they are settled. All memory is taken in the
/// constructor. Thread: one at a time.
class QueryDrift {
 public:
  struct Shape {
    std::int32_t layers = 0;  // full-attention layers, L
    std::int32_t query_heads = 0;
    std::int32_t kv_heads = 0;  // G
    std::int32_t head_dim = 0;  // D
  };
  QueryDrift(const Shape& shape, std::int32_t max_pending);

  /// Queries [H, D] of pending row `row` in `layer`: their sum over each group replaces what the
  /// row had. row <= rows already put in every layer, < max_pending.
  void put(std::int32_t row, std::int32_t layer, const float* queries);
  /// The first `rows` pending rows belong to the stride, the others are forgotten.
  void settle(std::int32_t rows);
  /// Ends the stride. Its mean query becomes the reference if `refreshed`, or if there is none yet.
  void next_stride(bool refreshed);
  /// Mean over layers and KV heads of 1 - cosine of the stride's mean query, the first `pending`
  /// pending rows counted, to the reference's; 0 without a reference or without rows.
  [[nodiscard]] double drift(std::int32_t pending) const;
  [[nodiscard]] std::size_t bytes() const;

 private:
  [[nodiscard]] std::size_t size() const { return stride_.size(); }

  Shape shape_;
  std::vector<float> pending_;  // [max_pending, L, G, D]
  std::vector<double> stride_;  // [L, G, D], sum
  std::vector<double> reference_;
  std::int64_t rows_ = 0;  // settled in this stride
  bool has_reference_ = false;
};

/// One session's side of RIFT-ada: collects the signals of committed tokens and decides at the end
/// of each stride. Deterministic; nothing of a rejected draft enters. Value type.
class AdaState {
 public:
  AdaState(const AdaSpec& spec, std::int32_t committed)
      : spec_(spec), stride_begin_(committed), refreshed_at_(committed) {}

  /// A verification step committed `length` tokens, `committed` in all. `entropies`: of the draft
  /// steps at positions that are committed now; drift of the stride with them.
  void on_step(std::int32_t length, std::span<const float> entropies, double drift);
  /// Whether the stride is over after `committed` tokens; then decide() is due.
  [[nodiscard]] bool stride_over(std::int32_t committed) const {
    return committed - stride_begin_ >= spec_.stride;
  }
  /// Ends the stride and decides; `possible`: a refresh could be asked for now.
  [[nodiscard]] AdaDecision end_stride(std::int32_t committed, bool possible);
  /// Signals as the last end_stride() saw them.
  [[nodiscard]] const Signals& signals() const { return signals_; }

 private:
  AdaSpec spec_;
  std::int32_t stride_begin_;
  std::int32_t refreshed_at_;
  std::vector<double> lengths_;  // of the newest steps
  double entropy_sum_ = 0.0;
  std::int64_t entropy_count_ = 0;
  bool based_ = false;  // the bases belong to the working set in use
  Signals signals_;
};

}  // namespace rift::policy
