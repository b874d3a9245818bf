// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pieces that the AVX2 and the AVX-512 files share. Everything here has internal linkage: a copy
// per file, so that no other file can end up calling code compiled for an instruction set.

#include "common/types.h"

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace rift::kernels {
namespace {

inline __m128i load16(const void* from) {
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

/// The tree is fixed: (0 + 4) + (2 + 6), (1 + 5) + (3 + 7).
inline float sum_lanes(__m256 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

inline float max_lanes(__m256 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

/// Calls use.operator()<kRows>(first) for tiles of kMax of n rows, and for one of what remains.
template <int kMax, class Use>
inline void for_tiles(int n, const Use& use, int first = 0) {
  for (; first + kMax <= n; first += kMax) {
    use.template operator()<kMax>(first);
  }
  if constexpr (kMax > 1) {
    for_tiles<kMax - 1>(n, use, first);
  }
}

}  // namespace
}  // namespace rift::kernels
