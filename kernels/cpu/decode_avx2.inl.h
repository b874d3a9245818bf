// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weights of eight rows side by side, one half of a panel. Lane r of a register is row r: four
// bytes of each row at a time, so that a register of columns comes out of a few shifts and masks.

#include "kernels/cpu/avx2.inl.h"
#include "kernels/cpu/matmul_avx2.h"

namespace rift::kernels::avx2 {
namespace {

inline std::uint16_t half_at(const std::byte* from) {
  std::uint16_t half = 0;
  __builtin_memcpy(&half, from, sizeof(half));
  return half;
}

inline int word_at(const std::byte* from) {
  int word = 0;
  __builtin_memcpy(&word, from, sizeof(word));
  return word;
}

/// Eight rows as they lie in the file. `at` counts bytes from the start of each.
struct RowSource {
  const std::byte* const* rows;

  /// out[c] lane r = bytes at + 4 c .. at + 4 c + 3 of row r: words transposed.
  void four_words(std::size_t at, __m256i* out) const {
    __m256i x[4];
    for (int i = 0; i < 4; ++i) {
      x[i] = _mm256_inserti128_si256(
          _mm256_castsi128_si256(load16(rows[i] + at)), load16(rows[i + 4] + at), 1);
    }
    const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]);
    const __m256i b = _mm256_unpackhi_epi32(x[0], x[1]);
    const __m256i c = _mm256_unpacklo_epi32(x[2], x[3]);
    const __m256i d = _mm256_unpackhi_epi32(x[2], x[3]);
    out[0] = _mm256_unpacklo_epi64(a, c);
    out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d);
    out[3] = _mm256_unpackhi_epi64(b, d);
  }

  /// Lane r = bytes at .. at + 3 of row r.
  [[nodiscard]] __m256i word(std::size_t at) const {
    return _mm256_setr_epi32(word_at(rows[0] + at),
                             word_at(rows[1] + at),
                             word_at(rows[2] + at),
                             word_at(rows[3] + at),
                             word_at(rows[4] + at),
                             word_at(rows[5] + at),
                             word_at(rows[6] + at),
                             word_at(rows[7] + at));
  }

  /// Lane r = the f16 number of row r at `at`.
  [[nodiscard]] __m256 halves(std::size_t at) const {
    __m128i x = _mm_cvtsi32_si128(half_at(rows[0] + at));
    __m128i y = _mm_cvtsi32_si128(half_at(rows[4] + at));
    x = _mm_insert_epi16(x, half_at(rows[1] + at), 1);
    y = _mm_insert_epi16(y, half_at(rows[5] + at), 1);
    x = _mm_insert_epi16(x, half_at(rows[2] + at), 2);
    y = _mm_insert_epi16(y, half_at(rows[6] + at), 2);
    x = _mm_insert_epi16(x, half_at(rows[3] + at), 3);
    y = _mm_insert_epi16(y, half_at(rows[7] + at), 3);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(x, y));
  }
};

constexpr int kFetchAhead = 4096;

/// Eight rows, from `first` on, of weights packed as panels (kernels/cpu/panels.h): what lies at
/// byte `at` of each of kPanelRows rows lies together from byte kPanelRows * at on.
struct PanelSource {
  const std::byte* data;
  int first;

  [[nodiscard]] const std::byte* field(std::size_t at, std::size_t bytes) const {
    return data + kPanelRows * at + bytes * static_cast<std::size_t>(first);
  }
  [[nodiscard]] __m256i word(std::size_t at) const {
    const std::byte* from = field(at, 4);
    if (first == 0) {
      _mm_prefetch(from + kFetchAhead, _MM_HINT_T0);
    }
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  void four_words(std::size_t at, __m256i* out) const {
    for (std::size_t c = 0; c < 4; ++c) {
      out[c] = word(at + 4 * c);
    }
  }
  [[nodiscard]] __m256 halves(std::size_t at) const {
    return _mm256_cvtph_ps(load16(field(at, 2)));
  }
};

inline __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(0x0F)); }
inline __m256i high_nibbles(__m256i x) { return low_nibbles(_mm256_srli_epi16(x, 4)); }

/// Sixteen bytes of nibbles at `at`: columns 0-15 low, 16-31 high.
template <class Source>
inline void put_nibbles(Source rows, std::size_t at, __m256i* columns) {
  __m256i packed[4];
  rows.four_words(at, packed);
  for (int c = 0; c < 4; ++c) {
    columns[c] = low_nibbles(packed[c]);
    columns[c + 4] = high_nibbles(packed[c]);
  }
}

