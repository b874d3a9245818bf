// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/cpu_ops.h"

namespace rift::kernels::avx2 {

inline constexpr int kWidth = 8;  // rows of a panel, the f32 lanes of a register

void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel);
void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel);

}  // namespace rift::kernels::avx2
