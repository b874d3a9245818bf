// SPDX-License-Identifier: Apache-2.0
#include "draft_node/working_set.h"

#include "common/check.h"
#include "kernels/ops.h"

#include <algorithm>
#include <numeric>

namespace rift::draft_node {

WorkingSet::WorkingSet(const WorkingSetParams& params, std::span<std::byte> memory)
    : params_(params), memory_(memory), table_(params.layout) {
  const WorkingSetLayout& layout = params.layout;
  RIFT_CHECK(memory.size() >= layout.total_bytes(),
             "{} bytes for a working set of {}",
             memory.size(),
             layout.total_bytes());
  RIFT_CHECK(params.recent >= 0 && layout.ring_capacity > params.recent,
             "ring of {} for {} recent positions",
             layout.ring_capacity,
             params.recent);
  const auto heads = static_cast<std::size_t>(layout.geometry.kv_heads);
  runs_.reserve(heads * (static_cast<std::size_t>(layout.entries()) + 3));
  first_.reserve(heads + 1);
  block_keys_.reserve(heads);
  visible_.reserve(static_cast<std::size_t>(params.max_rows));
}

void WorkingSet::set_ring(Position begin, Position end, std::int32_t sinks) {
  RIFT_CHECK(begin >= 0 && begin <= end && end - begin <= params_.layout.ring_capacity,
             "ring positions [{}, {}) with a capacity of {}",
             begin,
             end,
             params_.layout.ring_capacity);
  RIFT_CHECK(sinks >= 0 && sinks <= std::min(params_.layout.sinks, end),
             "{} sinks of {} below position {}",
             sinks,
             params_.layout.sinks,
             end);
  begin_ = begin;
  end_ = end;
  sink_end_ = sinks;
}

void WorkingSet::truncate(Position end) {
  RIFT_CHECK(end >= 0, "end {}", end);
  end_ = std::min(end_, end);
  begin_ = std::min(begin_, end_);
  sink_end_ = std::min(sink_end_, end_);
}

Status WorkingSet::install(std::span<const transport::TableUpdate> updates, std::int32_t covered) {
  const Position limit = block_limit(covered);
  Status status = table_.apply(updates, limit);
  if (status.ok()) {
    table_end_ = std::max(table_end_, limit);
  }
  return status;
}

std::int32_t WorkingSet::max_cached() const {
  const WorkingSetLayout& layout = params_.layout;
  const std::int64_t most = layout.layer_slots.empty()
                                ? std::min<std::int64_t>(layout.entries(), layout.layer_limit(0))
                                : layout.entries();
  return params_.recent + layout.sinks + static_cast<std::int32_t>(most) * layout.block;
}

std::int64_t WorkingSet::max_layer_cached(std::int32_t layer) const {
  const WorkingSetLayout& layout = params_.layout;
  return std::int64_t{params_.recent + layout.sinks} * layout.geometry.kv_heads +
         layout.layer_limit(layer) * layout.block;
}

Position WorkingSet::block_limit(Position position) const {
  return std::max(0, position - params_.recent);
}

Position WorkingSet::ring_low(Position position) const {
  return std::max(block_limit(position), begin_);
}

bool WorkingSet::same_keys(Position first, Position last) const {
  return first == last || (ring_low(first) == ring_low(last) && table_end_ <= block_limit(first));
}

void WorkingSet::attend(std::int32_t layer,
                        std::span<const Position> positions,
                        MatView<const float> q,
                        MatView<const float> k,
                        MatView<const float> v,
                        MatView<float> out,
                        ThreadPool& pool) {
  const auto rows = static_cast<std::int64_t>(positions.size());
  RIFT_CHECK(rows > 0 && positions.front() == end_ && positions.back() == end_ + rows - 1,
             "{} rows from position {}, the working set ends at {}",
             rows,
             positions.empty() ? -1 : positions.front(),
             end_);
  const std::int64_t step = same_keys(positions.front(), positions.back()) ? rows : 1;
  for (std::int64_t t = 0; t < rows; t += step) {
    for (std::int64_t i = t; i < t + step; ++i) {
      store(layer, positions[static_cast<std::size_t>(i)], k.row(i), v.row(i));
    }
    attend_rows(layer,
                {MatView<const float>(q.row(t), step, q.cols, q.stride),
                 MatView<float>(out.row(t), step, out.cols, out.stride),
                 positions[static_cast<std::size_t>(t)],
                 positions[static_cast<std::size_t>(t + step - 1)],
                 positions.front() <= sink_end_
                     ? std::min(params_.layout.sinks, positions[static_cast<std::size_t>(t)])
                     : sink_end_},
                pool);
  }
  if (layer == params_.layout.geometry.layers - 1) {
    end_ += static_cast<Position>(rows);
    begin_ = std::max(begin_, end_ - params_.layout.ring_capacity);
    if (positions.front() <= sink_end_) {
      sink_end_ = std::max(sink_end_, std::min(params_.layout.sinks, end_));
    }
  }
}

void WorkingSet::store(std::int32_t layer, Position position, const float* k, const float* v) {
  const WorkingSetLayout& layout = params_.layout;
  const KvGeometry& geometry = layout.geometry;
  const auto put =
      [&](std::uint64_t keys, std::uint64_t values, std::uint64_t at, std::int64_t from) {
        kernels::store_as(geometry.dtype, k + from, memory_.data() + keys + at, geometry.head_dim);
        kernels::store_as(
            geometry.dtype, v + from, memory_.data() + values + at, geometry.head_dim);
      };
  const std::uint64_t vector = geometry.vector_bytes();
  for (std::int32_t head = 0; head < geometry.kv_heads; ++head) {
    const std::int64_t from = std::int64_t{head} * geometry.head_dim;
    put(layout.key_ring_offset(layer, head),
        layout.value_ring_offset(layer, head),
        static_cast<std::uint64_t>(position % layout.ring_capacity) * vector,
        from);
    if (position < layout.sinks) {
      put(layout.key_sink_offset(layer, head),
          layout.value_sink_offset(layer, head),
          static_cast<std::uint64_t>(position) * vector,
          from);
    }
  }
}

void WorkingSet::attend_rows(std::int32_t layer, const Rows& rows, ThreadPool& pool) {
  const KvGeometry& geometry = params_.layout.geometry;
  runs_.clear();
  block_keys_.clear();
  first_.assign(1, 0);
  for (std::int32_t head = 0; head < geometry.kv_heads; ++head) {
    block_keys_.push_back(add_runs(layer, head, rows));
    first_.push_back(static_cast<std::int32_t>(runs_.size()));
  }
  const std::int64_t group = params_.query_heads / geometry.kv_heads;
  const Position low = ring_low(rows.first);
  const std::int64_t cached =
      std::accumulate(block_keys_.begin(), block_keys_.end(), std::int64_t{0}) +
      std::int64_t{rows.last - low} * geometry.kv_heads;
  RIFT_CHECK(cached <= max_layer_cached(layer),
             "the heads of layer {} attend to {} cached positions, their budget holds {}",
             layer,
             cached,
             max_layer_cached(layer));
  // Row t sees the same number of keys in every head of one call: heads whose blocks hold different
  // numbers of real positions (a short last block, an empty entry) go separately.
  for (std::int32_t begin = 0; begin < geometry.kv_heads;) {
    const std::int32_t keys = block_keys_[static_cast<std::size_t>(begin)];
    std::int32_t end = begin + 1;
    while (end < geometry.kv_heads && block_keys_[static_cast<std::size_t>(end)] == keys) {
      ++end;
    }
    visible_.clear();
    for (Position p = rows.first; p <= rows.last; ++p) {
      visible_.push_back(keys + p - low + 1);
    }
    peak_cached_ = std::max(peak_cached_, visible_.back() - 1);
    RIFT_CHECK(peak_cached_ <= max_cached(),
               "a query attends to {} cached positions, the budget holds {}",
               peak_cached_,
               max_cached());
    kernels::AttendArgs args;
    const std::int64_t column = begin * group * geometry.head_dim;
    const std::int64_t columns = (end - begin) * group * geometry.head_dim;
    args.q = {rows.q.data + column, rows.q.rows, columns, rows.q.stride};
    args.out = {rows.out.data + column, rows.out.rows, columns, rows.out.stride};
    args.query_heads = static_cast<std::int32_t>((end - begin) * group);
    args.kv_heads = end - begin;
    args.head_dim = geometry.head_dim;
    args.scale = params_.attention_scale;
    args.dtype = geometry.dtype;
    args.runs = runs_;
    args.first = std::span<const std::int32_t>(first_).subspan(
        static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin) + 1);
    args.visible = visible_;
    kernels::attend(args, pool);
    begin = end;
  }
}

