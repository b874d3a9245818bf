// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul_avx2.h"

#include "kernels/cpu/avx2.inl.h"
#include "kernels/cpu/quant_avx2.inl.h"

namespace rift::kernels {
namespace {

using avx2::kPanelRows;
using avx2::kWidth;

// Rows of activations worked on side by side, each with two registers of a panel: enough
// independent sums to hide the latency of an addition, few enough for the registers.
constexpr int kTile = 4;
constexpr int kFloatTile = 3;
constexpr int kHalves = kPanelRows / kWidth;

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

void round_row(
    const float* x, std::int64_t n, std::int8_t* q, float* scale, float* sum32, float* sum16) {
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
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(q + 32 * group),
                        _mm256_permutevar8x32_epi32(bytes, order));
    scale[group] = largest / 127.0F;
    sum16[2 * group] = scale[group] * static_cast<float>(first);
    sum16[2 * group + 1] = scale[group] * static_cast<float>(second);
    sum32[group] = scale[group] * static_cast<float>(first + second);
  }
}

/// sums[t][h] lane r = exact dot product of group `group` of panel row 8 h + r and row t.
template <class F, int kRows>
inline void dot_group(const std::uint8_t* w,
                      const std::int8_t* x,
                      std::int64_t stride,
                      __m256i (*sums)[kHalves]) {
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
  for (int link = 0; link < F::kGroup / 4; link += F::kChain) {
    __m256i pairs[kRows][kHalves];
#pragma GCC unroll 8
    for (int j = link; j < link + F::kChain; ++j) {
      const auto* columns = reinterpret_cast<const __m256i*>(w + 4 * kPanelRows * j);
      const __m256i half[kHalves] = {_mm256_load_si256(columns), _mm256_load_si256(columns + 1)};
#pragma GCC unroll 8
      for (int t = 0; t < kRows; ++t) {
        const __m256i four = broadcast4(x + t * stride + 4 * j);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          const __m256i product = multiply_bytes<F>(half[h], four);
          pairs[t][h] = j == link ? product : _mm256_add_epi16(pairs[t][h], product);
          add_now(pairs[t][h]);
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const __m256i words = _mm256_madd_epi16(pairs[t][h], ones);
        sums[t][h] = link == 0 ? words : _mm256_add_epi32(sums[t][h], words);
        add_now(sums[t][h]);
      }
    }
  }
}

template <class F, int kRows>
inline void dot_rows(
    const QuantPanel* panel, int groups, const QuantRows* rows, std::int64_t first, float* acc) {
  const std::int64_t groups_per_row = rows->stride / F::kGroup;
  const std::int64_t scales_per_row = rows->stride / 32;
  const std::int8_t* x = rows->q + first * rows->stride;
  const float* scale = rows->scale + first * scales_per_row;
  const float* sum = (F::kGroup == 32 ? rows->sum32 : rows->sum16) + first * groups_per_row;
  __m256 y[kRows][kHalves];
  for (int t = 0; t < kRows; ++t) {
    for (int h = 0; h < kHalves; ++h) {
      y[t][h] = _mm256_loadu_ps(acc + t * kPanelRows + h * kWidth);
    }
  }
  for (int g = 0; g < groups; ++g) {
    __m256i sums[kRows][kHalves];
    dot_group<F, kRows>(
        panel->w + g * F::kGroup * kPanelRows, x + g * F::kGroup, rows->stride, sums);
    const float* w_scale = panel->scale + g * kPanelRows;
    const float* w_offset = panel->offset + g * kPanelRows;
    const int group32 = g * F::kGroup / 32;
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const __m256 x_scale = _mm256_set1_ps(scale[t * scales_per_row + group32]);
      const __m256 x_sum = _mm256_set1_ps(sum[t * groups_per_row + g]);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const __m256 both = _mm256_mul_ps(_mm256_load_ps(w_scale + h * kWidth), x_scale);
        y[t][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[t][h]), both, y[t][h]);
        if constexpr (!F::kSigned) {
          y[t][h] = _mm256_fmadd_ps(_mm256_load_ps(w_offset + h * kWidth), x_sum, y[t][h]);
        }
      }
    }
  }
  for (int t = 0; t < kRows; ++t) {
    for (int h = 0; h < kHalves; ++h) {
      _mm256_storeu_ps(acc + t * kPanelRows + h * kWidth, y[t][h]);
    }
  }
}

