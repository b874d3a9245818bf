// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <span>
#include <vector>

namespace rift::policy {

/// l_K[j] l_V[j] / sum_i l_K[i] l_V[i], the score of key j in CurDKV. key_leverage, value_leverage,
/// out [N]. A sum of 0 gives equal scores.
/// Source: Sengupta et al. 2025, CurDKV, section 3; golden `curdkv.*`.
void curdkv_scores(std::span<const float> key_leverage,
                   std::span<const float> value_leverage,
                   std::span<float> out);

/// What stands for the leverage of a row: squared norms (kernels::squared_norms), the expectation
/// of the paper's Gaussian projection, are the form that is used; the others are what it
/// approximates, or is approximated by.
///
/// Squared norms, each divided by the sum over its block of `block` rows, in place.
void normalise_in_blocks(std::span<float> leverage, std::int32_t block);
/// Statistical leverage |U[j, :rank]|^2 of x = U S V^T, in the subspace of its `rank` largest
/// singular values; rank = D: x_j^T (x^T x)^-1 x_j. x [N, D] f32, N >= D; result [N].
/// Directions without any variance count nothing. Cost: N D^2 + D^3, in f64.
[[nodiscard]] std::vector<float> statistical_leverage(MatView<const float> x, std::int32_t rank);

}  // namespace rift::policy
