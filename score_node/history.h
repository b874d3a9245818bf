// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"
#include "model/kv_cache.h"
#include "model/weights.h"
#include "score_node/query_statistics.h"
#include "score_node/value_projection.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::score_node {

/// How the model's weights say what a value is worth. Thread: one at a time.
struct ValueWorth {
  const model::Weights* weights = nullptr;
  ValueProjection* projection = nullptr;
};

/// Full KV history of one session, and what its selector scores with besides: the newest queries of
/// every layer, norms of projected values (CriticalKV), statistics of queries before RoPE (Expected
/// Attention, TriAttention), the attention that every key has gathered (H2O). Keeps `kQuerySlack`
/// more queries than the observation window, so that a history that is a few tokens ahead can still
/// be scored as it was before them. Thread: one at a time.
class ScoreHistory final : public model::KvCache {
 public:
  static constexpr std::int32_t kQuerySlack = 64;

  ScoreHistory(const model::ModelConfig& config,
               DType dtype,
               std::int32_t capacity,
               std::int32_t window,
               Selector selector,
               const ValueWorth& worth);

  /// Stores the queries of the rows besides keys and values; see AttentionBackend.
  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override;

  [[nodiscard]] bool wants_raw_queries() const override {
    return statistics_.spec().second != StatisticsSpec::Second::kNone;
  }
  void raw_queries(std::int32_t layer, MatView<const float> q) override;

  /// Forgets positions from `size` on. Queries before it stay as far as they are still held. Where
  /// what the queries left cannot be cut there (below shortest_prefix()), everything is forgotten.
  /// Returns how many positions are left.
  std::int32_t truncate(std::int32_t size);
  /// Shortest prefix that truncate() can leave besides none.
  [[nodiscard]] Position shortest_prefix() const {
    return sums_.empty() ? statistics_.begin() : size();
  }
  /// Takes another observation window; all queries are forgotten.
  void set_window(std::int32_t window);

  /// Queries of [queries_begin(), size()) are held.
  [[nodiscard]] Position queries_begin() const { return queries_begin_; }
  /// The `window` queries before position `end` of the group that reads KV head `head`:
  /// out [window, g, D] f32 after RoPE, oldest first.
  void copy_queries(std::int32_t layer,
                    std::int32_t head,
                    Position end,
                    std::int32_t window,
                    std::span<float> out) const;

  /// Whether it has gathered what a session with this selector and window needs.
  [[nodiscard]] bool serves(Selector selector, std::int32_t window) const;
  /// Norms [size()] of the projected values of one KV head; empty unless the selector wants them.
  [[nodiscard]] std::span<const float> value_norms(std::int32_t layer, std::int32_t head) const;
  /// Attention [size()] that the keys of one KV head were given by all queries so far, mean over
  /// the group's heads; empty unless the selector wants it.
  [[nodiscard]] std::span<const float> attention_sums(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] const QueryStatistics& statistics() const { return statistics_; }

  /// Bytes of the positions stored, and of what the selector needs.
  [[nodiscard]] std::uint64_t bytes() const { return KvCache::bytes() + extra_bytes(); }
  /// Bytes when it is full.
  [[nodiscard]] std::uint64_t capacity_bytes() const;
  [[nodiscard]] static std::uint64_t capacity_bytes(const model::ModelConfig& config,
                                                    DType dtype,
                                                    std::int32_t capacity,
                                                    std::int32_t window,
                                                    Selector selector);

 private:
  [[nodiscard]] std::uint64_t extra_bytes() const {
    return (queries_.size() + norms_.size() + sums_.size()) * sizeof(float) + statistics_.bytes();
  }
  /// The stored positions of one head in a plane [L, G, capacity]; empty where the plane is.
  [[nodiscard]] std::span<const float> head_of(const std::vector<float>& plane,
                                               std::int32_t layer,
                                               std::int32_t head) const;
  void add_sums(std::int32_t layer, Position first, MatView<const float> q, ThreadPool& pool);
  void store_norms(std::int32_t layer, Position first, MatView<const float> v, ThreadPool& pool);
  [[nodiscard]] std::size_t query_offset(std::int32_t layer, Position position) const;

  std::int64_t row_;            // H D
  std::int32_t ring_ = 0;       // positions in the ring
  std::vector<float> queries_;  // [L, ring, H, D]; position p at p mod ring
  Position queries_begin_ = 0;
  Selector selector_;
  ValueWorth worth_;
  std::vector<float> norms_;        // [L, G, capacity], of the selector that wants them
  std::vector<float> batch_norms_;  // [G, T]
  std::vector<float> sums_;         // [L, G, capacity], of the selector that wants them
  std::vector<float> share_scratch_;
  QueryStatistics statistics_;
};

}  // namespace rift::score_node
