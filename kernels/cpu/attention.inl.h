// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/avx2.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/exp.inl.h"

namespace rift::kernels {
namespace {

constexpr int kKeyParts = kKeyChunk / kLanes;  // registers that hold one value per key of a chunk
constexpr float kNoLogit = -3.402823466e+38F;

/// kQueries at once; each logit is one chain of multiply-adds over d = 0, 1, ..
template <int kQueries>
inline void dot_queries(const float* q,
                        std::int64_t q_stride,
                        int head_dim,
                        const float* keys,
                        float scale,
                        float* logits,
                        std::int64_t logit_stride) {
  Floats sums[kQueries][kKeyParts];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kKeyParts; ++p) {
      sums[i][p] = splat(0.0F);
    }
  }
  for (int d = 0; d < head_dim; ++d) {
    Floats query[kQueries];
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      query[i] = splat(q[i * q_stride + d]);
    }
#pragma GCC unroll 8
    for (int p = 0; p < kKeyParts; ++p) {
      const Floats key = load_floats(keys + d * kKeyChunk + p * kLanes);
#pragma GCC unroll 8
      for (int i = 0; i < kQueries; ++i) {
        sums[i][p] = fma(key, query[i], sums[i][p]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int p = 0; p < kKeyParts; ++p) {
      store_floats(logits + i * logit_stride + p * kLanes, sums[i][p] * splat(scale));
    }
  }
}

void dot_keys(const float* q,
              std::int64_t q_stride,
              int n,
              int head_dim,
              const float* keys,
              float scale,
              float* logits,
              std::int64_t logit_stride) {
  for_tiles<kQueryTile>(n, [&]<int kQueries>(int i) {
    dot_queries<kQueries>(
        q + i * q_stride, q_stride, head_dim, keys, scale, logits + i * logit_stride, logit_stride);
  });
}

/// Turns the logits of one query into weights relative to its running maximum; those from `count`
/// on become 0. Returns by how much what was summed so far shrinks.
inline float update_softmax(float* logits, int count, float* maximum, float* sum) {
  Floats x[kKeyParts];
#pragma GCC unroll 4
  for (int p = 0; p < kKeyParts; ++p) {
    x[p] = where_below(count - p * kLanes, load_floats(logits + p * kLanes), splat(kNoLogit));
  }
  const float before = *maximum;
  const float chunk = max_of_32(x);
  const float now = chunk > before ? chunk : before;
#pragma GCC unroll 4
  for (int p = 0; p < kKeyParts; ++p) {
    x[p] = exp_lanes(x[p] - splat(now));
    store_floats(logits + p * kLanes, x[p]);
  }
  float shrink = 1.0F;
  if (before != now) {
    alignas(64) float lanes[kLanes];
    store_floats(lanes, exp_lanes(splat(before - now)));
    shrink = lanes[0];
  }
  *sum = *sum * shrink + sum_of_32(x);
  *maximum = now;
  return shrink;
}

/// out[i, d .. d + kCount kBlocks) += sum over j of weights[i, j] values[j, d ..) in order of j,
/// for kQueries queries.
template <DType kType, int kQueries, int kBlocks, int kCount>
inline void add_values(const std::byte* const* values,
                       int count,
                       int d,
                       int head_dim,
                       const float* weights,
                       float* out) {
  Floats sums[kQueries][kBlocks];
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      const auto* from = reinterpret_cast<const std::byte*>(out + i * head_dim + d + b * kCount);
      sums[i][b] = load_lanes<DType::kF32, kCount>(from);
    }
  }
  for (int j = 0; j < count; ++j) {
    const std::byte* from = values[j] + static_cast<std::size_t>(d) * kBytesOf<kType>;
    Floats weight[kQueries];
#pragma GCC unroll 8
    for (int i = 0; i < kQueries; ++i) {
      weight[i] = splat(weights[i * kKeyChunk + j]);
    }
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      const Floats value =
          load_lanes<kType, kCount>(from + static_cast<std::size_t>(b) * kCount * kBytesOf<kType>);
#pragma GCC unroll 8
      for (int i = 0; i < kQueries; ++i) {
        sums[i][b] = fma(weight[i], value, sums[i][b]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      store_lanes<kCount>(out + i * head_dim + d + b * kCount, sums[i][b]);
    }
  }
}

template <DType kType, int kQueries>
inline void add_all_values(
    const std::byte* const* values, int count, int head_dim, const float* weights, float* out) {
  constexpr int kTogether = kValueBlocks * kLanes;
  int d = 0;
  for (; d + kTogether <= head_dim; d += kTogether) {
    add_values<kType, kQueries, kValueBlocks, kLanes>(values, count, d, head_dim, weights, out);
  }
  for (; d + kLanes <= head_dim; d += kLanes) {
    add_values<kType, kQueries, 1, kLanes>(values, count, d, head_dim, weights, out);
  }
  // A head's dimensions are a multiple of eight.
  if constexpr (kLanes > 8) {
    if (d < head_dim) {
      add_values<kType, kQueries, 1, 8>(values, count, d, head_dim, weights, out);
    }
  }
}

template <DType kType>
void fold_typed(const std::byte* const* values,
                int count,
                int head_dim,
                int n,
                const float* weights,
                float* out) {
  for_tiles<kQueryTile>(n, [&]<int kQueries>(int i) {
    add_all_values<kType, kQueries>(
        values, count, head_dim, weights + i * kKeyChunk, out + i * head_dim);
  });
}

void fold_values(DType type,
                 const std::byte* const* values,
                 int count,
                 int head_dim,
                 int n,
                 float* logits,
                 float* maxima,
                 float* sums,
                 float* out) {
  for (int i = 0; i < n; ++i) {
    const float shrink = update_softmax(logits + i * kKeyChunk, count, maxima + i, sums + i);
    if (shrink != 1.0F) {
      avx2::multiply(out + i * head_dim, head_dim, shrink);
    }
  }
  if (type == DType::kF16) {
    fold_typed<DType::kF16>(values, count, head_dim, n, logits, out);
  } else if (type == DType::kBF16) {
    fold_typed<DType::kBF16>(values, count, head_dim, n, logits, out);
  } else {
    fold_typed<DType::kF32>(values, count, head_dim, n, logits, out);
  }
}

}  // namespace
}  // namespace rift::kernels
