// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention.inl.h"

namespace rift::kernels {

const AttentionOps kAttentionAvx512 = {
    avx2::transpose_keys, dot_keys, fold_values, avx2::multiply, avx2::add_softmax};

}  // namespace rift::kernels
