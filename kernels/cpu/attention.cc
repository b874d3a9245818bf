// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace rift::kernels {
namespace {

// Rows of queries that share one conversion of a chunk of keys.
constexpr int kRowTile = 16;

/// Hands out the keys and values of one head in run order, a chunk at a time.
class ChunkReader {
 public:
  ChunkReader(std::span<const KvRun> runs, std::size_t row_bytes)
      : run_(runs.data()), end_(runs.data() + runs.size()), row_bytes_(row_bytes) {}

  /// Points at the next `count` keys and, if `values` is not null, values; false if fewer are left.
  bool next(int count, const std::byte** keys, const std::byte** values) {
    for (int i = 0; i < count;) {
      if (run_ == end_) {
        return false;
      }
      const int take = std::min(count - i, static_cast<int>(run_->count - used_));
      const auto* key = static_cast<const std::byte*>(run_->keys);
      for (int j = 0; j < take; ++j) {
        keys[i + j] = key + static_cast<std::size_t>(used_ + j) * row_bytes_;
      }
      if (values != nullptr) {
        const auto* value = static_cast<const std::byte*>(run_->values);
        for (int j = 0; j < take; ++j) {
          values[i + j] = value + static_cast<std::size_t>(used_ + j) * row_bytes_;
        }
      }
      i += take;
      used_ += take;
      if (used_ == run_->count) {
        ++run_;
        used_ = 0;
      }
    }
    return true;
  }

 private:
  const KvRun* run_;
  const KvRun* end_;
  std::size_t row_bytes_;
  std::int32_t used_ = 0;
};

/// Per-thread buffers of attend(); they grow to the largest model seen and stay.
struct Scratch {
  std::vector<float> keys;    // [D, kKeyChunk]
  std::vector<float> values;  // [kKeyChunk, D]
  std::vector<float> logits;  // [kRowTile, H / G, kKeyChunk]
  std::vector<float> maxima;  // [kRowTile, H / G]
  std::vector<float> sums;    // likewise

  void start(std::size_t head_dim, std::size_t group) {
    keys.resize(std::max(keys.size(), head_dim * kKeyChunk));
    values.resize(std::max(values.size(), head_dim * kKeyChunk));
    logits.resize(std::max(logits.size(), kRowTile * group * kKeyChunk));
    maxima.assign(kRowTile * group, -std::numeric_limits<float>::infinity());
    sums.assign(kRowTile * group, 0.0F);
  }
};

/// Query rows [t0, t1) of KV head `head`.
struct Tile {
  const AttendArgs& args;
  const AttentionOps& ops;
  int head;
  std::int64_t t0;
  std::int64_t t1;

