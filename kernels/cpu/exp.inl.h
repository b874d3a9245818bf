// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cpu/simd.inl.h"

namespace rift::kernels {
namespace {

/// e^x for x in [-87.3, 88], within 0.92 ulp (one float in 37 tried); 0 below, e^88 above; NaN
/// gives an unspecified number. x = n ln 2 + r, |r| <= ln 2 / 2: Taylor's series of e^r to r^7,
/// whose remainder is below 6e-9.
inline Floats exp_lanes(Floats x) {
  const Floats least = splat(-87.3F);
  const Floats bounded = smaller(larger(x, least), splat(88.0F));
  const Floats n = round_to_integer(bounded * splat(1.44269504F));
  // ln 2 in two parts; n times the first is exact.
  Floats r = fnma(n, splat(0.693359375F), bounded);
  r = fnma(n, splat(-2.12194440e-4F), r);
  Floats p = splat(1.0F / 5040.0F);
  p = fma(p, r, splat(1.0F / 720.0F));
  p = fma(p, r, splat(1.0F / 120.0F));
  p = fma(p, r, splat(1.0F / 24.0F));
  p = fma(p, r, splat(1.0F / 6.0F));
  p = fma(p, r, splat(0.5F));
  p = fma(p, r, splat(1.0F));
  p = fma(p, r, splat(1.0F));
  const Words exponent = left32(add32(to_words(n), splat_words(127)), 23);
  return where_at_least(x, least, p * as_floats(exponent));
}

}  // namespace
}  // namespace rift::kernels
