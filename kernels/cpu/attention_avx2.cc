// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2.inl.h"
#include "kernels/cpu/cpu_ops.h"

namespace rift::kernels {
namespace {

constexpr int kLanes = 8;
constexpr int kParts = kKeyChunk / kLanes;  // registers that hold one value per key of a chunk
constexpr float kNoLogit = -3.402823466e+38F;

template <DType kType>
void transpose_typed(const std::byte* const* keys, int count, int head_dim, float* out) {
  for (int j = 0; j < kKeyChunk; j += kLanes) {
    const std::byte* rows[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      rows[i] = keys[j + i < count ? j + i : count - 1];
    }
    for (int d = 0; d < head_dim && j < count; d += kLanes) {
      __m256 x[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        x[i] = load8<kType>(rows[i] + static_cast<std::size_t>(d) * kBytesOf<kType>);
      }
      transpose8(x);
      for (int i = 0; i < kLanes; ++i) {
        _mm256_storeu_ps(out + (d + i) * kKeyChunk + j, x[i]);
      }
    }
  }
}

void transpose_keys(DType type, const std::byte* const* keys, int count, int head_dim, float* out) {
  if (type == DType::kF16) {
    transpose_typed<DType::kF16>(keys, count, head_dim, out);
  } else if (type == DType::kBF16) {
    transpose_typed<DType::kBF16>(keys, count, head_dim, out);
  } else {
    transpose_typed<DType::kF32>(keys, count, head_dim, out);
  }
}

/// kQueries at once; each logit is one chain of multiply-adds over d = 0, 1, ..
template <int kQueries>
inline void dot_queries(const float* q,
                        std::int64_t q_stride,
                        int head_dim,
                        const float* keys,
                        float scale,
                        float* logits,
                        std::int64_t logit_stride) {
  __m256 sums[kQueries][kParts];
  for (int i = 0; i < kQueries; ++i) {
    for (int p = 0; p < kParts; ++p) {
      sums[i][p] = _mm256_setzero_ps();
    }
  }
  for (int d = 0; d < head_dim; ++d) {
    __m256 query[kQueries];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      query[i] = _mm256_set1_ps(q[i * q_stride + d]);
    }
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const __m256 key = _mm256_loadu_ps(keys + d * kKeyChunk + p * kLanes);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        sums[i][p] = _mm256_fmadd_ps(key, query[i], sums[i][p]);
      }
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int p = 0; p < kParts; ++p) {
      _mm256_storeu_ps(logits + i * logit_stride + p * kLanes,
                       _mm256_mul_ps(sums[i][p], _mm256_set1_ps(scale)));
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
  int i = 0;
  for (; i + 3 <= n; i += 3) {
    dot_queries<3>(
        q + i * q_stride, q_stride, head_dim, keys, scale, logits + i * logit_stride, logit_stride);
  }
  if (n - i == 2) {
    dot_queries<2>(
        q + i * q_stride, q_stride, head_dim, keys, scale, logits + i * logit_stride, logit_stride);
  } else if (n - i == 1) {
    dot_queries<1>(
        q + i * q_stride, q_stride, head_dim, keys, scale, logits + i * logit_stride, logit_stride);
  }
}

/// Turns the logits of one query into weights relative to its running maximum; those from `count`
/// on become 0. Returns by how much what was summed so far shrinks.
inline float update_softmax(float* logits, int count, float* maximum, float* sum) {
  const __m256 none = _mm256_set1_ps(kNoLogit);
  __m256 x[kParts];
  for (int p = 0; p < kParts; ++p) {
    const __m256 seen = _mm256_castsi256_ps(lanes_below(count - p * kLanes));
    x[p] = _mm256_blendv_ps(none, _mm256_loadu_ps(logits + p * kLanes), seen);
  }
  const __m256 largest = _mm256_max_ps(_mm256_max_ps(x[0], x[1]), _mm256_max_ps(x[2], x[3]));
  const float before = *maximum;
  const float chunk = max_lanes(largest);
  const float now = chunk > before ? chunk : before;
  for (int p = 0; p < kParts; ++p) {
    x[p] = exp8(_mm256_sub_ps(x[p], _mm256_set1_ps(now)));
    _mm256_storeu_ps(logits + p * kLanes, x[p]);
  }
  const float added =
      sum_lanes(_mm256_add_ps(_mm256_add_ps(x[0], x[1]), _mm256_add_ps(x[2], x[3])));
  const float shrink = before == now ? 1.0F : _mm256_cvtss_f32(exp8(_mm256_set1_ps(before - now)));
  *sum = *sum * shrink + added;
  *maximum = now;
  return shrink;
}

/// out[i, d .. d + 8 kBlocks) += sum over j of weights[i, j] values[j, d ..) in order of j, for
/// kQueries queries.
template <DType kType, int kQueries, int kBlocks>
inline void add_values(const std::byte* const* values,
                       int count,
                       int d,
                       int head_dim,
                       const float* weights,
                       float* out) {
  __m256 sums[kQueries][kBlocks];
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      sums[i][b] = _mm256_loadu_ps(out + i * head_dim + d + b * kLanes);
    }
  }
  for (int j = 0; j < count; ++j) {
    const std::byte* from = values[j] + static_cast<std::size_t>(d) * kBytesOf<kType>;
    __m256 weight[kQueries];
#pragma GCC unroll 4
    for (int i = 0; i < kQueries; ++i) {
      weight[i] = _mm256_set1_ps(weights[i * kKeyChunk + j]);
    }
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      const __m256 value =
          load8<kType>(from + static_cast<std::size_t>(b) * kLanes * kBytesOf<kType>);
#pragma GCC unroll 4
      for (int i = 0; i < kQueries; ++i) {
        sums[i][b] = _mm256_fmadd_ps(weight[i], value, sums[i][b]);
      }
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kQueries; ++i) {
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      _mm256_storeu_ps(out + i * head_dim + d + b * kLanes, sums[i][b]);
    }
  }
}

