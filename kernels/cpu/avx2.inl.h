// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pieces that the AVX2 files share. Everything here has internal linkage: a copy per file, so that
// no other file can end up calling code compiled for AVX2.

#include "common/types.h"

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace rift::kernels {
namespace {

[[maybe_unused]] inline __m128i load16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}

/// Eight elements of F32, F16 or BF16.
template <DType kType>
inline __m256 load8(const std::byte* from) {
  if constexpr (kType == DType::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  } else if constexpr (kType == DType::kF16) {
    return _mm256_cvtph_ps(load16(from));
  } else {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(from)), 16));
  }
}

template <DType kType>
inline constexpr std::size_t kBytesOf = kType == DType::kF32 ? 4 : 2;

/// One element.
template <DType kType>
inline float load1(const std::byte* from) {
  if constexpr (kType == DType::kF32) {
    float value = 0.0F;
    __builtin_memcpy(&value, from, sizeof(value));
    return value;
  } else {
    std::uint16_t half = 0;
    __builtin_memcpy(&half, from, sizeof(half));
    if constexpr (kType == DType::kF16) {
      return _cvtsh_ss(half);
    } else {
      return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(half) << 16)));
    }
  }
}

/// x[i] lane j becomes x[j] lane i.
[[maybe_unused]] inline void transpose8(__m256* x) {
  const __m256 a0 = _mm256_unpacklo_ps(x[0], x[1]);
  const __m256 a1 = _mm256_unpackhi_ps(x[0], x[1]);
  const __m256 a2 = _mm256_unpacklo_ps(x[2], x[3]);
  const __m256 a3 = _mm256_unpackhi_ps(x[2], x[3]);
  const __m256 a4 = _mm256_unpacklo_ps(x[4], x[5]);
  const __m256 a5 = _mm256_unpackhi_ps(x[4], x[5]);
  const __m256 a6 = _mm256_unpacklo_ps(x[6], x[7]);
  const __m256 a7 = _mm256_unpackhi_ps(x[6], x[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44);
  const __m256 b1 = _mm256_shuffle_ps(a0, a2, 0xEE);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44);
  const __m256 b3 = _mm256_shuffle_ps(a1, a3, 0xEE);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44);
  const __m256 b5 = _mm256_shuffle_ps(a4, a6, 0xEE);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44);
  const __m256 b7 = _mm256_shuffle_ps(a5, a7, 0xEE);
  x[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
  x[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
  x[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
  x[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
  x[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  x[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  x[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  x[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

/// The tree is fixed: (0 + 4) + (2 + 6), (1 + 5) + (3 + 7).
[[maybe_unused]] inline float sum_lanes(__m256 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

[[maybe_unused]] inline float max_lanes(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

/// All ones in lanes below n.
[[maybe_unused]] inline __m256i lanes_below(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

/// e^x for x in [-87.3, 88], within 0.92 ulp (one float in 37 tried); 0 below, e^88 above; NaN
/// gives an unspecified number. x = n ln 2 + r, |r| <= ln 2 / 2: Taylor's series of e^r to r^7,
/// whose remainder is below 6e-9.
[[maybe_unused]] inline __m256 exp8(__m256 x) {
  const __m256 above_zero = _mm256_cmp_ps(x, _mm256_set1_ps(-87.3F), _CMP_GE_OQ);
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.3F)), _mm256_set1_ps(88.0F));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts; n times the first is exact.
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.0F / 5040.0F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 720.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 120.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 24.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F / 6.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0F));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(exponent)), above_zero);
}

}  // namespace
}  // namespace rift::kernels