/// Bit i of the word at `at` becomes bit 4 of column i.
template <class Source>
inline void add_fifth_bits(Source rows, std::size_t at, __m256i* columns) {
  const __m256i bits = rows.word(at);
  const __m256i word_start = _mm256_setr_epi32(
      0, 0x04040404, 0x08080808, 0x0C0C0C0C, 0, 0x04040404, 0x08080808, 0x0C0C0C0C);
  const __m256i even = _mm256_set1_epi32(static_cast<int>(0x08040201U));
  const __m256i odd = _mm256_set1_epi32(static_cast<int>(0x80402010U));
  const __m256i sixteen = _mm256_set1_epi8(16);
  for (int i = 0; i < 4; ++i) {
    // Byte i of the word in all its four bytes, then one bit of it in each.
    const __m256i byte = _mm256_shuffle_epi8(
        bits, _mm256_add_epi8(word_start, _mm256_set1_epi8(static_cast<char>(i))));
    const __m256i low = _mm256_cmpeq_epi8(_mm256_and_si256(byte, even), even);
    const __m256i high = _mm256_cmpeq_epi8(_mm256_and_si256(byte, odd), odd);
    columns[2 * i] = _mm256_or_si256(columns[2 * i], _mm256_and_si256(low, sixteen));
    columns[2 * i + 1] = _mm256_or_si256(columns[2 * i + 1], _mm256_and_si256(high, sixteen));
  }
}

/// One block of 32 columns of a format that has a scale, maybe a minimum, and maybe fifth bits.
template <DType kType, class Source, class Sink>
inline void decode_32(Source rows, std::size_t at, int group, Sink& sink) {
  constexpr bool kHasMin = kType == DType::kQ4_1 || kType == DType::kQ5_1;
  constexpr bool kFive = kType == DType::kQ5_0 || kType == DType::kQ5_1;
  const __m256 scale = rows.halves(at);
  at += 2;
  __m256 offset = _mm256_mul_ps(scale, _mm256_set1_ps(kFive ? -16.0F : -8.0F));
  if constexpr (kHasMin) {
    offset = rows.halves(at);
    at += 2;
  }
  __m256i columns[8];
  if constexpr (kType == DType::kQ8_0) {
    rows.four_words(at, columns);
    rows.four_words(at + 16, columns + 4);
  } else {
    put_nibbles(rows, kFive ? at + 4 : at, columns);
  }
  if constexpr (kFive) {
    add_fifth_bits(rows, at, columns);
  }
  sink.scales(group, scale, offset);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    sink.columns(8 * group + j, 0, j, columns[j]);
  }
  sink.finish(group, 0);
}

/// The lower or upper half of every word as f16.
inline __m256 halves_to_floats(__m256i words) {
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
  return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

/// Bits [shift, shift + width) of every word.
inline __m256i bits_of(__m256i words, int shift, int width) {
  return _mm256_and_si256(_mm256_srli_epi32(words, shift), _mm256_set1_epi32((1 << width) - 1));
}

/// `low` below two more bits of `words`.
inline __m256i six_bits(__m256i low, __m256i words, int shift) {
  return _mm256_or_si256(low, _mm256_slli_epi32(bits_of(words, shift, 2), 4));
}

/// The sixteen bytes in front of Q4_K and Q5_K: two f16 numbers and eight 6-bit scales and minima.
template <class Source, class Sink>
inline void decode_k_scales(Source rows, std::size_t at, int group, Sink& sink) {
  __m256i words[4];
  rows.four_words(at, words);
  const __m256 d = halves_to_floats(bits_of(words[0], 0, 16));
  const __m256 min =
      _mm256_xor_ps(halves_to_floats(bits_of(words[0], 16, 16)), _mm256_set1_ps(-0.0F));
  for (int i = 0; i < 4; ++i) {
    const int byte = 8 * i;
    const __m256i scale = bits_of(words[1], byte, 6);
    const __m256i least = bits_of(words[2], byte, 6);
    const __m256i scale4 = six_bits(bits_of(words[3], byte, 4), words[1], byte + 6);
    const __m256i least4 = six_bits(bits_of(words[3], byte + 4, 4), words[2], byte + 6);
    sink.scales(group + i,
                _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale)),
                _mm256_mul_ps(min, _mm256_cvtepi32_ps(least)));
    sink.scales(group + 4 + i,
                _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale4)),
                _mm256_mul_ps(min, _mm256_cvtepi32_ps(least4)));
  }
}

/// Eight words of every row.
template <class Source>
inline void load_eight_words(Source rows, std::size_t at, __m256i* out) {
  rows.four_words(at, out);
  rows.four_words(at + 16, out + 4);
}

/// Bit `bit` of every byte, moved to bit 4.
inline __m256i fifth_bit(__m256i x, int bit) {
  const __m256i moved = bit < 4 ? _mm256_slli_epi16(x, 4 - bit) : _mm256_srli_epi16(x, bit - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(0x10));
}

