// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/cpu_ops.h"

namespace rift::kernels::avx2 {

inline constexpr int kWidth = 8;       // f32 lanes of a register
inline constexpr int kPanelRows = 16;  // two registers side by side share every activation

void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel);
void unpack_panel(DType type, const std::byte* data, int columns, QuantPanel* panel);
void dot_panel(DType type, const std::byte* data, int columns, const QuantRows* x, float* acc);
/// What unpack_quant or unpack_panel gave, in f32.
void widen_panel(DType type, QuantPanel* quants, int columns, FloatPanel* panel);
void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel);

}  // namespace rift::kernels::avx2
