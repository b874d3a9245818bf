// SPDX-License-Identifier: Apache-2.0
#pragma once

// Registers of sixteen lanes (AVX-512 F, BW, VL, DQ and VNNI) behind the names that the shared
// bodies use: see avx2.inl.h.

#include "kernels/cpu/x86.inl.h"

namespace rift::kernels {
namespace {

using Words = __m512i;  // 32-bit lanes, or bytes; & | ^ work on its bits
using Floats = __m512;

constexpr int kLanes = 16;
// Rows worked on side by side, each with one register of a panel: a sum of a group takes four or
// five cycles per step, and there are thirty-two registers. Likewise queries, with a register per
// sixteen keys or values.
constexpr int kQuantTile = 8;
constexpr int kFloatTile = 8;
constexpr int kQueryTile = 8;
constexpr int kValueBlocks = 2;

inline Words load_words(const void* from) { return _mm512_loadu_si512(from); }
inline void store_words(void* to, Words x) { _mm512_storeu_si512(to, x); }
inline Words splat_bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
inline Words splat_words(int x) { return _mm512_set1_epi32(x); }
/// Four words, in every 16 bytes.
inline Words splat_quad(int a, int b, int c, int d) {
  return _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d));
}
inline Words left16(Words x, unsigned n) { return _mm512_slli_epi16(x, n); }
inline Words right16(Words x, unsigned n) { return _mm512_srli_epi16(x, n); }
inline Words left32(Words x, unsigned n) { return _mm512_slli_epi32(x, n); }
inline Words right32(Words x, unsigned n) { return _mm512_srli_epi32(x, n); }
inline Words right32_signed(Words x, unsigned n) { return _mm512_srai_epi32(x, n); }
inline Words add32(Words x, Words y) { return _mm512_add_epi32(x, y); }
/// Byte i becomes byte order[i] of the same 16 bytes.
inline Words pick_bytes(Words x, Words order) { return _mm512_shuffle_epi8(x, order); }
/// All ones in the bytes of x that have their one bit of `bit`.
inline Words bytes_with(Words x, Words bit) {
  return _mm512_movm_epi8(_mm512_test_epi8_mask(x, bit));
}

inline Floats load_floats(const float* from) { return _mm512_loadu_ps(from); }
inline void store_floats(float* to, Floats x) { _mm512_storeu_ps(to, x); }
/// kCount elements of F32, F16 or BF16; zeros in the other lanes.
template <DType kType, int kCount = kLanes>
inline Floats load_lanes(const std::byte* from) {
  static_assert(kCount == kLanes || kCount == 8);
  if constexpr (kCount == 8) {
    return _mm512_insertf32x8(_mm512_setzero_ps(), load8<kType>(from), 0);
  } else if constexpr (kType == DType::kF32) {
    return _mm512_loadu_ps(from);
  } else {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    if constexpr (kType == DType::kF16) {
      return _mm512_cvtph_ps(halves);
    } else {
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
    }
  }
}
template <int kCount>
inline void store_lanes(float* to, Floats x) {
  static_assert(kCount == kLanes || kCount == 8);
  if constexpr (kCount == 8) {
    _mm256_storeu_ps(to, _mm512_castps512_ps256(x));
  } else {
    _mm512_storeu_ps(to, x);
  }
}
inline Floats splat(float x) { return _mm512_set1_ps(x); }
inline Floats as_floats(Words x) { return _mm512_castsi512_ps(x); }
inline Floats to_floats(Words x) { return _mm512_cvtepi32_ps(x); }
inline Words to_words(Floats x) { return _mm512_cvtps_epi32(x); }
/// The lower half of every word, the upper one being 0, as f16.
inline Floats halves_to_floats(Words x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
/// c - a b.
inline Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
inline Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats round_to_integer(Floats x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// `value` where x >= least, 0 elsewhere.
inline Floats where_at_least(Floats x, Floats least, Floats value) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, least, _CMP_GE_OQ), value);
}
/// x in lanes below n, `filler` elsewhere.
inline Floats where_below(std::int64_t n, Floats x, Floats filler) {
  const unsigned lanes = n >= kLanes ? 0xFFFFU : n <= 0 ? 0U : (1U << n) - 1;
  return _mm512_mask_mov_ps(filler, static_cast<__mmask16>(lanes), x);
}

inline __m256 upper_half(Floats x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}
/// Sum and maximum of 32 numbers, in an order that does not depend on the instruction set.
inline float sum_of_32(const Floats* x) {
  return sum_lanes((_mm512_castps512_ps256(x[0]) + upper_half(x[0])) +
                   (_mm512_castps512_ps256(x[1]) + upper_half(x[1])));
}
inline float max_of_32(const Floats* x) {
  const Floats both = larger(x[0], x[1]);
  return max_lanes(_mm256_max_ps(_mm512_castps512_ps256(both), upper_half(both)));
}

/// Exact dot products of a group of columns, a row of weights per lane: w has kBits bits, 8 of them
/// signed, and |x| <= 127. Sums of unsigned by signed bytes go straight to 32 bits; signed weights
/// are multiplied as w + 128, and 128 times the sum of x is taken off again.
template <int kBits>
class GroupSum {
 public:
  /// Four columns, register `link` of the group.
  void add(int link, Words w, Words x) {
    const Words before = link == 0 ? _mm512_setzero_si512() : sum_;
    sum_ = _mm512_dpbusd_epi32(before, kBits == 8 ? w ^ splat_bytes(0x80) : w, x);
  }
  /// x_total: the sum of the group's x.
  [[nodiscard]] Words sum(const std::int32_t* x_total) const {
    return kBits == 8 ? _mm512_sub_epi32(sum_, left32(splat_words(*x_total), 7)) : sum_;
  }

 private:
  Words sum_;
};

}  // namespace
}  // namespace rift::kernels
