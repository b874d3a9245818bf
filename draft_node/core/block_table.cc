// SPDX-License-Identifier: Apache-2.0
#include "draft_node/core/block_table.h"

#include "common/check.h"

#include <algorithm>
#include <cstddef>

namespace rift::draft_node {

using transport::TableUpdate;

namespace {

constexpr std::size_t kFree = static_cast<std::size_t>(-1);

}  // namespace

BlockTable::BlockTable(const WorkingSetLayout& layout) : layout_(layout) {
  entries_.resize(static_cast<std::size_t>(layout.geometry.layers) *
                  static_cast<std::size_t>(layout.geometry.kv_heads) *
                  static_cast<std::size_t>(layout.entries()));
}

std::span<const TableEntry> BlockTable::head(std::int32_t layer, std::int32_t head) const {
  const auto count = static_cast<std::size_t>(layout_.entries());
  const auto index = static_cast<std::size_t>(layer * layout_.geometry.kv_heads + head);
  return std::span<const TableEntry>(entries_).subspan(index * count, count);
}

std::uint64_t BlockTable::active_entries() const {
  return static_cast<std::uint64_t>(std::count_if(
      entries_.begin(), entries_.end(), [](const TableEntry& e) { return e.count > 0; }));
}

Status BlockTable::apply(std::span<const TableUpdate> updates, std::int32_t limit) {
  std::vector<std::size_t> indices;
  indices.reserve(std::min(updates.size(), entries_.size()));
  std::vector<TableEntry> entries = entries_;
  std::vector<bool> named(entries_.size());
  for (const TableUpdate& update : updates) {
    const Result<std::size_t> index = index_of(update, limit);
    if (!index) {
      return index.error();
    }
    if (named[index.value()]) {
      return fail(Errc::kInvalidArgument,
                  "table update names entry {} of layer {} head {} twice",
                  update.entry,
                  update.layer,
                  update.head);
    }
    named[index.value()] = true;
    indices.push_back(index.value());
    entries[index.value()] = {update.slot, update.block, update.count};
  }
  if (Status status = check_slots(updates, indices); !status) {
    return status;
  }
  if (Status status = check_blocks(entries, indices); !status) {
    return status;
  }
  if (Status status = check_budget(entries); !status) {
    return status;
  }
  entries_ = std::move(entries);
  return {};
}

Result<std::size_t> BlockTable::index_of(const TableUpdate& update, std::int32_t limit) const {
  const KvGeometry& geometry = layout_.geometry;
  if (update.layer >= geometry.layers || update.head >= geometry.kv_heads ||
      update.entry >= static_cast<std::uint32_t>(layout_.entries())) {
    return fail(Errc::kOutOfRange,
                "table update names layer {} head {} entry {}: the table is [{}, {}, {}]",
                update.layer,
                update.head,
                update.entry,
                geometry.layers,
                geometry.kv_heads,
                layout_.entries());
  }
  if (update.slot >= layout_.slot_count() || update.count > layout_.block) {
    return fail(Errc::kOutOfRange,
                "table update names slot {} with {} positions: there are {} slots of {}",
                update.slot,
                update.count,
                layout_.slot_count(),
                layout_.block);
  }
  const std::int64_t end = std::int64_t{update.block} * layout_.block + std::int64_t{update.count};
  if (update.count > 0 && end > limit) {
    return fail(Errc::kOutOfRange,
                "table update names block {} with {} positions, which ends at {}: candidates end "
                "at {}",
                update.block,
                update.count,
                end,
                limit);
  }
  return (static_cast<std::size_t>(update.layer) * static_cast<std::size_t>(geometry.kv_heads) +
          update.head) *
             static_cast<std::size_t>(layout_.entries()) +
         update.entry;
}

Status BlockTable::check_slots(std::span<const TableUpdate> updates,
                               std::span<const std::size_t> indices) const {
  // The slot was written while the old table was active, so it must not be one that it names.
  std::vector<std::size_t> owner(layout_.slot_count(), kFree);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].count > 0) {
      owner[entries_[i].slot] = i;
    }
  }
  std::vector<bool> used(layout_.slot_count());
  for (std::size_t i = 0; i < updates.size(); ++i) {
    const TableUpdate& update = updates[i];
    if (update.count == 0) {
      continue;
    }
    if (owner[update.slot] != kFree && owner[update.slot] != indices[i]) {
      return fail(Errc::kInvalidArgument,
                  "table update puts block {} into slot {}, which the active table reads at entry "
                  "{}",
                  update.block,
                  update.slot,
                  owner[update.slot]);
    }
    if (used[update.slot]) {
      return fail(Errc::kInvalidArgument, "table update names slot {} twice", update.slot);
    }
    used[update.slot] = true;
  }
  return {};
}

Status BlockTable::check_blocks(const std::vector<TableEntry>& entries,
                                std::span<const std::size_t> indices) const {
  const auto per_head = static_cast<std::size_t>(layout_.entries());
  std::vector<std::size_t> heads;
  heads.reserve(indices.size());
  for (const std::size_t index : indices) {
    heads.push_back(index / per_head);
  }
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  std::vector<std::uint32_t> blocks;
  for (const std::size_t head : heads) {
    blocks.clear();
    for (std::size_t i = head * per_head; i < (head + 1) * per_head; ++i) {
      if (entries[i].count > 0) {
        blocks.push_back(entries[i].block);
      }
    }
    std::sort(blocks.begin(), blocks.end());
    const auto twice = std::adjacent_find(blocks.begin(), blocks.end());
    if (twice != blocks.end()) {
      const auto heads_per_layer = static_cast<std::size_t>(layout_.geometry.kv_heads);
      return fail(Errc::kInvalidArgument,
                  "table update makes layer {} head {} attend to block {} twice",
                  head / heads_per_layer,
                  head % heads_per_layer,
                  *twice);
    }
  }
  return {};
}

Status BlockTable::check_budget(const std::vector<TableEntry>& entries) const {
  if (layout_.extra_entries == 0) {
    return {};  // the table has no room for more
  }
  const std::int32_t heads = layout_.geometry.kv_heads;
  auto entry = entries.begin();
  for (std::int32_t layer = 0; layer < layout_.geometry.layers; ++layer) {
    std::int64_t of_layer = 0;
    for (std::int32_t head = 0; head < heads; ++head) {
      const auto end = entry + layout_.entries();
      const std::int64_t of_head =
          std::count_if(entry, end, [](const TableEntry& e) { return e.count > 0; });
      entry = end;
      of_layer += of_head;
      if (of_head > layout_.head_limit(layer)) {
        return fail(Errc::kOutOfRange,
                    "table update makes layer {} head {} attend to {} blocks: its budget is {}",
                    layer,
                    head,
                    of_head,
                    layout_.head_limit(layer));
      }
    }
    if (of_layer > layout_.layer_limit(layer)) {
      return fail(Errc::kOutOfRange,
                  "table update makes the {} heads of layer {} attend to {} blocks: their budget "
                  "is {}",
                  heads,
                  layer,
                  of_layer,
                  layout_.layer_limit(layer));
    }
  }
  return {};
}

}  // namespace rift::draft_node
