// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/transfer_plan.h"

#include <algorithm>

namespace rift::score_node {
namespace {

using transport::TableUpdate;

/// Fills batches one after the other.
class Batcher {
 public:
  Batcher(std::uint64_t vector_bytes, std::uint64_t chunk_bytes)
      : vector_bytes_(vector_bytes), chunk_bytes_(chunk_bytes) {}

  /// Opens the next batch if `bytes` do not fit the current one.
  void make_room(std::uint64_t bytes) {
    if (batches_.empty() || batches_.back().bytes + bytes > chunk_bytes_) {
      batches_.emplace_back();
    }
  }

  /// Appends a copy to the current batch and its write to `remote`.
  void append(Copy copy, std::uint64_t remote) {
    Batch& batch = batches_.back();
    const std::uint64_t bytes = static_cast<std::uint64_t>(copy.padded) * vector_bytes_;
    copy.offset = batch.bytes;
    batch.copies.push_back(copy);
    if (!batch.ops.empty() && batch.ops.back().remote_offset + batch.ops.back().bytes == remote) {
      batch.ops.back().bytes += bytes;  // local offsets of a batch have no gaps
    } else {
      batch.ops.push_back({batch.bytes, remote, bytes});
    }
    batch.bytes += bytes;
  }

  [[nodiscard]] std::int32_t vectors_per_chunk() const {
    return static_cast<std::int32_t>(
        std::min<std::uint64_t>(chunk_bytes_ / vector_bytes_, 1U << 30U));
  }
  [[nodiscard]] std::vector<Batch> take() { return std::move(batches_); }

 private:
  std::uint64_t vector_bytes_;
  std::uint64_t chunk_bytes_;
  std::vector<Batch> batches_;
};

void append_block(const WorkingSetLayout& layout,
                  std::uint64_t arena_offset,
                  const TableUpdate& update,
                  Batcher& batcher) {
  Copy copy;
  copy.layer = update.layer;
  copy.head = update.head;
  copy.first = static_cast<Position>(update.block) * layout.block;
  copy.count = update.count;
  copy.padded = layout.block;
  const std::uint64_t remote = arena_offset + layout.slot_offset(update.slot);
  batcher.make_room(layout.block_bytes());
  batcher.append(copy, remote);
  copy.values = true;
  batcher.append(copy, remote + layout.block_bytes() / 2);
}

/// Positions [begin, end) of a plane at `offset` where p lies at p mod `capacity`: the range is cut
/// where it wraps and where a chunk is full.
void append_range(std::uint64_t offset,
                  std::int32_t capacity,
                  Position begin,
                  Position end,
                  std::uint64_t vector_bytes,
                  Copy copy,
                  Batcher& batcher) {
  for (Position p = begin; p < end;) {
    const std::int32_t index = p % capacity;
    copy.first = p;
    copy.count = std::min({end - p, capacity - index, batcher.vectors_per_chunk()});
    copy.padded = copy.count;
    batcher.make_room(static_cast<std::uint64_t>(copy.count) * vector_bytes);
    batcher.append(copy, offset + static_cast<std::uint64_t>(index) * vector_bytes);
    p += copy.count;
  }
}

/// Keys or values of one head: its sinks and its part of the ring.
void append_ring(const WorkingSetLayout& layout,
                 std::uint64_t arena_offset,
                 const RingRange& ring,
                 const Copy& copy,
                 Batcher& batcher) {
  const std::uint64_t plane =
      arena_offset + (copy.values ? layout.value_sink_offset(copy.layer, copy.head)
                                  : layout.key_sink_offset(copy.layer, copy.head));
  const std::uint64_t vector_bytes = layout.geometry.vector_bytes();
  append_range(plane, layout.sinks, 0, ring.sinks, vector_bytes, copy, batcher);
  append_range(plane + static_cast<std::uint64_t>(layout.sinks) * vector_bytes,
               layout.ring_capacity,
               ring.begin,
               ring.end,
               vector_bytes,
               copy,
               batcher);
}

}  // namespace

std::vector<Batch> plan_transfer(const WorkingSetLayout& layout,
                                 std::uint64_t arena_offset,
                                 std::span<const TableUpdate> updates,
                                 const RingRange& ring,
                                 std::uint64_t chunk_bytes) {
  Batcher batcher(layout.geometry.vector_bytes(), chunk_bytes);
  for (std::int32_t layer = 0; layer < layout.geometry.layers; ++layer) {
    for (std::int32_t head = 0; head < layout.geometry.kv_heads; ++head) {
      Copy copy;
      copy.layer = layer;
      copy.head = head;
      append_ring(layout, arena_offset, ring, copy, batcher);
      copy.values = true;
      append_ring(layout, arena_offset, ring, copy, batcher);
    }
  }
  std::vector<TableUpdate> blocks;
  std::copy_if(updates.begin(), updates.end(), std::back_inserter(blocks), [](const auto& u) {
    return u.count > 0;
  });
  std::sort(blocks.begin(), blocks.end(), [](const TableUpdate& a, const TableUpdate& b) {
    return a.slot < b.slot;
  });
  for (const TableUpdate& update : blocks) {
    append_block(layout, arena_offset, update, batcher);
  }
  return batcher.take();
}

}  // namespace rift::score_node
