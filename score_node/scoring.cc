// SPDX-License-Identifier: Apache-2.0
#include "score_node/scoring.h"

#include "common/check.h"
#include "kernels/attention.h"
#include "policy/allocation.h"
#include "policy/critical_kv.h"
#include "policy/curdkv.h"
#include "policy/selection.h"
#include "policy/sinks.h"
#include "policy/snapkv.h"
#include "policy/triattention.h"

#include <cstddef>
#include <utility>

namespace rift::score_node {
namespace {

std::size_t cast(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

Scoring::Scoring(const model::ModelConfig& config, const ScoreHistory& history, const Select& job)
    : config_(config),
      history_(history),
      job_(job),
      group_(config.query_heads / config.kv_heads),
      pairs_(config.rope_layout == model::RopeLayout::kHalf ? kernels::RopePairs::kHalf
                                                            : kernels::RopePairs::kInterleaved) {
  if (job.selector == Selector::kExpectedAttention) {
    rotation_ =
        policy::mean_rotation(config.rope_frequencies, job.tokens, policy::kExpectedPositions);
  }
}

BlockScores Scoring::score(std::int32_t layer, std::int32_t head) const {
  const Scores scores = position_scores(layer, head);
  const std::int32_t limit = job_.tokens - job_.recent;
  BlockScores out;
  out.first = policy::block_scores(scores, job_.block, limit);
  if (job_.recent_scores) {
    out.recent.assign(scores.begin() + limit, scores.end());
  }
  if (job_.selector == Selector::kCriticalKv) {
    Scores second(scores.size());
    policy::critical_scores(scores, history_.value_norms(layer, head).first(scores.size()), second);
    out.second = policy::block_scores(second, job_.block, limit);
  }
  return out;
}

Scoring::Scores Scoring::position_scores(std::int32_t layer, std::int32_t head) const {
  switch (job_.selector) {
    case Selector::kSnapKv:
    case Selector::kCriticalKv:
      return snapkv(layer, head);
    case Selector::kExpectedAttention:
      return expected_attention(layer, head);
    case Selector::kCurDkv:
      return curdkv(layer, head);
    case Selector::kTriAttention:
      return triattention(layer, head);
    case Selector::kH2o: {
      const std::span<const float> sums = history_.attention_sums(layer, head);
      RIFT_CHECK(std::ssize(sums) == job_.tokens,
                 "the sums are those of {} tokens, not of {}",
                 sums.size(),
                 job_.tokens);
      return {sums.begin(), sums.end()};
    }
  }
  RIFT_CHECK(false, "selector {}", static_cast<int>(job_.selector));
}

kernels::KeyPlane Scoring::keys(std::int32_t layer, std::int32_t head) const {
  return {history_.keys(layer, head), history_.geometry().dtype, job_.tokens, config_.head_dim};
}

Scoring::Scores Scoring::value_squares(std::int32_t layer, std::int32_t head) const {
  kernels::KeyPlane plane = keys(layer, head);
  plane.keys = history_.values(layer, head);
  Scores squares(cast(job_.tokens));
  kernels::squared_norms(plane, squares);
  return squares;
}

Scoring::Scores Scoring::snapkv(std::int32_t layer, std::int32_t head) const {
  std::vector<float> queries(cast(job_.window) * cast(group_) * cast(config_.head_dim));
  history_.copy_queries(layer, head, job_.tokens, job_.window, queries);
  std::vector<float> per_head(cast(group_) * cast(job_.tokens));
  std::vector<float> scratch(kernels::window_score_scratch(job_.window, job_.tokens));
  kernels::window_scores({.q = queries.data(),
                          .window = job_.window,
                          .group = group_,
                          .head_dim = config_.head_dim,
                          .scale = config_.attention_scale,
                          .dtype = history_.geometry().dtype,
                          .keys = history_.keys(layer, head),
                          .key_count = job_.tokens,
                          .per_head = per_head.data(),
                          .scratch = scratch.data()});
  Scores scores(cast(job_.tokens));
  policy::combine_heads(
      {per_head.data(), group_, job_.tokens}, job_.window, job_.pooling, job_.pool_width, scores);
  return scores;
}

Scoring::Scores Scoring::expected_attention(std::int32_t layer, std::int32_t head) const {
  Scores scores(cast(job_.tokens));
  std::vector<double> mean(cast(config_.head_dim));
  std::vector<double> covariance(history_.statistics().second_size());
  for (std::int32_t h = head * group_; h < (head + 1) * group_; ++h) {
    history_.statistics().means(layer, h, job_.tokens, mean, covariance);
    policy::add_expected_attention(
        keys(layer, head), {mean, covariance}, rotation_, pairs_, config_.attention_scale, scores);
  }
  policy::finish_expected_attention(group_, value_squares(layer, head), scores);
  return scores;
}

Scoring::Scores Scoring::curdkv(std::int32_t layer, std::int32_t head) const {
  Scores scores(cast(job_.tokens));
  kernels::squared_norms(keys(layer, head), scores);
  policy::curdkv_scores(Scores(scores), value_squares(layer, head), scores);
  policy::mark_sinks(scores);
  return scores;
}

Scoring::Scores Scoring::triattention(std::int32_t layer, std::int32_t head) const {
  const std::size_t dim = cast(config_.head_dim);
  std::vector<double> means(cast(group_) * dim);
  std::vector<double> lengths(cast(group_) * dim / 2);
  for (std::int32_t i = 0; i < group_; ++i) {
    history_.statistics().means(layer,
                                head * group_ + i,
                                job_.tokens,
                                std::span(means).subspan(cast(i) * dim, dim),
                                std::span(lengths).subspan(cast(i) * dim / 2, dim / 2));
  }
  Scores scores(cast(job_.tokens));
  policy::triattention_scores(
      keys(layer, head),
      {{means.data(), group_, config_.head_dim}, {lengths.data(), group_, config_.head_dim / 2}},
      config_.rope_frequencies,
      pairs_,
      scores);
  return scores;
}

std::vector<HeadSelection> choose_blocks(std::vector<BlockScores> scores,
                                         std::int32_t kv_heads,
                                         const Select& job) {
  std::vector<HeadSelection> heads(scores.size());
  for (std::size_t i = 0; i < heads.size(); ++i) {
    heads[i].scores = std::move(scores[i].first);
    heads[i].recent = std::move(scores[i].recent);
  }
  const auto group = cast(kv_heads);
  for (std::size_t begin = 0; begin < heads.size(); begin += group) {
    const std::int32_t slots =
        job.layer_slots.empty() ? job.slots_per_head : job.layer_slots[begin / group];
    std::vector<std::int32_t> counts(group, slots);
    if (job.allocation == Allocation::kAdaKv) {
      std::vector<std::vector<float>> layer;
      for (std::size_t i = begin; i < begin + group; ++i) {
        layer.push_back(heads[i].scores);
      }
      counts = policy::ada_kv_counts(layer, slots, policy::kAdaKvFloor, policy::AdaKvRule::kFloor);
    }
    for (std::size_t i = begin; i < begin + group; ++i) {
      const std::int32_t count = counts[i - begin];
      heads[i].ranked = job.selector == Selector::kCriticalKv
                            ? policy::critical_ranked(heads[i].scores, scores[i].second, count)
                            : policy::top_k_ranked(heads[i].scores, count);
    }
  }
  return heads;
}

}  // namespace rift::score_node
