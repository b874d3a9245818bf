// SPDX-License-Identifier: Apache-2.0
#pragma once

// Unpacked panels times tiles of activation rows.

#include "kernels/cpu/decode.inl.h"

namespace rift::kernels {
namespace {

/// Rows [first, first + kRows) of x; acc of the first of them.
template <int kBits, int kRows>
inline void dot_rows(
    const QuantPanel* panel, int groups, const QuantRows* rows, std::int64_t first, float* acc) {
  constexpr int kColumns = kGroup<kBits>;
  const std::int64_t groups_per_row = rows->stride / kColumns;
  const std::int64_t scales_per_row = rows->stride / 32;
  const std::int8_t* x = rows->q + first * rows->stride;
  const float* scale = rows->scale + first * scales_per_row;
  const std::int32_t* total = rows->total + first * scales_per_row;
  const float* sum = (kColumns == 32 ? rows->sum32 : rows->sum16) + first * groups_per_row;
  Floats y[kRows][kParts];
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 2
    for (int h = 0; h < kParts; ++h) {
      y[t][h] = load_floats(acc + t * kPanelRows + h * kLanes);
    }
  }
  for (int g = 0; g < groups; ++g) {
    GroupSum<kBits> sums[kRows][kParts];
    const std::uint8_t* w = panel->w + g * kColumns * kPanelRows;
#pragma GCC unroll 8
    for (int j = 0; j < kColumns / 4; ++j) {
      Words part[kParts];
#pragma GCC unroll 2
      for (int h = 0; h < kParts; ++h) {
        part[h] = load_words(w + 4 * (j * kPanelRows + h * kLanes));
      }
#pragma GCC unroll 8
      for (int t = 0; t < kRows; ++t) {
        const Words four = broadcast4(x + t * rows->stride + g * kColumns + 4 * j);
#pragma GCC unroll 2
        for (int h = 0; h < kParts; ++h) {
          sums[t][h].add(j, part[h], four);
        }
      }
    }
    const float* w_scale = panel->scale + g * kPanelRows;
    const float* w_offset = panel->offset + g * kPanelRows;
    const int group32 = g * kColumns / 32;
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const Floats x_scale = splat(scale[t * scales_per_row + group32]);
      const Floats x_sum = splat(sum[t * groups_per_row + g]);
#pragma GCC unroll 2
      for (int h = 0; h < kParts; ++h) {
        const Floats both = load_floats(w_scale + h * kLanes) * x_scale;
        const Words words = sums[t][h].sum(total + t * scales_per_row + group32);
        y[t][h] = fma(to_floats(words), both, y[t][h]);
        if constexpr (kBits < 8) {
          y[t][h] = fma(load_floats(w_offset + h * kLanes), x_sum, y[t][h]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 2
    for (int h = 0; h < kParts; ++h) {
      store_floats(acc + t * kPanelRows + h * kLanes, y[t][h]);
    }
  }
}

void dot_quant(
    DType type, const QuantPanel* panel, int columns, const QuantRows* x, int rows, float* acc) {
  with_type(type, [&]<DType kType>() {
    constexpr int kBits = kBitsOf<kType>;
    for_tiles<kQuantTile>(rows, [&]<int kRows>(int t) {
      dot_rows<kBits, kRows>(panel, columns / kGroup<kBits>, x, t, acc + t * kPanelRows);
    });
  });
}

template <int kRows>
inline void dot_float_rows(
    const float* w, int columns, const float* x, std::int64_t stride, float* acc) {
  Floats sums[kRows][2][kParts];  // of even and of odd columns
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 4
    for (int i = 0; i < 2 * kParts; ++i) {
      sums[t][i / kParts][i % kParts] = load_floats(acc + (2 * kParts * t + i) * kLanes);
    }
  }
  const auto add_column = [&](int c, int odd) {
#pragma GCC unroll 8
    for (int t = 0; t < kRows; ++t) {
      const Floats value = splat(x[t * stride + c]);
#pragma GCC unroll 2
      for (int h = 0; h < kParts; ++h) {
        const Floats column = load_floats(w + c * kPanelRows + h * kLanes);
        sums[t][odd][h] = fma(column, value, sums[t][odd][h]);
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
#pragma GCC unroll 8
  for (int t = 0; t < kRows; ++t) {
#pragma GCC unroll 4
    for (int i = 0; i < 2 * kParts; ++i) {
      store_floats(acc + (2 * kParts * t + i) * kLanes, sums[t][i / kParts][i % kParts]);
    }
  }
}

void dot_float(const FloatPanel* panel,
               int columns,
               const float* x,
               std::int64_t x_stride,
               int rows,
               float* acc) {
  for_tiles<kFloatTile>(rows, [&]<int kRows>(int t) {
    dot_float_rows<kRows>(panel->w, columns, x + t * x_stride, x_stride, acc + 2 * t * kPanelRows);
  });
}

}  // namespace
}  // namespace rift::kernels
