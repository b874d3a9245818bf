// SPDX-License-Identifier: Apache-2.0
#pragma once

// The registers that the including file's flags give it. Bodies written on these names are compiled
// once per instruction set, each copy with internal linkage.

#if defined(__AVX512F__) || defined(RIFT_EMULATE_AVX512)
#include "kernels/cpu/avx512.inl.h"
#else
#include "kernels/cpu/avx2.inl.h"
#endif
