// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/block_mirror.h"

#include "common/check.h"

namespace rift::score_node {
namespace {

std::size_t cast(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

BlockMirror::BlockMirror(const WorkingSetLayout& layout)
    : layout_(layout),
      entries_(
          cast(std::int64_t{layout.geometry.layers} * layout.geometry.kv_heads * layout.entries())),
      used_(layout.slot_count()) {}

std::span<const BlockMirror::Entry> BlockMirror::head(std::int32_t layer, std::int32_t head) const {
  const std::int64_t first =
      (std::int64_t{layer} * layout_.geometry.kv_heads + head) * layout_.entries();
  return std::span(entries_).subspan(cast(first), cast(layout_.entries()));
}

std::vector<std::uint32_t> BlockMirror::free_slots() const {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t slot = 0; slot < layout_.slot_count(); ++slot) {
    if (!used_[slot]) {
      slots.push_back(slot);
    }
  }
  return slots;
}

std::size_t BlockMirror::index(const transport::TableUpdate& update) const {
  const std::int64_t head = std::int64_t{update.layer} * layout_.geometry.kv_heads + update.head;
  return cast(head * layout_.entries() + update.entry);
}

void BlockMirror::reserve(std::span<const transport::TableUpdate> updates) {
  for (const transport::TableUpdate& u : updates) {
    if (u.count > 0) {
      RIFT_CHECK(!used_[u.slot], "slot {} of block {} is in use", u.slot, u.block);
      used_[u.slot] = true;
    }
  }
}

void BlockMirror::install(std::span<const transport::TableUpdate> updates) {
  for (const transport::TableUpdate& u : updates) {
    Entry& entry = entries_[index(u)];
    if (entry.count > 0) {
      used_[entry.slot] = false;
    }
    entry = u.count > 0 ? Entry{u.slot, u.block, u.count, false} : Entry{};
  }
}

void BlockMirror::mark_stale(Position position) {
  for (Entry& entry : entries_) {
    const std::int64_t end = std::int64_t{entry.block} * layout_.block + entry.count;
    entry.stale = entry.stale || (entry.count > 0 && end > position);
  }
}

}  // namespace rift::score_node
