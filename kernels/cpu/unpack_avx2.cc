// SPDX-License-Identifier: Apache-2.0
// Weights of eight rows side by side, one half of a panel. Lane r of a register is row r: quants
// are transposed while still packed, four bytes of each row at a time, so that a register of a
// panel comes out of a few shifts and masks.
#include "kernels/cpu/avx2.inl.h"
#include "kernels/cpu/matmul_avx2.h"

namespace rift::kernels::avx2 {
namespace {

using Rows = const std::byte* const*;

/// Where eight of a panel's rows go.
struct HalfPanel {
  std::uint8_t* w;
  float* scale;
  float* offset;
};

/// out[c] lane r = bytes 4c .. 4c + 3 of row r from `at` on.
inline void load_words(Rows rows, std::size_t at, __m256i* out) {
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

/// Lane r = the f16 number of row r at `at`.
inline __m256 load_halves(Rows rows, std::size_t at) {
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

/// Lane r = bytes at .. at + 3 of row r.
inline __m256i load_word(Rows rows, std::size_t at) {
  return _mm256_setr_epi32(word_at(rows[0] + at),
                           word_at(rows[1] + at),
                           word_at(rows[2] + at),
                           word_at(rows[3] + at),
                           word_at(rows[4] + at),
                           word_at(rows[5] + at),
                           word_at(rows[6] + at),
                           word_at(rows[7] + at));
}

inline __m256i low_nibbles(__m256i x) { return _mm256_and_si256(x, _mm256_set1_epi8(0x0F)); }
inline __m256i high_nibbles(__m256i x) { return low_nibbles(_mm256_srli_epi16(x, 4)); }

/// Columns 4 j .. 4 j + 3 of the panel.
inline void put(std::uint8_t* w, int j, __m256i bytes) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(w + 4 * kPanelRows * j), bytes);
}

/// Sixteen bytes of nibbles at `at`: columns 0-15 low, 16-31 high.
inline void put_nibbles(Rows rows, std::size_t at, __m256i* columns) {
  __m256i packed[4];
  load_words(rows, at, packed);
  for (int c = 0; c < 4; ++c) {
    columns[c] = low_nibbles(packed[c]);
    columns[c + 4] = high_nibbles(packed[c]);
  }
}

/// Bit i of the word at `at` becomes bit 4 of column i.
inline void add_fifth_bits(Rows rows, std::size_t at, __m256i* columns) {
  const __m256i bits = load_word(rows, at);
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

inline void put_scales(HalfPanel panel, int group, __m256 scale, __m256 offset) {
  _mm256_store_ps(panel.scale + group * kPanelRows, scale);
  _mm256_store_ps(panel.offset + group * kPanelRows, offset);
}

/// One block of 32 columns of a format that has a scale, maybe a minimum, and maybe fifth bits.
template <DType kType>
inline void unpack_32(Rows rows, std::size_t at, int group, HalfPanel panel) {
  constexpr bool kHasMin = kType == DType::kQ4_1 || kType == DType::kQ5_1;
  constexpr bool kFive = kType == DType::kQ5_0 || kType == DType::kQ5_1;
  const __m256 scale = load_halves(rows, at);
  at += 2;
  __m256 offset = _mm256_mul_ps(scale, _mm256_set1_ps(kFive ? -16.0F : -8.0F));
  if constexpr (kHasMin) {
    offset = load_halves(rows, at);
    at += 2;
  }
  __m256i columns[8];
  if constexpr (kType == DType::kQ8_0) {
    load_words(rows, at, columns);
    load_words(rows, at + 16, columns + 4);
  } else {
    put_nibbles(rows, kFive ? at + 4 : at, columns);
  }
  if constexpr (kFive) {
    add_fifth_bits(rows, at, columns);
  }
  put_scales(panel, group, scale, offset);
  for (int j = 0; j < 8; ++j) {
    put(panel.w, 8 * group + j, columns[j]);
  }
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
inline void unpack_k_scales(Rows rows, std::size_t at, int group, HalfPanel panel) {
  __m256i words[4];
  load_words(rows, at, words);
  const __m256 d = halves_to_floats(bits_of(words[0], 0, 16));
  const __m256 min =
      _mm256_xor_ps(halves_to_floats(bits_of(words[0], 16, 16)), _mm256_set1_ps(-0.0F));
  for (int i = 0; i < 4; ++i) {
    const int byte = 8 * i;
    const __m256i scale = bits_of(words[1], byte, 6);
    const __m256i least = bits_of(words[2], byte, 6);
    const __m256i scale4 = six_bits(bits_of(words[3], byte, 4), words[1], byte + 6);
    const __m256i least4 = six_bits(bits_of(words[3], byte + 4, 4), words[2], byte + 6);
    put_scales(panel,
               group + i,
               _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale)),
               _mm256_mul_ps(min, _mm256_cvtepi32_ps(least)));
    put_scales(panel,
               group + 4 + i,
               _mm256_mul_ps(d, _mm256_cvtepi32_ps(scale4)),
               _mm256_mul_ps(min, _mm256_cvtepi32_ps(least4)));
  }
}

/// Eight words of every row.
inline void load_eight_words(Rows rows, std::size_t at, __m256i* out) {
  load_words(rows, at, out);
  load_words(rows, at + 16, out + 4);
}

/// Bit `bit` of every byte, moved to bit 4.
inline __m256i fifth_bit(__m256i x, int bit) {
  const __m256i moved = bit < 4 ? _mm256_slli_epi16(x, 4 - bit) : _mm256_srli_epi16(x, bit - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(0x10));
}

/// Q4_K and Q5_K: 64 columns, two groups, per 32 bytes.
template <bool kFive>
inline void unpack_k(Rows rows, std::size_t at, int group, HalfPanel panel) {
  unpack_k_scales(rows, at, group, panel);
  __m256i fifth[8];
  if constexpr (kFive) {
    load_eight_words(rows, at + 16, fifth);
  }
  for (int part = 0; part < 4; ++part) {
    __m256i packed[8];
    const std::size_t quants = at + (kFive ? 48U : 16U);
    load_eight_words(rows, quants + static_cast<std::size_t>(32 * part), packed);
    for (int c = 0; c < 8; ++c) {
      __m256i low = low_nibbles(packed[c]);
      __m256i high = high_nibbles(packed[c]);
      if constexpr (kFive) {
        low = _mm256_or_si256(low, fifth_bit(fifth[c], 2 * part));
        high = _mm256_or_si256(high, fifth_bit(fifth[c], 2 * part + 1));
      }
      put(panel.w, 8 * group + 16 * part + c, low);
      put(panel.w, 8 * group + 16 * part + 8 + c, high);
    }
  }
}

/// Two bits of every byte on top of four: mask 0x30 of x.
inline __m256i upper_two(__m256i low, __m256i x) {
  return _mm256_or_si256(low, _mm256_and_si256(x, _mm256_set1_epi8(0x30)));
}

/// 256 columns from column 16 `group` on; groups of 16.
inline void unpack_q6_k(Rows rows, std::size_t at, int group, HalfPanel panel) {
  std::uint8_t* w = panel.w + group * 16 * kPanelRows;
  for (int half = 0; half < 2; ++half) {
    const auto lows = at + static_cast<std::size_t>(64 * half);
    const auto highs = at + static_cast<std::size_t>(128 + 32 * half);
    __m256i a[8];
    __m256i b[8];
    __m256i h[8];
    load_eight_words(rows, lows, a);
    load_eight_words(rows, lows + 32, b);
    load_eight_words(rows, highs, h);
    for (int c = 0; c < 8; ++c) {
      const int j = 32 * half + c;
      put(w, j, upper_two(low_nibbles(a[c]), _mm256_slli_epi16(h[c], 4)));
      put(w, j + 8, upper_two(low_nibbles(b[c]), _mm256_slli_epi16(h[c], 2)));
      put(w, j + 16, upper_two(high_nibbles(a[c]), h[c]));
      put(w, j + 24, upper_two(high_nibbles(b[c]), _mm256_srli_epi16(h[c], 2)));
    }
  }
  const __m256 d = load_halves(rows, at + 208);
  __m256i scales[4];
  load_words(rows, at + 192, scales);
  for (int i = 0; i < 16; ++i) {
    const __m256i raised = _mm256_slli_epi32(scales[i / 4], 24 - 8 * (i % 4));
    const __m256 scale = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_srai_epi32(raised, 24)));
    put_scales(panel, group + i, scale, _mm256_mul_ps(scale, _mm256_set1_ps(-32.0F)));
  }
}

