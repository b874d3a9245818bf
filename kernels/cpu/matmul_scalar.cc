// SPDX-License-Identifier: Apache-2.0
#include "common/f16.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/quant_blocks.h"

#include <algorithm>
#include <cmath>

namespace rift::kernels {
namespace {

constexpr int kWidth = 8;

void round_row(const float* x, std::int64_t n, const RoundedRow& out) {
  for (std::int64_t group = 0; group < n / 32; ++group) {
    const float* from = x + 32 * group;
    float largest = 0.0F;
    for (int i = 0; i < 32; ++i) {
      largest = std::max(largest, std::fabs(from[i]));
    }
    const float inverse = largest > kLeastLargest ? 127.0F / largest : 0.0F;
    int sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      const float rounded = std::nearbyint(from[i] * inverse);
      // Also takes NaN and the infinities that a broken weight file can produce.
      const int value = rounded >= -127.0F && rounded <= 127.0F ? static_cast<int>(rounded) : 0;
      out.q[32 * group + i] = static_cast<std::int8_t>(value);
      sums[i / 16] += value;
    }
    const float scale = largest / 127.0F;
    out.scale[group] = scale;
    out.total[group] = sums[0] + sums[1];
    out.sum16[2 * group] = scale * static_cast<float>(sums[0]);
    out.sum16[2 * group + 1] = scale * static_cast<float>(sums[1]);
    out.sum32[group] = scale * static_cast<float>(sums[0] + sums[1]);
  }
}

void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel) {
  const QuantFormat format = quant_format(type);
  const std::size_t bytes = block_bytes(type);
  std::uint8_t q[kMaxBlock];
  float scale[kMaxBlockGroups];
  float offset[kMaxBlockGroups];
  for (int r = 0; r < kWidth; ++r) {
    for (int c = 0; c < columns; c += format.block) {
      const auto block = static_cast<std::size_t>(c / format.block);
      unpack_block(type, rows[r] + block * bytes, q, scale, offset);
      for (int i = 0; i < format.block; ++i) {
        panel->w[(c + i) / 4 * 4 * kWidth + 4 * r + i % 4] = q[i];
      }
      for (int g = 0; g < format.block / format.group; ++g) {
        panel->scale[(c / format.group + g) * kWidth + r] = scale[g];
        panel->offset[(c / format.group + g) * kWidth + r] = offset[g];
      }
    }
  }
}

int dot_group(const std::uint8_t* w, const std::int8_t* x, int group, bool is_signed) {
  int sum = 0;
  for (int i = 0; i < group; ++i) {
    const std::uint8_t byte = w[i / 4 * 4 * kWidth + i % 4];
    sum += (is_signed ? static_cast<std::int8_t>(byte) : byte) * x[i];
  }
  return sum;
}

void dot_quant(
    DType type, const QuantPanel* panel, int columns, const QuantRows* x, int rows, float* acc) {
  const int group = quant_format(type).group;
  const bool is_signed = type == DType::kQ8_0;
  for (int t = 0; t < rows; ++t) {
    const std::int8_t* q = x->q + t * x->stride;
    const float* scale = x->scale + t * (x->stride / 32);
    const float* sum =
        group == 32 ? x->sum32 + t * (x->stride / 32) : x->sum16 + t * (x->stride / 16);
    for (int g = 0; g < columns / group; ++g) {
      for (int r = 0; r < kWidth; ++r) {
        const int dot =
            dot_group(panel->w + g * group * kWidth + 4 * r, q + g * group, group, is_signed);
        const float both = panel->scale[g * kWidth + r] * scale[g * group / 32];
        acc[t * kWidth + r] += both * static_cast<float>(dot);
        acc[t * kWidth + r] += panel->offset[g * kWidth + r] * sum[g];
      }
    }
  }
}

void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel) {
  float row[kFloatChunk];
  for (int r = 0; r < kWidth; ++r) {
    dequantize(type, rows[r], columns, row);
    for (int c = 0; c < columns; ++c) {
      panel->w[c * kWidth + r] = row[c];
    }
  }
}

void dot_float(const FloatPanel* panel,
               int columns,
               const float* x,
               std::int64_t x_stride,
               int rows,
               float* acc) {
  for (int t = 0; t < rows; ++t) {
    for (int c = 0; c < columns; ++c) {
      for (int r = 0; r < kWidth; ++r) {
        acc[(2 * t + c % 2) * kWidth + r] += panel->w[c * kWidth + r] * x[t * x_stride + c];
      }
    }
  }
}

}  // namespace

const MatmulOps kMatmulScalar = {.panel_rows = kWidth,
                                 .round_row = round_row,
                                 .unpack_quant = unpack_quant,
                                 .dot_quant = dot_quant,
                                 .unpack_float = unpack_float,
                                 .dot_float = dot_float};

}  // namespace rift::kernels
