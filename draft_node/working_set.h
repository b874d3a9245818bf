// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/working_set_layout.h"
#include "draft_node/core/block_table.h"
#include "kernels/attention.h"
#include "model/runner.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rift::draft_node {

struct WorkingSetParams {
  WorkingSetLayout layout;
  std::int32_t recent = 0;       // r
  std::int32_t query_heads = 0;  // H
  float attention_scale = 0.0F;
  std::int32_t max_rows = 1;  // of one attend()
};

/// One session's KV under its budget, in a range of the arena (common/working_set_layout.h).
///
/// A query at position p attends, per KV head, to the sinks, to the real positions below p - r of
/// the active table's blocks in entry order, to the ring's positions [p - r, p) and to its own key:
/// at most max_cached() cached positions, however long the history is. Sinks and ring
/// positions count only where they were written for this sequence. What a block or the sinks share
/// with the ring (a table newer than the position, as in a pause) is read once, from the ring.
///
/// All memory besides the arena's is taken in the constructor. Resource type, pinned.
/// Thread: the compute thread.
class WorkingSet : public model::AttentionBackend {
 public:
  /// `memory` holds layout.total_bytes() and outlives the object.
  WorkingSet(const WorkingSetParams& params, std::span<std::byte> memory);
  ~WorkingSet() override = default;
  WorkingSet(const WorkingSet&) = delete;
  WorkingSet& operator=(const WorkingSet&) = delete;

  /// Positions [begin, end) of the ring and, of the layout's sinks, those below `sinks` hold what
  /// is cached, filled from outside or before; everything else is forgotten. end - begin <=
  /// ring_capacity, sinks <= end.
  void set_ring(Position begin, Position end, std::int32_t sinks);
  /// Forgets positions from `end` on.
  void truncate(Position end);
  /// BlockTable::apply with limit = covered - r.
  [[nodiscard]] Status install(std::span<const transport::TableUpdate> updates,
                               std::int32_t covered);

  [[nodiscard]] const WorkingSetLayout& layout() const { return params_.layout; }
  /// Valid ring positions are [ring_begin(), size()); the next query's position is size().
  [[nodiscard]] Position ring_begin() const { return begin_; }
  [[nodiscard]] Position size() const { return end_; }
  /// No query attends to more cached positions in any head: sinks + r + P times the most blocks
  /// that a head may have.
  [[nodiscard]] std::int32_t max_cached() const;
  /// The same for all KV heads of a layer together, where queries of one position are meant.
  [[nodiscard]] std::int64_t max_layer_cached(std::int32_t layer) const;
  /// Most cached positions that any query has attended to since the construction.
  [[nodiscard]] std::int32_t peak_cached() const { return peak_cached_; }

  struct KeptRange {
    Position begin = 0;
    Position end = 0;
  };
  /// Cached positions that a query at `position` attends to in one head, as table and ring are now;
  /// its own is not among them. Replaces `out`.
  void kept(std::int32_t layer,
            std::int32_t head,
            Position position,
            std::vector<KeptRange>& out) const;

  /// positions are consecutive and start at size(); the ring grows in the last layer. Rows whose
  /// sets of keys differ are stored and attended to one by one, as a later one may overwrite what
  /// an earlier one still reads.
  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override;

 private:
  struct Rows {
    MatView<const float> q;
    MatView<float> out;
    Position first = 0;  // position of row 0
    Position last = 0;
    std::int32_t sinks = 0;  // valid ones, those of earlier rows included
  };
  /// Lowest position that the ring contributes for a query at `position`.
  [[nodiscard]] Position ring_low(Position position) const;
  /// End of what blocks contribute: max(0, position - r).
  [[nodiscard]] Position block_limit(Position position) const;
  [[nodiscard]] bool same_keys(Position first, Position last) const;
  void store(std::int32_t layer, Position position, const float* k, const float* v);
  void attend_rows(std::int32_t layer, const Rows& rows, ThreadPool& pool);
  /// Positions of `entry` that count for a query with this block_limit().
  [[nodiscard]] KeptRange entry_range(const TableEntry& entry, Position limit) const;
  /// Appends the runs of one head; returns its keys in sinks and blocks.
  std::int32_t add_runs(std::int32_t layer, std::int32_t head, const Rows& rows);
  void add_run(std::uint64_t keys, std::uint64_t values, std::int32_t count);
  void add_ring_run(std::int32_t layer, std::int32_t head, Position begin, Position end);

  WorkingSetParams params_;
  std::span<std::byte> memory_;
  BlockTable table_;
  Position table_end_ = 0;  // no block holds a position from here on
  Position begin_ = 0;
  Position end_ = 0;
  Position sink_end_ = 0;  // sinks [0, sink_end_) are valid
  std::int32_t peak_cached_ = 0;
  std::vector<kernels::KvRun> runs_;
  std::vector<std::int32_t> first_;       // [G + 1]
  std::vector<std::int32_t> block_keys_;  // [G]
  std::vector<std::int32_t> visible_;     // [T]
};

}  // namespace rift::draft_node
