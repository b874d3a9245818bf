// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/kv_cache.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::score_node {

/// Full KV history of one session, and the newest queries of every layer, which the scores are
/// computed with. Keeps `kQuerySlack` more queries than the observation window, so that a history
/// that is a few tokens ahead can still be scored as it was before them.
/// Thread: one at a time.
class ScoreHistory final : public model::KvCache {
 public:
  static constexpr std::int32_t kQuerySlack = 64;

  ScoreHistory(const model::ModelConfig& config,
               DType dtype,
               std::int32_t capacity,
               std::int32_t window);

  /// Stores the queries of the rows besides keys and values; see AttentionBackend.
  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override;

  /// Forgets positions from `size` on. Queries before it stay as far as they are still held.
  void truncate(std::int32_t size);
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

  /// Bytes of the positions and queries stored.
  [[nodiscard]] std::uint64_t bytes() const { return KvCache::bytes() + query_bytes(); }
  /// Bytes when it is full.
  [[nodiscard]] std::uint64_t capacity_bytes() const;
  [[nodiscard]] static std::uint64_t capacity_bytes(const model::ModelConfig& config,
                                                    DType dtype,
                                                    std::int32_t capacity,
                                                    std::int32_t window);

 private:
  [[nodiscard]] std::uint64_t query_bytes() const { return queries_.size() * sizeof(float); }
  [[nodiscard]] std::size_t query_offset(std::int32_t layer, Position position) const;

  std::int64_t row_;            // H D
  std::int32_t ring_ = 0;       // positions in the ring
  std::vector<float> queries_;  // [L, ring, H, D]; position p at p mod ring
  Position queries_begin_ = 0;
};

}  // namespace rift::score_node
