// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/decode_avx2.inl.h"

namespace rift::kernels::avx2 {
namespace {

/// Where eight of a panel's rows go.
struct HalfPanel {
  std::uint8_t* w;
  float* scale;
  float* offset;

  void scales(int group, __m256 s, __m256 o) const {
    _mm256_store_ps(scale + group * kPanelRows, s);
    _mm256_store_ps(offset + group * kPanelRows, o);
  }
  void columns(int j, int /*slot*/, int /*link*/, __m256i bytes) const {
    _mm256_store_si256(reinterpret_cast<__m256i*>(w + 4 * kPanelRows * j), bytes);
  }
  void finish(int /*group*/, int /*slot*/) const {}
};

template <DType kType, class Source>
void unpack_blocks(Source rows, int columns, HalfPanel panel) {
  for (int b = 0; b < columns / kBlock<kType>; ++b) {
    decode_block<kType>(rows, b, panel);
  }
}

template <class Source>
void unpack_half(DType type, Source rows, int columns, HalfPanel panel) {
  switch (type) {
    case DType::kQ4_0:
      return unpack_blocks<DType::kQ4_0>(rows, columns, panel);
    case DType::kQ4_1:
      return unpack_blocks<DType::kQ4_1>(rows, columns, panel);
    case DType::kQ5_0:
      return unpack_blocks<DType::kQ5_0>(rows, columns, panel);
    case DType::kQ5_1:
      return unpack_blocks<DType::kQ5_1>(rows, columns, panel);
    case DType::kQ8_0:
      return unpack_blocks<DType::kQ8_0>(rows, columns, panel);
    case DType::kQ4_K:
      return unpack_blocks<DType::kQ4_K>(rows, columns, panel);
    case DType::kQ5_K:
      return unpack_blocks<DType::kQ5_K>(rows, columns, panel);
    case DType::kQ6_K:
      return unpack_blocks<DType::kQ6_K>(rows, columns, panel);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;  // never asked for
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
void transpose(const std::byte* const* rows, int columns, float* w) {
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

/// Likewise, to f32.
void transpose_half(DType type, const std::byte* const* rows, int columns, float* w) {
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
    unpack_half(type, RowSource{rows + first}, columns, half_of(panel, first));
  }
}

void unpack_panel(DType type, const std::byte* data, int columns, QuantPanel* panel) {
  for (int first = 0; first < kPanelRows; first += kWidth) {
    unpack_half(type, PanelSource{data, first}, columns, half_of(panel, first));
  }
}

void widen_panel(DType type, QuantPanel* quants, int columns, FloatPanel* panel) {
  for (int first = 0; first < kPanelRows; first += kWidth) {
    widen(type, half_of(quants, first), columns, panel->w + first);
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
  widen_panel(type, &quants, columns, panel);
}

}  // namespace rift::kernels::avx2
