// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstddef>
#include <cstdint>

namespace rift::kernels {

/// Weights packed as panels: R rows at a time, their blocks side by side, so that a kernel loads R
/// rows' bytes at once and reads memory in one stream. A block of every quantised format is a
/// sequence of 2-byte fields (f16 scales) and of words of 4 bytes, each at an even offset; in a
/// panel the R rows' fields at offset `at` lie together from byte R * at on. So a panel has the
/// bytes of its rows, no more.

/// panel [R * row bytes] from R rows of `cols` elements; rows [R] point at whole blocks.
void pack_panel(
    DType type, const std::byte* const* rows, int panel_rows, std::int64_t cols, std::byte* panel);

/// Row `lane` of a panel as it was before: out [row_bytes(type, cols)].
void unpack_row(DType type,
                const std::byte* panel,
                int panel_rows,
                int lane,
                std::int64_t cols,
                std::byte* out);

}  // namespace rift::kernels
