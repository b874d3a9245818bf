// SPDX-License-Identifier: Apache-2.0
#pragma once

// Weights to unpacked panels, kLanes rows at a time.

#include "kernels/cpu/decode.inl.h"

namespace rift::kernels {
namespace {

/// Where kLanes of a panel's rows go.
struct PanelPart {
  PanelPart(QuantPanel* panel, int first)
      : w(panel->w + 4 * first), scale(panel->scale + first), offset(panel->offset + first) {}

  void scales(int group, Floats s, Floats o) const {
    store_floats(scale + group * kPanelRows, s);
    store_floats(offset + group * kPanelRows, o);
  }
  void columns(int j, int /*slot*/, int /*link*/, Words bytes) const {
    store_words(w + 4 * kPanelRows * j, bytes);
  }
  void finish(int /*group*/, int /*slot*/) const {}

  std::uint8_t* w;
  float* scale;
  float* offset;
};

template <class Source>
void unpack_part(DType type, Source rows, int columns, PanelPart panel) {
  with_type(type, [&]<DType kType>() {
    for (int b = 0; b < columns / kBlock<kType>; ++b) {
      decode_block<kType>(rows, b, panel);
    }
  });
}

void unpack_panel(DType type, const std::byte* data, int columns, QuantPanel* panel) {
  for (int first = 0; first < kPanelRows; first += kLanes) {
    unpack_part(type, PanelSource{data, first}, columns, PanelPart(panel, first));
  }
}

/// scale * q + offset of every element, with one rounding.
void widen(DType type, PanelPart panel, int columns, float* w) {
  const int group = type == DType::kQ6_K ? 16 : 32;
  for (int c = 0; c < columns; c += 4) {
    const Floats scale = load_floats(panel.scale + c / group * kPanelRows);
    const Floats offset = load_floats(panel.offset + c / group * kPanelRows);
    const Words four = load_words(panel.w + c * kPanelRows);
    for (int i = 0; i < 4; ++i) {
      // Byte i of every word, as the signed or unsigned number that it is.
      const Words raised = left32(four, 24 - 8 * i);
      const Floats value = type == DType::kQ8_0
                               ? scale * to_floats(right32_signed(raised, 24))
                               : fma(scale, to_floats(right32(raised, 24)), offset);
      store_floats(w + (c + i) * kPanelRows, value);
    }
  }
}

void widen_panel(DType type, QuantPanel* quants, int columns, FloatPanel* panel) {
  for (int first = 0; first < kPanelRows; first += kLanes) {
    widen(type, PanelPart(quants, first), columns, panel->w + first);
  }
}

}  // namespace
}  // namespace rift::kernels
