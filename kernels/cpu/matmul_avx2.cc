// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/dot.inl.h"
#include "kernels/cpu/dot_panel.inl.h"

namespace rift::kernels {
namespace avx2 {
namespace {

inline __m256 largest_of_four(const __m256* x) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  __m256 largest = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, x[i]));
  }
  return largest;
}

/// Sum of eight 32-bit lanes.
inline int sum_words(__m256i x) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1));
  return _mm_cvtsi128_si32(half);
}

}  // namespace

void round_row(const float* x, std::int64_t n, const RoundedRow& out) {
  for (std::int64_t group = 0; group < n / 32; ++group) {
    __m256 v[4];
    __m256i rounded[4];
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + 32 * group + 8 * i);
    }
    const float largest = max_lanes(largest_of_four(v));
    const float inverse = largest > kLeastLargest ? 127.0F / largest : 0.0F;
    for (int i = 0; i < 4; ++i) {
      rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inverse)));
    }
    const int first = sum_words(_mm256_add_epi32(rounded[0], rounded[1]));
    const int second = sum_words(_mm256_add_epi32(rounded[2], rounded[3]));
    const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(rounded[0], rounded[1]),
                                             _mm256_packs_epi32(rounded[2], rounded[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.q + 32 * group),
                        _mm256_permutevar8x32_epi32(bytes, order));
    const float scale = largest / 127.0F;
    out.scale[group] = scale;
    out.total[group] = first + second;
    out.sum16[2 * group] = scale * static_cast<float>(first);
    out.sum16[2 * group + 1] = scale * static_cast<float>(second);
    out.sum32[group] = scale * static_cast<float>(first + second);
  }
}

}  // namespace avx2

const MatmulOps kMatmulAvx2 = {.panel_rows = kPanelRows,
                               .round_row = avx2::round_row,
                               .unpack_quant = avx2::unpack_quant,
                               .dot_quant = dot_quant,
                               .unpack_float = avx2::unpack_float,
                               .dot_float = dot_float,
                               .unpack_panel = avx2::unpack_panel,
                               .dot_panel = dot_panel,
                               .widen_panel = avx2::widen_panel};

}  // namespace rift::kernels