template <DType kType, int kQueries>
inline void add_all_values(
    const std::byte* const* values, int count, int head_dim, const float* weights, float* out) {
  int d = 0;
  for (; d + 4 * kLanes <= head_dim; d += 4 * kLanes) {
    add_values<kType, kQueries, 4>(values, count, d, head_dim, weights, out);
  }
  for (; d < head_dim; d += kLanes) {
    add_values<kType, kQueries, 1>(values, count, d, head_dim, weights, out);
  }
}

template <DType kType>
void fold_typed(const std::byte* const* values,
                int count,
                int head_dim,
                int n,
                const float* weights,
                float* out) {
  int i = 0;
  for (; i + 3 <= n; i += 3) {
    add_all_values<kType, 3>(values, count, head_dim, weights + i * kKeyChunk, out + i * head_dim);
  }
  weights += i * kKeyChunk;
  out += i * head_dim;
  if (n - i == 2) {
    add_all_values<kType, 2>(values, count, head_dim, weights, out);
  } else if (n - i == 1) {
    add_all_values<kType, 1>(values, count, head_dim, weights, out);
  }
}

void multiply(float* x, std::int64_t n, float factor) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_ps(x + i, _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(factor)));
  }
  for (; i < n; ++i) {
    x[i] *= factor;
  }
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
      multiply(out + i * head_dim, head_dim, shrink);
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

/// Lanes of x[i ..] below n, `filler` elsewhere.
inline __m256 load_part(const float* x, std::int64_t i, std::int64_t n, __m256 filler) {
  const __m256i mask = lanes_below(n - i);
  return _mm256_blendv_ps(filler, _mm256_maskload_ps(x + i, mask), _mm256_castsi256_ps(mask));
}

void add_softmax(float* logits, std::int64_t n, float factor, float* out) {
  const __m256 none = _mm256_set1_ps(kNoLogit);
  __m256 largest = none;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    largest = _mm256_max_ps(largest, load_part(logits, i, n, none));
  }
  const __m256 maximum = _mm256_set1_ps(max_lanes(largest));
  __m256 sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256 e = exp8(_mm256_sub_ps(load_part(logits, i, n, none), maximum));
    _mm256_maskstore_ps(logits + i, lanes_below(n - i), e);
    sum = _mm256_add_ps(sum, e);
  }
  const __m256 share = _mm256_set1_ps(factor / sum_lanes(sum));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256i mask = lanes_below(n - i);
    const __m256 e = _mm256_maskload_ps(logits + i, mask);
    const __m256 total = _mm256_fmadd_ps(e, share, _mm256_maskload_ps(out + i, mask));
    _mm256_maskstore_ps(out + i, mask, total);
  }
}

}  // namespace

const AttentionOps kAttentionAvx2 = {transpose_keys, dot_keys, fold_values, multiply, add_softmax};

}  // namespace rift::kernels