template <class F>
void dot_format(const QuantPanel* panel, int columns, const QuantRows* x, int rows, float* acc) {
  const int groups = columns / F::kGroup;
  int t = 0;
  for (; t + kTile <= rows; t += kTile) {
    dot_rows<F, kTile>(panel, groups, x, t, acc + t * kPanelRows);
  }
  if (t + 2 <= rows) {
    dot_rows<F, 2>(panel, groups, x, t, acc + t * kPanelRows);
    t += 2;
  }
  if (t < rows) {
    dot_rows<F, 1>(panel, groups, x, t, acc + t * kPanelRows);
  }
}

void dot_quant(
    DType type, const QuantPanel* panel, int columns, const QuantRows* x, int rows, float* acc) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
      return dot_format<FourBits>(panel, columns, x, rows, acc);
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return dot_format<FiveBits>(panel, columns, x, rows, acc);
    case DType::kQ6_K:
      return dot_format<SixBits>(panel, columns, x, rows, acc);
    case DType::kQ8_0:
      return dot_format<EightBits>(panel, columns, x, rows, acc);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;  // never asked for
  }
}

template <int kRows>
inline void dot_float_rows(
    const float* w, int columns, const float* x, std::int64_t stride, float* acc) {
  __m256 sums[kRows][2][kHalves];  // of even and of odd columns
#pragma GCC unroll 4
  for (int t = 0; t < kRows; ++t) {
    for (int i = 0; i < 2 * kHalves; ++i) {
      sums[t][i / kHalves][i % kHalves] = _mm256_loadu_ps(acc + (2 * kHalves * t + i) * kWidth);
    }
  }
  const auto add_column = [&](int c, int odd) {
#pragma GCC unroll 4
    for (int t = 0; t < kRows; ++t) {
      const __m256 value = _mm256_set1_ps(x[t * stride + c]);
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const __m256 column = _mm256_load_ps(w + c * kPanelRows + h * kWidth);
        sums[t][odd][h] = _mm256_fmadd_ps(column, value, sums[t][odd][h]);
      }
    }
  };
  int c = 0;
  for (; c + 2 <= columns; c += 2) {
    add_column(c, 0);
    add_column(c + 1, 1);
  }
  if (c < columns) {
    add_column(c, 0);
  }
#pragma GCC unroll 4
  for (int t = 0; t < kRows; ++t) {
    for (int i = 0; i < 2 * kHalves; ++i) {
      _mm256_storeu_ps(acc + (2 * kHalves * t + i) * kWidth, sums[t][i / kHalves][i % kHalves]);
    }
  }
}

void dot_float(const FloatPanel* panel,
               int columns,
               const float* x,
               std::int64_t x_stride,
               int rows,
               float* acc) {
  int t = 0;
  for (; t + kFloatTile <= rows; t += kFloatTile) {
    dot_float_rows<kFloatTile>(
        panel->w, columns, x + t * x_stride, x_stride, acc + 2 * t * kPanelRows);
  }
  for (; t < rows; ++t) {
    dot_float_rows<1>(panel->w, columns, x + t * x_stride, x_stride, acc + 2 * t * kPanelRows);
  }
}

}  // namespace

const MatmulOps kMatmulAvx2 = {.panel_rows = kPanelRows,
                               .round_row = round_row,
                               .unpack_quant = avx2::unpack_quant,
                               .dot_quant = dot_quant,
                               .unpack_float = avx2::unpack_float,
                               .dot_float = dot_float,
                               .unpack_panel = avx2::unpack_panel,
                               .dot_panel = avx2::dot_panel,
                               .widen_panel = avx2::widen_panel};

}  // namespace rift::kernels
