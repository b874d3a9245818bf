// SPDX-License-Identifier: Apache-2.0
#pragma once

// Registers of eight lanes (AVX2, FMA, F16C) behind the names that the shared bodies use.

#include "kernels/cpu/x86.inl.h"

namespace rift::kernels {
namespace {

using Words = __m256i;  // 32-bit lanes, or bytes; & | ^ work on its bits
using Floats = __m256;

constexpr int kLanes = 8;
// Rows worked on side by side, each with two registers of a panel: enough independent sums to hide
// the latency of an addition, few enough for the sixteen registers. Likewise queries, with a
// register per eight keys or values.
constexpr int kQuantTile = 4;
constexpr int kFloatTile = 3;
constexpr int kQueryTile = 3;
constexpr int kValueBlocks = 4;

inline Words load_words(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline void store_words(void* to, Words x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
inline Words splat_bytes(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
inline Words splat_words(int x) { return _mm256_set1_epi32(x); }
/// Four words, in every 16 bytes.
inline Words splat_quad(int a, int b, int c, int d) {
  return _mm256_broadcastsi128_si256(_mm_setr_epi32(a, b, c, d));
}
inline Words left16(Words x, int n) { return _mm256_slli_epi16(x, n); }
inline Words right16(Words x, int n) { return _mm256_srli_epi16(x, n); }
inline Words left32(Words x, int n) { return _mm256_slli_epi32(x, n); }
inline Words right32(Words x, int n) { return _mm256_srli_epi32(x, n); }
inline Words right32_signed(Words x, int n) { return _mm256_srai_epi32(x, n); }
inline Words add32(Words x, Words y) { return _mm256_add_epi32(x, y); }
/// Byte i becomes byte order[i] of the same 16 bytes.
inline Words pick_bytes(Words x, Words order) { return _mm256_shuffle_epi8(x, order); }
/// All ones in the bytes of x that have their one bit of `bit`.
inline Words bytes_with(Words x, Words bit) { return _mm256_cmpeq_epi8(x & bit, bit); }

inline Floats load_floats(const float* from) { return _mm256_loadu_ps(from); }
inline void store_floats(float* to, Floats x) { _mm256_storeu_ps(to, x); }
/// kCount elements of F32, F16 or BF16.
template <DType kType, int kCount = kLanes>
inline Floats load_lanes(const std::byte* from) {
  static_assert(kCount == kLanes);
  return load8<kType>(from);
}
template <int kCount>
inline void store_lanes(float* to, Floats x) {
  static_assert(kCount == kLanes);
  _mm256_storeu_ps(to, x);
}
inline Floats splat(float x) { return _mm256_set1_ps(x); }
inline Floats as_floats(Words x) { return _mm256_castsi256_ps(x); }
inline Floats to_floats(Words x) { return _mm256_cvtepi32_ps(x); }
inline Words to_words(Floats x) { return _mm256_cvtps_epi32(x); }
/// The lower half of every word, the upper one being 0, as f16.
inline Floats halves_to_floats(Words x) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
/// c - a b.
inline Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
inline Floats smaller(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats round_to_integer(Floats x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// `value` where x >= least, 0 elsewhere.
inline Floats where_at_least(Floats x, Floats least, Floats value) {
  return _mm256_and_ps(value, _mm256_cmp_ps(x, least, _CMP_GE_OQ));
}
/// All ones in lanes below n.
inline __m256i lanes_below(std::int64_t n) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
}

/// x in lanes below n, `filler` elsewhere.
inline Floats where_below(std::int64_t n, Floats x, Floats filler) {
  return _mm256_blendv_ps(filler, x, _mm256_castsi256_ps(lanes_below(n)));
}

/// x[i] lane j becomes x[j] lane i.
inline void transpose8(__m256* x) {
  const __m256 a0 = _mm256_unpacklo_ps(x[0], x[1]);
  const __m256 a1 = _mm256_unpackhi_ps(x[0], x[1]);
  const __m256 a2 = _mm256_unpacklo_ps(x[2], x[3]);
  const __m256 a3 = _mm256_unpackhi_ps(x[2], x[3]);
  const __m256 a4 = _mm256_unpacklo_ps(x[4], x[5]);
  const __m256 a5 = _mm256_unpackhi_ps(x[4], x[5]);
  const __m256 a6 = _mm256_unpacklo_ps(x[6], x[7]);
  const __m256 a7 = _mm256_unpackhi_ps(x[6], x[7]);
  const __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44);
  const __m256 b1 = _mm256_shuffle_ps(a0, a2, 0xEE);
  const __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44);
  const __m256 b3 = _mm256_shuffle_ps(a1, a3, 0xEE);
  const __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44);
  const __m256 b5 = _mm256_shuffle_ps(a4, a6, 0xEE);
  const __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44);
  const __m256 b7 = _mm256_shuffle_ps(a5, a7, 0xEE);
  x[0] = _mm256_permute2f128_ps(b0, b4, 0x20);
  x[1] = _mm256_permute2f128_ps(b1, b5, 0x20);
  x[2] = _mm256_permute2f128_ps(b2, b6, 0x20);
  x[3] = _mm256_permute2f128_ps(b3, b7, 0x20);
  x[4] = _mm256_permute2f128_ps(b0, b4, 0x31);
  x[5] = _mm256_permute2f128_ps(b1, b5, 0x31);
  x[6] = _mm256_permute2f128_ps(b2, b6, 0x31);
  x[7] = _mm256_permute2f128_ps(b3, b7, 0x31);
}

/// Sum and maximum of 32 numbers, in an order that does not depend on the instruction set.
inline float sum_of_32(const Floats* x) { return sum_lanes((x[0] + x[1]) + (x[2] + x[3])); }
inline float max_of_32(const Floats* x) {
  return max_lanes(larger(larger(x[0], x[1]), larger(x[2], x[3])));
}

/// Stops the compiler from putting the sum off: g++ 12 would compute all products of a chain first,
/// which takes more registers than there are.
inline void add_now(Words& sum) { asm("" : "+x"(sum)); }

/// Exact dot products of a group of columns, a row of weights per lane: w has kBits bits, 8 of them
/// signed, and |x| <= 127. A product of two bytes, summed in pairs, leaves room in 16 bits for
/// kChain such sums: 15 * 127 * 2 * 8, 31 * 127 * 2 * 4, 63 * 127 * 2 * 2 and 128 * 127 * 2 are all
/// below 2^15.
template <int kBits>
class GroupSum {
 public:
  /// Four columns, register `link` of the group.
  void add(int link, Words w, Words x) {
    Words product;
    if constexpr (kBits == 8) {
      product = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    } else {
      product = _mm256_maddubs_epi16(w, x);
    }
    pairs_ = link % kChain == 0 ? product : _mm256_add_epi16(pairs_, product);
    add_now(pairs_);
    if (link % kChain == kChain - 1) {
      const Words words = _mm256_madd_epi16(pairs_, _mm256_set1_epi16(1));
      words_ = link < kChain ? words : _mm256_add_epi32(words_, words);
      add_now(words_);
    }
  }
  [[nodiscard]] Words sum(const std::int32_t* /*x_total*/) const { return words_; }

 private:
  static constexpr int kChain = kBits == 4 ? 8 : kBits == 5 ? 4 : kBits == 6 ? 2 : 1;

  Words pairs_;
  Words words_;
};

}  // namespace
}  // namespace rift::kernels
