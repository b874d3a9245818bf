// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"
#include "common/types.h"

#include <cstdint>
#include <span>

namespace rift::kernels {

/// `count` consecutive keys and values of one KV head, each [count, D] contiguous in the cache's
/// dtype (F16, BF16 or F32).
struct KvRun {
  const void* keys = nullptr;
  const void* values = nullptr;
  std::int32_t count = 0;
};

/// Softmax attention of T query rows over a cache given as runs per KV head: one long run for a
/// plain cache, one per block or ring segment for a working set.
struct AttendArgs {
  MatView<const float> q;                 // [T, H * D], after RoPE
  std::int32_t query_heads = 0;           // H, a multiple of G; head h reads KV head h / (H / G)
  std::int32_t kv_heads = 0;              // G
  std::int32_t head_dim = 0;              // D, a multiple of 8
  float scale = 0.0F;                     // multiplies q.k
  DType dtype = DType::kF16;              // of keys and values
  std::span<const KvRun> runs;            // all heads, one after the other
  std::span<const std::int32_t> first;    // [G + 1]: runs of head g are [first[g], first[g + 1])
  std::span<const std::int32_t> visible;  // [T]: row t attends to the first visible[t] >= 1 keys of
                                          // every head, in run order; non-decreasing in t
  MatView<float> out;                     // [T, H * D]
};

/// out[t, h] = sum_j softmax_j(scale q[t, h].k_j) v_j. Online softmax in f32.
/// Batch-invariant: a row is bit-identical for any T and thread count (its keys are worked through
/// in run order in chunks whose size does not depend on T). How the same keys are cut into runs may
/// change the rounding. Allocates nothing beyond a fixed stack or thread-local scratch.
void attend(const AttendArgs& args, ThreadPool& pool);
/// Makes every thread's scratch large enough for attend() with this shape, so that it allocates
/// nothing later, whichever threads take part.
void reserve_attend(std::int32_t head_dim, std::int32_t group, ThreadPool& pool);

/// Attention mass that a window of recent queries gives to every key of one KV head (SnapKV's
/// scores, Li et al. 2024; golden `score.snapkv.none`).
struct WindowScoreArgs {
  const float* q = nullptr;   // [w, g, D] f32 after RoPE: the w newest queries, oldest first, of
                              // the g query heads of this KV head
  std::int32_t window = 0;    // w
  std::int32_t group = 0;     // g
  std::int32_t head_dim = 0;  // D
  float scale = 0.0F;
  DType dtype = DType::kF16;   // of keys
  const void* keys = nullptr;  // [N, D] contiguous
  std::int32_t key_count = 0;  // N >= w; query i is at position N - w + i and sees keys 0..that
  float* per_head = nullptr;   // [g, N]: (1 / w) sum_t softmax, masked entries 0; overwritten
  float* scratch = nullptr;    // window_score_scratch(w, N) floats, one set per thread
};
[[nodiscard]] std::size_t window_score_scratch(std::int32_t window, std::int32_t key_count);
/// Single-threaded: callers run heads side by side.
void window_scores(const WindowScoreArgs& args);

/// What every key of one KV head gets of T queries' attention (H2O's sums, Zhang et al. 2023;
/// golden `h2o.*`).
struct KeyShareArgs {
  MatView<const float> q;       // [T, g D] f32 after RoPE: the g query heads of this KV head
  std::int32_t group = 0;       // g
  std::int32_t head_dim = 0;    // D, a multiple of 8
  float scale = 0.0F;           // multiplies q.k
  DType dtype = DType::kF16;    // of keys
  std::span<const KvRun> runs;  // of this head; values are not read
  std::int32_t visible = 0;     // row t attends to the first visible + t keys in run order; >= 1
  float* sums = nullptr;        // [visible + T - 1], added to
  float* scratch = nullptr;     // key_share_scratch(T, g, visible + T - 1) floats
};
[[nodiscard]] std::size_t key_share_scratch(std::int64_t rows,
                                            std::int32_t group,
                                            std::int32_t key_count);
/// sums[j] += sum_t mean_h softmax_j(scale q[t, h].k_j), in order of t and h, so that the sums have
/// the same bits however the rows are divided among calls, and keys among runs.
/// Single-threaded: callers run heads side by side.
void add_key_shares(const KeyShareArgs& args);

}  // namespace rift::kernels
