// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.inl.h"

namespace rift::kernels {
namespace avx2 {
namespace {

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

/// Lanes of x[i ..] below n, `filler` elsewhere.
inline __m256 load_part(const float* x, std::int64_t i, std::int64_t n, __m256 filler) {
  const __m256i mask = lanes_below(n - i);
  return _mm256_blendv_ps(filler, _mm256_maskload_ps(x + i, mask), _mm256_castsi256_ps(mask));
}

}  // namespace

void transpose_keys(DType type, const std::byte* const* keys, int count, int head_dim, float* out) {
  if (type == DType::kF16) {
    transpose_typed<DType::kF16>(keys, count, head_dim, out);
  } else if (type == DType::kBF16) {
    transpose_typed<DType::kBF16>(keys, count, head_dim, out);
  } else {
    transpose_typed<DType::kF32>(keys, count, head_dim, out);
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

void add_softmax(float* logits, std::int64_t n, float factor, float* out) {
  const __m256 none = _mm256_set1_ps(kNoLogit);
  __m256 largest = none;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    largest = _mm256_max_ps(largest, load_part(logits, i, n, none));
  }
  const __m256 maximum = _mm256_set1_ps(max_lanes(largest));
  __m256 sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256 e = exp_lanes(_mm256_sub_ps(load_part(logits, i, n, none), maximum));
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

}  // namespace avx2

const AttentionOps kAttentionAvx2 = {
    avx2::transpose_keys, dot_keys, fold_values, avx2::multiply, avx2::add_softmax};

}  // namespace rift::kernels
