// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rift {

/// Shape of a draft model's KV cache.
struct KvGeometry {
  std::int32_t layers = 0;    // L, full-attention layers
  std::int32_t kv_heads = 0;  // G
  std::int32_t head_dim = 0;  // D
  DType dtype = DType::kF16;  // F16, BF16 or F32

  bool operator==(const KvGeometry&) const = default;

  [[nodiscard]] std::uint64_t vector_bytes() const { return row_bytes(dtype, head_dim); }
  /// K and V of one position in all layers and heads.
  [[nodiscard]] std::uint64_t bytes_per_position() const {
    return 2 * vector_bytes() * static_cast<std::uint64_t>(layers) *
           static_cast<std::uint64_t>(kv_heads);
  }
};

/// Where one session's working set lies in the draft node's arena, relative to the session's base
/// offset. Both ends compute addresses from it, so that messages carry indices only.
///
///   ring   [L, G, 2, sinks + ring_capacity, D]   K then V: positions 0 .. sinks - 1, then the
///   ring,
///                                                where position p is at p mod ring_capacity
///   slots  [slot_count, 2, P, D]                 K then V of one block; any (layer, KV head)
///
/// slot_count = L G slots_per_head + staging_slots, however unequally the block table shares the
/// slots out: it has entries() entries per head, of which a layer's G heads together use no more
/// than layer_limit(). Value type.
struct WorkingSetLayout {
  KvGeometry geometry;
  std::int32_t block = 16;          // P
  std::int32_t slots_per_head = 0;  // floor(k / P)
  std::int32_t staging_slots = 0;   // for the whole session
  std::int32_t ring_capacity = 0;   // r + draft_len + 1
  std::int32_t sinks = 0;           // first positions, kept besides the ring
  std::int32_t extra_entries = 0;   // entries of a head's table beyond slots_per_head
  /// [L]: slots per head that a layer has; their mean is slots_per_head. Empty: that many in each,
  /// which the heads of a layer share as far as extra_entries goes.
  std::vector<std::int32_t> layer_slots{};

  bool operator==(const WorkingSetLayout&) const = default;

  [[nodiscard]] std::uint32_t slot_count() const {
    return static_cast<std::uint32_t>(geometry.layers * geometry.kv_heads * slots_per_head +
                                      staging_slots);
  }
  /// Entries of one head in the block table.
  [[nodiscard]] std::int32_t entries() const { return slots_per_head + extra_entries; }
  /// Blocks that one head of the layer attends to at most.
  [[nodiscard]] std::int32_t head_limit(std::int32_t layer) const {
    return layer_slots.empty() ? entries() : layer_slots[static_cast<std::size_t>(layer)];
  }
  /// Blocks that all heads of the layer together attend to at most.
  [[nodiscard]] std::int64_t layer_limit(std::int32_t layer) const {
    const std::int64_t per_head =
        layer_slots.empty() ? slots_per_head : layer_slots[static_cast<std::size_t>(layer)];
    return per_head * geometry.kv_heads;
  }
  /// Whether a head can get what another head of its layer gives up.
  [[nodiscard]] bool shares_heads() const { return layer_slots.empty() && extra_entries > 0; }

  [[nodiscard]] std::uint64_t block_bytes() const {
    return 2 * static_cast<std::uint64_t>(block) * geometry.vector_bytes();
  }
  /// Bytes of one (layer, KV head) ring with its sinks, K and V.
  [[nodiscard]] std::uint64_t head_ring_bytes() const {
    return 2 * (static_cast<std::uint64_t>(sinks) + static_cast<std::uint64_t>(ring_capacity)) *
           geometry.vector_bytes();
  }
  [[nodiscard]] std::uint64_t ring_bytes() const {
    return head_ring_bytes() * static_cast<std::uint64_t>(geometry.layers * geometry.kv_heads);
  }
  [[nodiscard]] std::uint64_t staging_bytes() const {
    return block_bytes() * static_cast<std::uint64_t>(staging_slots);
  }
  /// Ring and selected slots; what a query may attend to. Staging comes on top.
  [[nodiscard]] std::uint64_t working_set_bytes() const { return total_bytes() - staging_bytes(); }
  [[nodiscard]] std::uint64_t total_bytes() const {
    return ring_bytes() + block_bytes() * slot_count();
  }

  [[nodiscard]] std::uint64_t key_sink_offset(std::int32_t layer, std::int32_t head) const {
    return head_ring_bytes() * static_cast<std::uint64_t>(layer * geometry.kv_heads + head);
  }
  [[nodiscard]] std::uint64_t value_sink_offset(std::int32_t layer, std::int32_t head) const {
    return key_sink_offset(layer, head) + head_ring_bytes() / 2;
  }
  [[nodiscard]] std::uint64_t key_ring_offset(std::int32_t layer, std::int32_t head) const {
    return key_sink_offset(layer, head) +
           static_cast<std::uint64_t>(sinks) * geometry.vector_bytes();
  }
  [[nodiscard]] std::uint64_t value_ring_offset(std::int32_t layer, std::int32_t head) const {
    return key_ring_offset(layer, head) + head_ring_bytes() / 2;
  }
  [[nodiscard]] std::uint64_t slot_offset(std::uint32_t slot) const {
    return ring_bytes() + block_bytes() * slot;
  }
};

}  // namespace rift
