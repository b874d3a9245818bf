// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/working_set_layout.h"
#include "score_node/core/types.h"
#include "transport/messages.h"
#include "transport/transport.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::score_node {

/// What one chunk of the send buffer carries. Offsets are relative to the chunk.
struct Batch {
  std::vector<Copy> copies;
  std::vector<transport::PutOp> ops;
  std::uint64_t bytes = 0;
};

/// Positions to fill outside the slots.
struct RingRange {
  Position begin = 0;  // of the ring
  Position end = 0;
  std::int32_t sinks = 0;  // positions [0, sinks) besides
};

/// Copies and writes that bring a wave's blocks, and a range of the ring, into the working set that
/// lies at `arena_offset` of the draft node's region. Blocks go in slot order: what is adjacent
/// there becomes one write. Batches hold at most `chunk_bytes`, which is at least a block and a
/// vector. Pure.
[[nodiscard]] std::vector<Batch> plan_transfer(const WorkingSetLayout& layout,
                                               std::uint64_t arena_offset,
                                               std::span<const transport::TableUpdate> updates,
                                               const RingRange& ring,
                                               std::uint64_t chunk_bytes);

}  // namespace rift::score_node
