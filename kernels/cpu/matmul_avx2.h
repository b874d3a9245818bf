// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/cpu_ops.h"

namespace rift::kernels::avx2 {

inline constexpr int kWidth = 8;       // f32 lanes of a register
inline constexpr int kPanelRows = 16;  // two registers side by side share every activation

void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel);
void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel);

}  // namespace rift::kernels::avx2