/// Blocks of 32 columns.
template <DType kType>
void unpack_small(Rows rows, int columns, std::size_t bytes, HalfPanel panel) {
  for (int group = 0; group < columns / 32; ++group) {
    unpack_32<kType>(rows, static_cast<std::size_t>(group) * bytes, group, panel);
  }
}

/// scale * q + offset of every element, with one rounding.
void widen(DType type, HalfPanel panel, int columns, float* w) {
  const int group = type == DType::kQ6_K ? 16 : 32;
  for (int c = 0; c < columns; c += 4) {
    const __m256 scale = _mm256_load_ps(panel.scale + c / group * kPanelRows);
    const __m256 offset = _mm256_load_ps(panel.offset + c / group * kPanelRows);
    const __m256i four =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(panel.w + c * kPanelRows));
    for (int i = 0; i < 4; ++i) {
      // Byte i of every word, as the signed or unsigned number that it is.
      const __m256i raised = _mm256_slli_epi32(four, 24 - 8 * i);
      const __m256i q =
          type == DType::kQ8_0 ? _mm256_srai_epi32(raised, 24) : _mm256_srli_epi32(raised, 24);
      const __m256 value = type == DType::kQ8_0
                               ? _mm256_mul_ps(scale, _mm256_cvtepi32_ps(q))
                               : _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(q), offset);
      _mm256_store_ps(w + (c + i) * kPanelRows, value);
    }
  }
}

