// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/exp.inl.h"

namespace rift::kernels {
namespace {

/// Lanes below n - i of x[i ..], zeros elsewhere.
inline __m256 load_part(const float* x, std::int64_t i, std::int64_t n) {
  return n - i >= kLanes ? _mm256_loadu_ps(x + i) : _mm256_maskload_ps(x + i, lanes_below(n - i));
}

inline void store_part(float* x, std::int64_t i, std::int64_t n, __m256 value) {
  if (n - i >= kLanes) {
    _mm256_storeu_ps(x + i, value);
  } else {
    _mm256_maskstore_ps(x + i, lanes_below(n - i), value);
  }
}

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* out) {
  __m256 even = _mm256_setzero_ps();
  __m256 odd = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < n; i += 2 * kLanes) {
    const __m256 a = load_part(x, i, n);
    even = _mm256_fmadd_ps(a, a, even);
    if (i + kLanes < n) {
      const __m256 b = load_part(x, i + kLanes, n);
      odd = _mm256_fmadd_ps(b, b, odd);
    }
  }
  const float mean = sum_lanes(_mm256_add_ps(even, odd)) / static_cast<float>(n);
  const __m256 factor =
      _mm256_div_ps(_mm256_set1_ps(1.0F), _mm256_sqrt_ps(_mm256_set1_ps(mean + eps)));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256 scaled = _mm256_mul_ps(load_part(x, i, n), factor);
    store_part(out, i, n, _mm256_mul_ps(scaled, load_part(weight, i, n)));
  }
}

void rope_half(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t h = 0; h < heads; ++h) {
    float* first = x + h * head_dim;
    float* second = first + half;
    for (std::int64_t i = 0; i < half; i += kLanes) {
      const __m256 c = load_part(cos, i, half);
      const __m256 s = load_part(sin, i, half);
      const __m256 a = load_part(first, i, half);
      const __m256 b = load_part(second, i, half);
      store_part(first, i, half, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
      store_part(second, i, half, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
    }
  }
}

void rope_interleaved(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
  for (std::int64_t h = 0; h < heads; ++h) {
    float* head = x + h * head_dim;
    // Four pairs at a time: cos and sin of a pair in both of its lanes.
    for (std::int64_t i = 0; i < head_dim; i += kLanes) {
      const __m256 c = _mm256_permutevar8x32_ps(load_part(cos, i / 2, head_dim / 2), twice);
      const __m256 s = _mm256_permutevar8x32_ps(load_part(sin, i / 2, head_dim / 2), twice);
      const __m256 a = load_part(head, i, head_dim);
      const __m256 swapped = _mm256_permute_ps(a, 0xB1);
      // Even lanes subtract, odd lanes add.
      store_part(head, i, head_dim, _mm256_fmaddsub_ps(a, c, _mm256_mul_ps(swapped, s)));
    }
  }
}

void silu_multiply(const float* gate, const float* up, std::int64_t n, float* out) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256 g = load_part(gate, i, n);
    const __m256 e = exp_lanes(_mm256_xor_ps(g, sign));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(_mm256_set1_ps(1.0F), e));
    // Below -88, where exp_lanes stops growing, the result is smaller than 1e-36. NaN passes.
    const __m256 kept = _mm256_cmp_ps(g, _mm256_set1_ps(-88.0F), _CMP_NLT_UQ);
    store_part(out, i, n, _mm256_mul_ps(_mm256_and_ps(silu, kept), load_part(up, i, n)));
  }
}

void add(float* x, const float* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    store_part(x, i, n, _mm256_add_ps(load_part(x, i, n), load_part(y, i, n)));
  }
}

/// Eight floats to bfloat16, to nearest even; NaN stays NaN.
inline __m128i to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  const __m256i rounded = _mm256_add_epi32(bits, half);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i upper = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, is_nan), 16);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(upper, upper), 0x08);
  return _mm256_castsi256_si128(packed);
}

/// Copies the first n < 8 of eight 16-bit numbers.
inline void store_halves(std::byte* to, std::int64_t n, __m128i halves) {
  alignas(16) std::uint16_t all[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(all), halves);
  __builtin_memcpy(to, all, static_cast<std::size_t>(2 * n));
}

void store_as(DType type, const float* from, void* to, std::int64_t n) {
  if (type == DType::kF32) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  auto* bytes = static_cast<std::byte*>(to);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __m256 x = load_part(from, i, n);
    const __m128i halves = type == DType::kF16
                               ? _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
                               : to_bf16(x);
    if (n - i >= kLanes) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes + 2 * i), halves);
    } else {
      store_halves(bytes + 2 * i, n - i, halves);
    }
  }
}

template <DType kType>
void load_typed(const std::byte* from, float* to, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_ps(to + i, load8<kType>(from + 2 * i));
  }
  for (; i < n; ++i) {
    to[i] = load1<kType>(from + 2 * i);
  }
}

void load_as(DType type, const void* from, float* to, std::int64_t n) {
  if (type == DType::kF16) {
    load_typed<DType::kF16>(static_cast<const std::byte*>(from), to, n);
  } else if (type == DType::kBF16) {
    load_typed<DType::kBF16>(static_cast<const std::byte*>(from), to, n);
  } else {
    __builtin_memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  }
}

}  // namespace

const ElementwiseOps kElementwiseAvx2 = {
    rms_norm, rope_half, rope_interleaved, silu_multiply, add, store_as, load_as};

}  // namespace rift::kernels
