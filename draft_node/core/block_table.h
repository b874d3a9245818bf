// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/working_set_layout.h"
#include "transport/messages.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::draft_node {

/// What one entry of the table attends to. count = 0: nothing.
struct TableEntry {
  std::uint32_t slot = 0;
  std::uint32_t block = 0;  // positions [block P, block P + count)
  std::int32_t count = 0;

  bool operator==(const TableEntry&) const = default;
};

/// Active table [L, G, entries]: the slots that queries read. Slots that it does not name
/// may be written to by the score node at any time. Value type.
class BlockTable {
 public:
  explicit BlockTable(const WorkingSetLayout& layout);

  /// Entries of one head, in the order in which they are attended.
  [[nodiscard]] std::span<const TableEntry> head(std::int32_t layer, std::int32_t head) const;
  /// Entries with count > 0.
  [[nodiscard]] std::uint64_t active_entries() const;

  /// Applies one wave, all or nothing. `limit` is the end of the candidates, covered_tokens - r: no
  /// block reaches past it. Updates come from a peer: an index out of range, an entry or a slot
  /// named twice, a slot that the active table names at another entry, a block that a head would
  /// attend to twice, or more blocks than a head's or a layer's budget is kOutOfRange or
  /// kInvalidArgument, and the table stays as it was.
  /// Cost: a copy of the table.
  [[nodiscard]] Status apply(std::span<const transport::TableUpdate> updates, std::int32_t limit);

 private:
  [[nodiscard]] Result<std::size_t> index_of(const transport::TableUpdate& update,
                                             std::int32_t limit) const;
  [[nodiscard]] Status check_slots(std::span<const transport::TableUpdate> updates,
                                   std::span<const std::size_t> indices) const;
  [[nodiscard]] Status check_blocks(const std::vector<TableEntry>& entries,
                                    std::span<const std::size_t> indices) const;
  /// Blocks of every head and layer against the layout's limits.
  [[nodiscard]] Status check_budget(const std::vector<TableEntry>& entries) const;

  WorkingSetLayout layout_;
  std::vector<TableEntry> entries_;  // [L, G, entries]
};

}  // namespace rift::draft_node