/// Eight rows of eight columns.
template <DType kType>
void transpose(Rows rows, int columns, float* w) {
  int c = 0;
  for (; c + 8 <= columns; c += 8) {
    __m256 x[8];
    for (int r = 0; r < kWidth; ++r) {
      x[r] = load8<kType>(rows[r] + static_cast<std::size_t>(c) * kBytesOf<kType>);
    }
    transpose8(x);
    for (int i = 0; i < 8; ++i) {
      _mm256_store_ps(w + (c + i) * kPanelRows, x[i]);
    }
  }
  for (; c < columns; ++c) {
    for (int r = 0; r < kWidth; ++r) {
      w[c * kPanelRows + r] = load1<kType>(rows[r] + static_cast<std::size_t>(c) * kBytesOf<kType>);
    }
  }
}

void unpack_half(DType type, Rows rows, int columns, HalfPanel panel) {
  const int blocks = columns / 256;
  switch (type) {
    case DType::kQ4_0:
      return unpack_small<DType::kQ4_0>(rows, columns, 18, panel);
    case DType::kQ4_1:
      return unpack_small<DType::kQ4_1>(rows, columns, 20, panel);
    case DType::kQ5_0:
      return unpack_small<DType::kQ5_0>(rows, columns, 22, panel);
    case DType::kQ5_1:
      return unpack_small<DType::kQ5_1>(rows, columns, 24, panel);
    case DType::kQ8_0:
      return unpack_small<DType::kQ8_0>(rows, columns, 34, panel);
    case DType::kQ4_K:
      for (int b = 0; b < blocks; ++b) {
        unpack_k<false>(rows, static_cast<std::size_t>(b) * 144, 8 * b, panel);
      }
      return;
    case DType::kQ5_K:
      for (int b = 0; b < blocks; ++b) {
        unpack_k<true>(rows, static_cast<std::size_t>(b) * 176, 8 * b, panel);
      }
      return;
    case DType::kQ6_K:
      for (int b = 0; b < blocks; ++b) {
        unpack_q6_k(rows, static_cast<std::size_t>(b) * 210, 16 * b, panel);
      }
      return;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;  // never asked for
  }
}

/// Likewise, to f32.
void transpose_half(DType type, Rows rows, int columns, float* w) {
  switch (type) {
    case DType::kF32:
      return transpose<DType::kF32>(rows, columns, w);
    case DType::kF16:
      return transpose<DType::kF16>(rows, columns, w);
    case DType::kBF16:
      return transpose<DType::kBF16>(rows, columns, w);
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return;  // widen() does these
  }
}

HalfPanel half_of(QuantPanel* panel, int first) {
  return {panel->w + 4 * first, panel->scale + first, panel->offset + first};
}

}  // namespace

void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel) {
  for (int first = 0; first < kPanelRows; first += kWidth) {
    unpack_half(type, rows + first, columns, half_of(panel, first));
  }
}

void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel) {
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) {
    for (int first = 0; first < kPanelRows; first += kWidth) {
      transpose_half(type, rows + first, columns, panel->w + first);
    }
    return;
  }
  QuantPanel quants;
  unpack_quant(type, rows, columns, &quants);
  for (int first = 0; first < kPanelRows; first += kWidth) {
    widen(type, half_of(&quants, first), columns, panel->w + first);
  }
}

}  // namespace rift::kernels::avx2
