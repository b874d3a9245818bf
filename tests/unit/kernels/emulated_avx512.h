// SPDX-License-Identifier: Apache-2.0
#pragma once

// Included by the compiler in front of the AVX-512 sources, so that they run on a machine that has
// AVX2 only: SIMDe's portable versions of the instructions behind their names, and here those that
// SIMDe 0.7.4 lacks, by halves.

#define RIFT_EMULATE_AVX512
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

#include <immintrin.h>

#include <cstdint>

namespace rift::kernels {
namespace {

template <class From>
struct Halves {
  explicit Halves(From from) { __builtin_memcpy(this, &from, sizeof(from)); }
  __m256i low;
  __m256i high;
};

template <class To, class Half>
inline To join(Half low, Half high) {
  const Half halves[2] = {low, high};
  To to;
  __builtin_memcpy(&to, halves, sizeof(to));
  return to;
}

inline __m512i emulated_srai_epi32(__m512i x, unsigned n) {
  const Halves half(x);
  const int count = static_cast<int>(n);
  return join<__m512i>(_mm256_srai_epi32(half.low, count), _mm256_srai_epi32(half.high, count));
}

inline __m512 emulated_cvtepi32_ps(__m512i x) {
  const Halves half(x);
  return join<__m512>(_mm256_cvtepi32_ps(half.low), _mm256_cvtepi32_ps(half.high));
}

inline __m512i emulated_cvtps_epi32(__m512 x) {
  const Halves half(x);
  return join<__m512i>(_mm256_cvtps_epi32(_mm256_castsi256_ps(half.low)),
                       _mm256_cvtps_epi32(_mm256_castsi256_ps(half.high)));
}

inline __m512 emulated_cvtph_ps(__m256i x) {
  return join<__m512>(_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
                      _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}

inline __m512i emulated_cvtepu16_epi32(__m256i x) {
  return join<__m512i>(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
                       _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}

inline __m256i emulated_cvtepi32_epi16(__m512i x) {
  std::uint32_t words[16];
  __builtin_memcpy(words, &x, sizeof(words));
  std::uint16_t halves[16];
  for (int i = 0; i < 16; ++i) {
    halves[i] = static_cast<std::uint16_t>(words[i]);
  }
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves));
}

}  // namespace
}  // namespace rift::kernels

#define _mm512_srai_epi32 emulated_srai_epi32
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_cvtps_epi32 emulated_cvtps_epi32
#define _mm512_cvtph_ps emulated_cvtph_ps
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16
