// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"
#include "policy/expected_attention.h"
#include "score_node/core/types.h"
#include "score_node/history.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::score_node {

/// Scores of the candidate blocks of one (layer, KV head).
struct BlockScores {
  std::vector<float> first;
  std::vector<float> second;  // of CriticalKV's second stage; empty for other selectors
  std::vector<float> recent;  // of the positions after the candidates, where the job wants them
};

/// One job's scores, by the selector that it names (policy/README.md). A value's block scores are
/// the mean over the positions of the block. The model and the history outlive it.
class Scoring {
 public:
  Scoring(const model::ModelConfig& config, const ScoreHistory& history, const Select& job);

  /// Thread: any; heads run side by side.
  [[nodiscard]] BlockScores score(std::int32_t layer, std::int32_t head) const;

 private:
  using Scores = std::vector<float>;  // [N]

  [[nodiscard]] Scores position_scores(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] Scores snapkv(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] Scores expected_attention(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] Scores curdkv(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] Scores triattention(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] kernels::KeyPlane keys(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] Scores value_squares(std::int32_t layer, std::int32_t head) const;

  const model::ModelConfig& config_;
  const ScoreHistory& history_;
  const Select& job_;
  std::int32_t group_;
  kernels::RopePairs pairs_;
  policy::MeanRotation rotation_;  // of Expected Attention
};

/// The chosen blocks of every head [L, G] from their scores: as many as the allocation gives it.
/// Ada-KV goes by the scores of the first stage. Pure.
[[nodiscard]] std::vector<HeadSelection> choose_blocks(std::vector<BlockScores> scores,
                                                       std::int32_t kv_heads,
                                                       const Select& job);

}  // namespace rift::score_node
