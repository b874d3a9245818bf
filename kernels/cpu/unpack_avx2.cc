// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/avx2.h"
#include "kernels/cpu/unpack.inl.h"

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

/// Eight rows of eight columns.
template <DType kType>
void transpose(const std::byte* const* rows, int columns, float* w) {
  int c = 0;
  for (; c + 8 <= columns; c += 8) {
    __m256 x[8];
    for (int r = 0; r < kLanes; ++r) {
      x[r] = load8<kType>(rows[r] + static_cast<std::size_t>(c) * kBytesOf<kType>);
    }
    transpose8(x);
    for (int i = 0; i < 8; ++i) {
      _mm256_store_ps(w + (c + i) * kPanelRows, x[i]);
    }
  }
  for (; c < columns; ++c) {
    for (int r = 0; r < kLanes; ++r) {
      w[c * kPanelRows + r] = load1<kType>(rows[r] + static_cast<std::size_t>(c) * kBytesOf<kType>);
    }
  }
}

/// Likewise, to f32.
void transpose_part(DType type, const std::byte* const* rows, int columns, float* w) {
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

}  // namespace

void unpack_quant(DType type, const std::byte* const* rows, int columns, QuantPanel* panel) {
  for (int first = 0; first < kPanelRows; first += kLanes) {
    unpack_part(type, RowSource{rows + first}, columns, PanelPart(panel, first));
  }
}

void unpack_panel(DType type, const std::byte* data, int columns, QuantPanel* panel) {
  kernels::unpack_panel(type, data, columns, panel);
}

void widen_panel(DType type, QuantPanel* quants, int columns, FloatPanel* panel) {
  kernels::widen_panel(type, quants, columns, panel);
}

void unpack_float(DType type, const std::byte* const* rows, int columns, FloatPanel* panel) {
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) {
    for (int first = 0; first < kPanelRows; first += kLanes) {
      transpose_part(type, rows + first, columns, panel->w + first);
    }
    return;
  }
  QuantPanel quants;
  unpack_quant(type, rows, columns, &quants);
  widen_panel(type, &quants, columns, panel);
}

}  // namespace rift::kernels::avx2