WorkingSet::KeptRange WorkingSet::entry_range(const TableEntry& entry, Position limit) const {
  const std::int64_t start = std::int64_t{entry.block} * params_.layout.block;
  const std::int64_t count = std::clamp<std::int64_t>(limit - start, 0, entry.count);
  return {static_cast<Position>(start), static_cast<Position>(start + count)};
}

void WorkingSet::kept(std::int32_t layer,
                      std::int32_t head,
                      Position position,
                      std::vector<KeptRange>& out) const {
  out.clear();
  if (const Position sinks = std::min(sink_end_, ring_low(position)); sinks > 0) {
    out.push_back({0, sinks});
  }
  for (const TableEntry& entry : table_.head(layer, head)) {
    const KeptRange range = entry_range(entry, block_limit(position));
    if (range.begin < range.end) {
      out.push_back(range);
    }
  }
  if (const Position low = ring_low(position); low < position) {
    out.push_back({low, position});
  }
}

std::int32_t WorkingSet::add_runs(std::int32_t layer, std::int32_t head, const Rows& rows) {
  const WorkingSetLayout& layout = params_.layout;
  const Position limit = block_limit(rows.first);
  std::int32_t keys = std::min(rows.sinks, ring_low(rows.first));
  if (keys > 0) {
    add_run(layout.key_sink_offset(layer, head), layout.value_sink_offset(layer, head), keys);
  }
  for (const TableEntry& entry : table_.head(layer, head)) {
    const KeptRange range = entry_range(entry, limit);
    const std::int32_t count = range.end - range.begin;
    if (count == 0) {
      continue;
    }
    const std::uint64_t slot = layout.slot_offset(entry.slot);
    add_run(slot, slot + layout.block_bytes() / 2, count);
    keys += count;
  }
  // The ring's window and the rows' own keys, in two pieces where it wraps around.
  const Position low = ring_low(rows.first);
  const Position wrap = (low / layout.ring_capacity + 1) * layout.ring_capacity;
  add_ring_run(layer, head, low, std::min(wrap, rows.last + 1));
  if (wrap <= rows.last) {
    add_ring_run(layer, head, wrap, rows.last + 1);
  }
  return keys;
}

void WorkingSet::add_ring_run(std::int32_t layer, std::int32_t head, Position begin, Position end) {
  const WorkingSetLayout& layout = params_.layout;
  const std::uint64_t at =
      static_cast<std::uint64_t>(begin % layout.ring_capacity) * layout.geometry.vector_bytes();
  add_run(layout.key_ring_offset(layer, head) + at,
          layout.value_ring_offset(layer, head) + at,
          end - begin);
}

void WorkingSet::add_run(std::uint64_t keys, std::uint64_t values, std::int32_t count) {
  runs_.push_back({memory_.data() + keys, memory_.data() + values, count});
}

}  // namespace rift::draft_node
