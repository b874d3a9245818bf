// SPDX-License-Identifier: Apache-2.0
#pragma once

// How quantised weights are multiplied with AVX2: what the single row and the tiles share.

#include "kernels/cpu/avx2.inl.h"

namespace rift::kernels {
namespace {

/// Four bytes of an activation row in every lane.
inline __m256i broadcast4(const std::int8_t* from) {
  int word = 0;
  __builtin_memcpy(&word, from, sizeof(word));
  return _mm256_set1_epi32(word);
}

/// Stops the compiler from putting the sum off: g++ 12 would compute all products of a chain first,
/// which takes more registers than there are.
inline void add_now(__m256i& sum) { asm("" : "+x"(sum)); }

/// How a format is multiplied. A product of two bytes, summed in pairs, leaves room in 16 bits for
/// kChain such sums: 15 * 127 * 2 * 8, 31 * 127 * 2 * 4, 63 * 127 * 2 * 2 and 128 * 127 * 2 are all
/// below 2^15.
template <int kColumnsPerGroup, int kChainLength, bool kIsSigned>
struct Format {
  static constexpr int kGroup = kColumnsPerGroup;
  static constexpr int kChain = kChainLength;
  static constexpr bool kSigned = kIsSigned;
};
using FourBits = Format<32, 8, false>;
using FiveBits = Format<32, 4, false>;
using SixBits = Format<16, 2, false>;
using EightBits = Format<32, 1, true>;

template <class F>
inline __m256i multiply_bytes(__m256i w, __m256i x) {
  if constexpr (F::kSigned) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  } else {
    return _mm256_maddubs_epi16(w, x);
  }
}

}  // namespace
}  // namespace rift::kernels