  [[nodiscard]] int group() const { return args.query_heads / args.kv_heads; }
  /// Where the group's first query, or result, of row t lies; the others follow D apart.
  [[nodiscard]] std::int64_t column() const {
    return static_cast<std::int64_t>(head) * group() * args.head_dim;
  }
};

/// Takes one chunk, keys [base, base + kKeyChunk), into every row of the tile that sees some of it:
/// first the logits of all rows, then their values, so that each of the two stays near the
/// processor. A row's arithmetic covers only the keys that it sees, so that it does not depend on
/// the others.
void fold_chunk(const Tile& tile,
                std::int32_t base,
                DType type,
                const std::byte* const* values,
                Scratch& scratch) {
  const AttendArgs& a = tile.args;
  const int group = tile.group();
  // `visible` does not decrease.
  std::int64_t first = tile.t0;
  while (a.visible[static_cast<std::size_t>(first)] <= base) {
    ++first;
  }
  const auto logits = [&](std::int64_t t) {
    return scratch.logits.data() + (t - tile.t0) * group * kKeyChunk;
  };
  for (std::int64_t t = first; t < tile.t1; ++t) {
    tile.ops.dot_keys(a.q.row(t) + tile.column(),
                      a.head_dim,
                      group,
                      a.head_dim,
                      scratch.keys.data(),
                      a.scale,
                      logits(t),
                      kKeyChunk);
  }
  for (std::int64_t t = first; t < tile.t1; ++t) {
    const std::int64_t state = (t - tile.t0) * group;
    tile.ops.fold_values(type,
                         values,
                         std::min(kKeyChunk, a.visible[static_cast<std::size_t>(t)] - base),
                         a.head_dim,
                         group,
                         logits(t),
                         scratch.maxima.data() + state,
                         scratch.sums.data() + state,
                         a.out.row(t) + tile.column());
  }
}

Scratch& own_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

void attend_tile(const Tile& tile) {
  auto* const load_as = cpu_ops().elementwise->load_as;
  Scratch& scratch = own_scratch();
  const AttendArgs& a = tile.args;
  const int group = tile.group();
  const auto group_size = static_cast<std::size_t>(group);
  scratch.start(static_cast<std::size_t>(a.head_dim), group_size);
  for (std::int64_t t = tile.t0; t < tile.t1; ++t) {
    std::fill_n(a.out.row(t) + tile.column(), group * a.head_dim, 0.0F);
  }
  const auto h = static_cast<std::size_t>(tile.head);
  const auto first = static_cast<std::size_t>(a.first[h]);
  const auto count = static_cast<std::size_t>(a.first[h + 1]) - first;
  ChunkReader reader(a.runs.subspan(first, count), row_bytes(a.dtype, a.head_dim));
  // `visible` does not decrease: the last row sees all that the others see.
  const std::int32_t keys_seen = a.visible[static_cast<std::size_t>(tile.t1 - 1)];
  const std::byte* keys[kKeyChunk];
  const std::byte* values[kKeyChunk];
  for (std::int32_t base = 0; base < keys_seen; base += kKeyChunk) {
    const int chunk = std::min(kKeyChunk, keys_seen - base);
    RIFT_CHECK(reader.next(chunk, keys, values),
               "head {} has fewer than the {} keys that are visible",
               tile.head,
               keys_seen);
    tile.ops.transpose_keys(a.dtype, keys, chunk, a.head_dim, scratch.keys.data());
    if (tile.t1 - tile.t0 == 1) {
      fold_chunk(tile, base, a.dtype, values, scratch);
      continue;
    }
    // Several rows share one conversion.
    for (int j = 0; j < chunk; ++j) {
      float* value = scratch.values.data() + static_cast<std::ptrdiff_t>(j) * a.head_dim;
      load_as(a.dtype, values[j], value, a.head_dim);
      values[j] = reinterpret_cast<const std::byte*>(value);
    }
    fold_chunk(tile, base, DType::kF32, values, scratch);
  }
  for (std::int64_t t = tile.t0; t < tile.t1; ++t) {
    for (int i = 0; i < group; ++i) {
      const auto state = static_cast<std::size_t>((t - tile.t0) * group + i);
      float* out = a.out.row(t) + tile.column() + static_cast<std::int64_t>(i) * a.head_dim;
      tile.ops.multiply(out, a.head_dim, 1.0F / scratch.sums[state]);
    }
  }
}

}  // namespace

void reserve_attend(std::int32_t head_dim, std::int32_t group, ThreadPool& pool) {
  pool.on_every_thread([&] {
    own_scratch().start(static_cast<std::size_t>(head_dim), static_cast<std::size_t>(group));
  });
}

void attend(const AttendArgs& args, ThreadPool& pool) {
  const std::int64_t rows = args.q.rows;
  RIFT_CHECK(args.kv_heads > 0 && args.query_heads % args.kv_heads == 0 && args.head_dim % 8 == 0,
             "{} query heads, {} KV heads, head dimension {}",
             args.query_heads,
             args.kv_heads,
             args.head_dim);
  RIFT_CHECK(args.first.size() == static_cast<std::size_t>(args.kv_heads) + 1 &&
                 args.visible.size() == static_cast<std::size_t>(rows) && args.out.rows == rows,
             "{} run limits, {} rows, {} visible counts",
             args.first.size(),
             rows,
             args.visible.size());
  const AttentionOps& ops = *cpu_ops().attention;
  const std::int64_t tiles = (rows + kRowTile - 1) / kRowTile;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      // Last rows first: they see the most keys, and short work at the end evens out the threads.
      const std::int64_t t0 = (tiles - 1 - i / args.kv_heads) * kRowTile;
      const int head = static_cast<int>(i % args.kv_heads);
      attend_tile({args, ops, head, t0, std::min(t0 + kRowTile, rows)});
    }
  };
  pool.parallel_for(tiles * args.kv_heads, 1, std::cref(body));
}

std::size_t window_score_scratch(std::int32_t window, std::int32_t key_count) {
  const int padded = (key_count + kKeyChunk - 1) / kKeyChunk * kKeyChunk;
  return static_cast<std::size_t>(window) * static_cast<std::size_t>(padded);
}

namespace {

/// logits [w, padded] = scale q k^T for query head `head` of the group.
void window_logits(const WindowScoreArgs& a,
                   int head,
                   std::int64_t padded,
                   std::vector<float>& transposed) {
  const AttentionOps& ops = *cpu_ops().attention;
  const std::size_t key_bytes = row_bytes(a.dtype, a.head_dim);
  const std::byte* keys[kKeyChunk];
  for (std::int32_t base = 0; base < a.key_count; base += kKeyChunk) {
    const int count = std::min(kKeyChunk, a.key_count - base);
    for (int i = 0; i < count; ++i) {
      keys[i] =
          static_cast<const std::byte*>(a.keys) + static_cast<std::size_t>(base + i) * key_bytes;
    }
    ops.transpose_keys(a.dtype, keys, count, a.head_dim, transposed.data());
    ops.dot_keys(a.q + static_cast<std::int64_t>(head) * a.head_dim,
                 static_cast<std::int64_t>(a.group) * a.head_dim,
                 a.window,
                 a.head_dim,
                 transposed.data(),
                 a.scale,
                 a.scratch + base,
                 padded);
  }
}

}  // namespace

