// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>

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
///   ring   [L, G, 2, ring_capacity, D]   K then V; position p is at p mod ring_capacity
///   slots  [slot_count, 2, P, D]         K then V of one block; any (layer, KV head)
///
/// slot_count = L G slots_per_head + staging_slots. Value type.
struct WorkingSetLayout {
  KvGeometry geometry;
  std::int32_t block = 16;          // P
  std::int32_t slots_per_head = 0;  // floor(k / P)
  std::int32_t staging_slots = 0;   // for the whole session
  std::int32_t ring_capacity = 0;   // r + draft_len + 1

  bool operator==(const WorkingSetLayout&) const = default;

  [[nodiscard]] std::uint32_t slot_count() const {
    return static_cast<std::uint32_t>(geometry.layers * geometry.kv_heads * slots_per_head +
                                      staging_slots);
  }
  [[nodiscard]] std::uint64_t block_bytes() const {
    return 2 * static_cast<std::uint64_t>(block) * geometry.vector_bytes();
  }
  /// Bytes of one (layer, KV head) ring, K and V.
  [[nodiscard]] std::uint64_t head_ring_bytes() const {
    return 2 * static_cast<std::uint64_t>(ring_capacity) * geometry.vector_bytes();
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

  [[nodiscard]] std::uint64_t key_ring_offset(std::int32_t layer, std::int32_t head) const {
    return head_ring_bytes() * static_cast<std::uint64_t>(layer * geometry.kv_heads + head);
  }
  [[nodiscard]] std::uint64_t value_ring_offset(std::int32_t layer, std::int32_t head) const {
    return key_ring_offset(layer, head) + head_ring_bytes() / 2;
  }
  [[nodiscard]] std::uint64_t slot_offset(std::uint32_t slot) const {
    return ring_bytes() + block_bytes() * slot;
  }
};

}  // namespace rift
