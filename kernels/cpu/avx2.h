// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/cpu_ops.h"

/// AVX2 functions that more than one file, or the AVX-512 table, uses.
namespace rift::kernels::avx2 {

void round_row(const float* x, std::int64_t n, const RoundedRow& out);
void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel);
void unpack_panel(DType type, const std::byte* data, int columns, QuantPanel* panel);
void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel);
/// What unpack_quant or unpack_panel gave, in f32.
void widen_panel(DType type, QuantPanel* quants, int columns, FloatPanel* panel);

void transpose_keys(DType type, const std::byte* const* keys, int count, int head_dim, float* out);
void multiply(float* x, std::int64_t n, float factor);
void add_softmax(float* logits, std::int64_t n, float factor, float* out);

}  // namespace rift::kernels::avx2
