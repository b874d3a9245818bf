// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weights of as many rows as a register has lanes, side by side: a panel or one half of it. Lane r
// of a register is row r: four bytes of each row at a time, so that a register of columns comes out
// of a few shifts and masks.

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/simd.inl.h"

namespace rift::kernels {
namespace {

constexpr int kPanelRows = 16;
constexpr int kParts = kPanelRows / kLanes;

constexpr int kFetchAhead = 4096;

/// kLanes rows, from `first` on, of weights packed as panels (kernels/cpu/panels.h): what lies at
/// byte `at` of each of kPanelRows rows lies together from byte kPanelRows * at on.
struct PanelSource {
  const std::byte* data;
  int first;

  [[nodiscard]] const std::byte* field(std::size_t at, std::size_t bytes) const {
    return data + kPanelRows * at + bytes * static_cast<std::size_t>(first);
  }
  [[nodiscard]] Words word(std::size_t at) const {
    const std::byte* from = field(at, 4);
    if (first == 0) {
      _mm_prefetch(from + kFetchAhead, _MM_HINT_T0);
    }
    return load_words(from);
  }
  void four_words(std::size_t at, Words* out) const {
    for (std::size_t c = 0; c < 4; ++c) {
      out[c] = word(at + 4 * c);
    }
  }
  [[nodiscard]] Floats halves(std::size_t at) const {
    return load_lanes<DType::kF16>(field(at, 2));
  }
};

inline Words low_nibbles(Words x) { return x & splat_bytes(0x0F); }
inline Words high_nibbles(Words x) { return low_nibbles(right16(x, 4)); }

/// Sixteen bytes of nibbles at `at`: columns 0-15 low, 16-31 high.
template <class Source>
inline void put_nibbles(Source rows, std::size_t at, Words* columns) {
  Words packed[4];
  rows.four_words(at, packed);
  for (int c = 0; c < 4; ++c) {
    columns[c] = low_nibbles(packed[c]);
    columns[c + 4] = high_nibbles(packed[c]);
  }
}

/// Bit i of the word at `at` becomes bit 4 of column i.
template <class Source>
inline void add_fifth_bits(Source rows, std::size_t at, Words* columns) {
  const Words bits = rows.word(at);
  const Words word_start = splat_quad(0, 0x04040404, 0x08080808, 0x0C0C0C0C);
  const Words even = splat_words(static_cast<int>(0x08040201U));
  const Words odd = splat_words(static_cast<int>(0x80402010U));
  const Words sixteen = splat_bytes(16);
  for (int i = 0; i < 4; ++i) {
    // Byte i of the word in all its four bytes, then one bit of it in each.
    const Words byte = pick_bytes(bits, word_start | splat_bytes(i));
    columns[2 * i] = columns[2 * i] | (bytes_with(byte, even) & sixteen);
    columns[2 * i + 1] = columns[2 * i + 1] | (bytes_with(byte, odd) & sixteen);
  }
}

/// One block of 32 columns of a format that has a scale, maybe a minimum, and maybe fifth bits.
template <DType kType, class Source, class Sink>
inline void decode_32(Source rows, std::size_t at, int group, Sink& sink) {
  constexpr bool kHasMin = kType == DType::kQ4_1 || kType == DType::kQ5_1;
  constexpr bool kFive = kType == DType::kQ5_0 || kType == DType::kQ5_1;
  const Floats scale = rows.halves(at);
  at += 2;
  Floats offset = scale * splat(kFive ? -16.0F : -8.0F);
  if constexpr (kHasMin) {
    offset = rows.halves(at);
    at += 2;
  }
  Words columns[8];
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

/// Bits [shift, shift + width) of every word.
inline Words bits_of(Words words, int shift, int width) {
  return right32(words, shift) & splat_words((1 << width) - 1);
}

/// `low` below two more bits of `words`.
inline Words six_bits(Words low, Words words, int shift) {
  return low | left32(bits_of(words, shift, 2), 4);
}

/// The sixteen bytes in front of Q4_K and Q5_K: two f16 numbers and eight 6-bit scales and minima.
template <class Source, class Sink>
inline void decode_k_scales(Source rows, std::size_t at, int group, Sink& sink) {
  Words words[4];
  rows.four_words(at, words);
  const Floats d = halves_to_floats(bits_of(words[0], 0, 16));
  const Floats min = -halves_to_floats(right32(words[0], 16));
  for (int i = 0; i < 4; ++i) {
    const int byte = 8 * i;
    const Words scale = bits_of(words[1], byte, 6);
    const Words least = bits_of(words[2], byte, 6);
    const Words scale4 = six_bits(bits_of(words[3], byte, 4), words[1], byte + 6);
    const Words least4 = six_bits(bits_of(words[3], byte + 4, 4), words[2], byte + 6);
    sink.scales(group + i, d * to_floats(scale), min * to_floats(least));
    sink.scales(group + 4 + i, d * to_floats(scale4), min * to_floats(least4));
  }
}

/// Eight words of every row.
template <class Source>
inline void load_eight_words(Source rows, std::size_t at, Words* out) {
  rows.four_words(at, out);
  rows.four_words(at + 16, out + 4);
}

/// Bit `bit` of every byte, moved to bit 4.
inline Words fifth_bit(Words x, int bit) {
  return (bit < 4 ? left16(x, 4 - bit) : right16(x, bit - 4)) & splat_bytes(0x10);
}

/// Q4_K and Q5_K: 64 columns, two groups, per 32 bytes.
template <bool kFive, class Source, class Sink>
inline void decode_k(Source rows, std::size_t at, int group, Sink& sink) {
  decode_k_scales(rows, at, group, sink);
  Words fifth[8];
  if constexpr (kFive) {
    load_eight_words(rows, at + 16, fifth);
  }
#pragma GCC unroll 4
  for (int part = 0; part < 4; ++part) {
    Words packed[8];
    const std::size_t quants = at + (kFive ? 48U : 16U);
    load_eight_words(rows, quants + static_cast<std::size_t>(32 * part), packed);
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      Words low = low_nibbles(packed[c]);
      Words high = high_nibbles(packed[c]);
      if constexpr (kFive) {
        low = low | fifth_bit(fifth[c], 2 * part);
        high = high | fifth_bit(fifth[c], 2 * part + 1);
      }
      sink.columns(8 * group + 16 * part + c, 0, c, low);
      sink.columns(8 * group + 16 * part + 8 + c, 1, c, high);
    }
    sink.finish(group + 2 * part, 0);
    sink.finish(group + 2 * part + 1, 1);
  }
}

/// Two bits of every byte on top of four: mask 0x30 of x.
inline Words upper_two(Words low, Words x) { return low | (x & splat_bytes(0x30)); }

/// 256 columns from column 16 `group` on; groups of 16.
template <class Source, class Sink>
inline void decode_q6_k(Source rows, std::size_t at, int group, Sink& sink) {
  const Floats d = rows.halves(at + 208);
  Words scales[4];
  rows.four_words(at + 192, scales);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    const Words raised = left32(scales[i / 4], 24 - 8 * (i % 4));
    const Floats scale = d * to_floats(right32_signed(raised, 24));
    sink.scales(group + i, scale, scale * splat(-32.0F));
  }
  for (int half = 0; half < 2; ++half) {
    const auto lows = at + static_cast<std::size_t>(64 * half);
    const auto highs = at + static_cast<std::size_t>(128 + 32 * half);
    // Four columns each of eight groups of four registers, two of them in every quarter.
#pragma GCC unroll 2
    for (int part = 0; part < 2; ++part) {
      const auto skip = static_cast<std::size_t>(16 * part);
      Words a[4];
      Words b[4];
      Words h[4];
      rows.four_words(lows + skip, a);
      rows.four_words(lows + 32 + skip, b);
      rows.four_words(highs + skip, h);
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        const int j = 4 * group + 32 * half + 4 * part + c;
        sink.columns(j, part, c, upper_two(low_nibbles(a[c]), left16(h[c], 4)));
        sink.columns(j + 8, 2 + part, c, upper_two(low_nibbles(b[c]), left16(h[c], 2)));
        sink.columns(j + 16, 4 + part, c, upper_two(high_nibbles(a[c]), h[c]));
        sink.columns(j + 24, 6 + part, c, upper_two(high_nibbles(b[c]), right16(h[c], 2)));
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

/// Of a weight; 8 are signed and come without an offset.
template <DType kType>
inline constexpr int kBitsOf =
    kType == DType::kQ8_0                                                     ? 8
    : kType == DType::kQ6_K                                                   ? 6
    : kType == DType::kQ5_0 || kType == DType::kQ5_1 || kType == DType::kQ5_K ? 5
                                                                              : 4;

/// Columns that share a scale.
template <int kBits>
inline constexpr int kGroup = kBits == 6 ? 16 : 32;

/// Hands block `b` of the rows to a sink, registers of four columns each:
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

/// Four bytes of an activation row in every lane.
inline Words broadcast4(const std::int8_t* from) {
  int word = 0;
  __builtin_memcpy(&word, from, sizeof(word));
  return splat_words(word);
}

/// Calls use.operator()<kType>() for a quantised type.
template <class Use>
inline void with_type(DType type, const Use& use) {
  switch (type) {
    case DType::kQ4_0:
      return use.template operator()<DType::kQ4_0>();
    case DType::kQ4_1:
      return use.template operator()<DType::kQ4_1>();
    case DType::kQ5_0:
      return use.template operator()<DType::kQ5_0>();
    case DType::kQ5_1:
      return use.template operator()<DType::kQ5_1>();
    case DType::kQ8_0:
      return use.template operator()<DType::kQ8_0>();
    case DType::kQ4_K:
      return use.template operator()<DType::kQ4_K>();
    case DType::kQ5_K:
      return use.template operator()<DType::kQ5_K>();
    case DType::kQ6_K:
      return use.template operator()<DType::kQ6_K>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;  // never asked for
  }
}

}  // namespace
}  // namespace rift::kernels