void window_scores(const WindowScoreArgs& args) {
  RIFT_CHECK(args.window >= 1 && args.key_count >= args.window && args.head_dim % 8 == 0,
             "window {}, {} keys, head dimension {}",
             args.window,
             args.key_count,
             args.head_dim);
  static thread_local std::vector<float> transposed;
  transposed.resize(
      std::max(transposed.size(), static_cast<std::size_t>(args.head_dim) * kKeyChunk));
  const AttentionOps& ops = *cpu_ops().attention;
  const std::int64_t padded =
      (static_cast<std::int64_t>(args.key_count) + kKeyChunk - 1) / kKeyChunk * kKeyChunk;
  for (int head = 0; head < args.group; ++head) {
    float* out = args.per_head + static_cast<std::int64_t>(head) * args.key_count;
    std::fill_n(out, args.key_count, 0.0F);
    window_logits(args, head, padded, transposed);
    for (std::int32_t i = 0; i < args.window; ++i) {
      const std::int32_t seen = args.key_count - args.window + i + 1;
      ops.add_softmax(args.scratch + i * padded, seen, 1.0F / static_cast<float>(args.window), out);
    }
  }
}

std::size_t key_share_scratch(std::int64_t rows, std::int32_t group, std::int32_t key_count) {
  const auto padded = static_cast<std::size_t>((key_count + kKeyChunk - 1) / kKeyChunk * kKeyChunk);
  return static_cast<std::size_t>(std::min<std::int64_t>(rows, kRowTile)) *
         static_cast<std::size_t>(group) * padded;
}

namespace {

/// logits [T, g, padded] of the rows [t0, t1) of `a`: what they see of every chunk of keys.
void share_logits(const KeyShareArgs& a, std::int64_t t0, std::int64_t t1, std::int64_t padded) {
  static thread_local std::vector<float> transposed;
  transposed.resize(std::max(transposed.size(), static_cast<std::size_t>(a.head_dim) * kKeyChunk));
  const AttentionOps& ops = *cpu_ops().attention;
  ChunkReader reader(a.runs, row_bytes(a.dtype, a.head_dim));
  const auto seen = static_cast<std::int32_t>(a.visible + t1 - 1);
  const std::byte* keys[kKeyChunk];
  for (std::int32_t base = 0; base < seen; base += kKeyChunk) {
    const int count = std::min(kKeyChunk, seen - base);
    RIFT_CHECK(reader.next(count, keys, nullptr), "fewer than the {} keys that are visible", seen);
    ops.transpose_keys(a.dtype, keys, count, a.head_dim, transposed.data());
    for (std::int64_t t = std::max(t0, std::int64_t{base} - a.visible + 1); t < t1; ++t) {
      ops.dot_keys(a.q.row(t),
                   a.head_dim,
                   a.group,
                   a.head_dim,
                   transposed.data(),
                   a.scale,
                   a.scratch + (t - t0) * a.group * padded + base,
                   padded);
    }
  }
}

}  // namespace

void add_key_shares(const KeyShareArgs& args) {
  RIFT_CHECK(args.visible >= 1 && args.group >= 1 && args.head_dim % 8 == 0 &&
                 args.q.cols == std::int64_t{args.group} * args.head_dim,
             "{} keys visible, queries of {} for {} heads of {}",
             args.visible,
             args.q.cols,
             args.group,
             args.head_dim);
  const AttentionOps& ops = *cpu_ops().attention;
  const std::int64_t rows = args.q.rows;
  const std::int64_t padded = (args.visible + rows - 1 + kKeyChunk - 1) / kKeyChunk * kKeyChunk;
  const float factor = 1.0F / static_cast<float>(args.group);
  for (std::int64_t t0 = 0; t0 < rows; t0 += kRowTile) {
    const std::int64_t t1 = std::min(t0 + kRowTile, rows);
    share_logits(args, t0, t1, padded);
    for (std::int64_t t = t0; t < t1; ++t) {
      for (std::int32_t h = 0; h < args.group; ++h) {
        ops.add_softmax(args.scratch + ((t - t0) * args.group + h) * padded,
                        args.visible + t,
                        factor,
                        args.sums);
      }
    }
  }
}

}  // namespace rift::kernels
