// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/dot.inl.h"
#include "kernels/cpu/dot_panel.inl.h"
#include "kernels/cpu/unpack.inl.h"

namespace rift::kernels {

// Rows as they lie in the file are rounded and unpacked with AVX2: reading them takes the time.
const MatmulOps kMatmulAvx512 = {.panel_rows = kPanelRows,
                                 .round_row = avx2::round_row,
                                 .unpack_quant = avx2::unpack_quant,
                                 .dot_quant = dot_quant,
                                 .unpack_float = avx2::unpack_float,
                                 .dot_float = dot_float,
                                 .unpack_panel = unpack_panel,
                                 .dot_panel = dot_panel,
                                 .widen_panel = widen_panel};

}  // namespace rift::kernels
