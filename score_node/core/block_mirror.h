// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/working_set_layout.h"
#include "score_node/core/types.h"
#include "transport/messages.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::score_node {

/// What the score node knows of the draft's block table [L, G, entries], and of the slots
/// that writes are under way to. Value type.
class BlockMirror {
 public:
  struct Entry {
    std::uint32_t slot = 0;
    std::uint32_t block = 0;
    std::int32_t count = 0;  // 0: empty
    bool stale = false;      // tokens under it were replaced: must be sent again

    bool operator==(const Entry&) const = default;
  };

  explicit BlockMirror(const WorkingSetLayout& layout);

  [[nodiscard]] std::span<const Entry> head(std::int32_t layer, std::int32_t head) const;
  /// Slots, ascending, that neither the table nor a wave under way names.
  [[nodiscard]] std::vector<std::uint32_t> free_slots() const;

  /// A wave that names these slots is under way; the table stays as it is until install().
  void reserve(std::span<const transport::TableUpdate> updates);
  /// The draft node reads the new table: what it no longer names is free.
  void install(std::span<const transport::TableUpdate> updates);
  /// Tokens from `position` on were replaced.
  void mark_stale(Position position);

 private:
  [[nodiscard]] std::size_t index(const transport::TableUpdate& update) const;

  WorkingSetLayout layout_;
  std::vector<Entry> entries_;  // [L, G, entries]
  std::vector<bool> used_;      // [slot_count]: named by the table or by a wave under way
};

}  // namespace rift::score_node