/// Q4_K and Q5_K: 64 columns, two groups, per 32 bytes.
template <bool kFive, class Source, class Sink>
inline void decode_k(Source rows, std::size_t at, int group, Sink& sink) {
  decode_k_scales(rows, at, group, sink);
  __m256i fifth[8];
  if constexpr (kFive) {
    load_eight_words(rows, at + 16, fifth);
  }
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    __m256i packed[8];
    const std::size_t quants = at + (kFive ? 48U : 16U);
    load_eight_words(rows, quants + static_cast<std::size_t>(32 * part), packed);
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      __m256i low = low_nibbles(packed[c]);
      __m256i high = high_nibbles(packed[c]);
      if constexpr (kFive) {
        low = _mm256_or_si256(low, fifth_bit(fifth[c], 2 * part));
        high = _mm256_or_si256(high, fifth_bit(fifth[c], 2 * part + 1));
      }
      sink.columns(8 * group + 16 * part + c, 0, c, low);
      sink.columns(8 * group + 16 * part + 8 + c, 1, c, high);
    }
    sink.finish(group + 2 * part, 0);
    sink.finish(group + 2 * part + 1, 1);
  }
}

/// Two bits of every byte on top of four: mask 0x30 of x.
inline __m256i upper_two(__m256i low, __m256i x) {
  return _mm256_or_si256(low, _mm256_and_si256(x, _mm256_set1_epi8(0x30)));
}

/// 256 columns from column 16 `group` on; groups of 16.
template <class Source, class Sink>
inline void decode_q6_k(Source rows, std::size_t at, int group, Sink& sink) {
  const __m256 d = rows.halves(at + 208);
  __m256i scales[4];
  rows.four_words(at + 192, scales);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const __m256i raised = _mm256_slli_epi32(scales[i / 4], 24 - 8 * (i % 4));
    const __m256 scale = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_srai_epi32(raised, 24)));
    sink.scales(group + i, scale, _mm256_mul_ps(scale, _mm256_set1_ps(-32.0F)));
  }
  for (int half = 0; half < 2; ++half) {
    const auto lows = at + static_cast<std::size_t>(64 * half);
    const auto highs = at + static_cast<std::size_t>(128 + 32 * half);
    // Four columns each of eight groups of four registers, two of them in every quarter.
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      const auto skip = static_cast<std::size_t>(16 * part);
      __m256i a[4];
      __m256i b[4];
      __m256i h[4];
      rows.four_words(lows + skip, a);
      rows.four_words(lows + 32 + skip, b);
      rows.four_words(highs + skip, h);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const int j = 4 * group + 32 * half + 4 * part + c;
        sink.columns(j, part, c, upper_two(low_nibbles(a[c]), _mm256_slli_epi16(h[c], 4)));
        sink.columns(j + 8, 2 + part, c, upper_two(low_nibbles(b[c]), _mm256_slli_epi16(h[c], 2)));
        sink.columns(j + 16, 4 + part, c, upper_two(high_nibbles(a[c]), h[c]));
        sink.columns(
            j + 24, 6 + part, c, upper_two(high_nibbles(b[c]), _mm256_srli_epi16(h[c], 2)));
      }
    }
#pragma GCC unroll 8
    for (int slot = 0; slot < 8; ++slot) {
      sink.finish(group + 8 * half + slot, slot);
    }
  }
}

template <DType kType>
inline constexpr int kBlock =
    kType == DType::kQ4_K || kType == DType::kQ5_K || kType == DType::kQ6_K ? 256 : 32;

/// Hands block `b` of eight rows to a sink, registers of four columns each:
///   scales(group, scale, offset)   of every group, before its columns;
///   columns(j, slot, link, bytes)  columns 4 j .. 4 j + 3: register `link` of its group, whose
///                                  place among the groups in progress is `slot`;
///   finish(group, slot)            after a group's last columns; groups in order.
template <DType kType, class Source, class Sink>
inline void decode_block(Source rows, int b, Sink& sink) {
  const auto block = static_cast<std::size_t>(b);
  if constexpr (kType == DType::kQ4_K) {
    decode_k<false>(rows, block * 144, 8 * b, sink);
  } else if constexpr (kType == DType::kQ5_K) {
    decode_k<true>(rows, block * 176, 8 * b, sink);
  } else if constexpr (kType == DType::kQ6_K) {
    decode_q6_k(rows, block * 210, 16 * b, sink);
  } else {
    constexpr std::size_t kBytes = kType == DType::kQ4_0   ? 18
                                   : kType == DType::kQ4_1 ? 20
                                   : kType == DType::kQ5_0 ? 22
                                   : kType == DType::kQ5_1 ? 24
                                                           : 34;
    decode_32<kType>(rows, block * kBytes, b, sink);
  }
}

}  // namespace
}  // namespace rift::kernels::avx2
