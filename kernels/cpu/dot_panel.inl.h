// SPDX-License-Identifier: Apache-2.0
#pragma once

// One row of activations against packed panels: weights go from memory through a few shifts into
// the products, without the detour over an unpacked panel that only pays for more rows.

#include "kernels/cpu/decode.inl.h"

namespace rift::kernels {
namespace {

/// The arithmetic of dot_rows in dot.inl.h for one row, on registers as they come.
template <int kBits>
class DotSink {
 public:
  DotSink(const QuantRows& x, const float* acc)
      : q_(x.q),
        x_scale_(x.scale),
        x_total_(x.total),
        x_sum_(kColumns == 32 ? x.sum32 : x.sum16),
        y_(load_floats(acc)) {}

  void scales(int group, Floats scale, Floats offset) {
    scale_[group % kMaxGroups] = scale;
    offset_[group % kMaxGroups] = offset;
  }
  void columns(int j, int slot, int link, Words bytes) {
    sums_[slot].add(link, bytes, broadcast4(q_ + 4 * j));
  }
  void finish(int group, int slot) {
    const int group32 = group * kColumns / 32;
    const Floats both = scale_[group % kMaxGroups] * splat(x_scale_[group32]);
    y_ = fma(to_floats(sums_[slot].sum(x_total_ + group32)), both, y_);
    if constexpr (kBits < 8) {
      y_ = fma(offset_[group % kMaxGroups], splat(x_sum_[group]), y_);
    }
  }
  void store(float* acc) const { store_floats(acc, y_); }

 private:
  static constexpr int kColumns = kGroup<kBits>;
  static constexpr int kMaxGroups = 256 / kColumns;  // of a block

  const std::int8_t* q_;
  const float* x_scale_;
  const std::int32_t* x_total_;
  const float* x_sum_;
  Floats y_;
  Floats scale_[kMaxGroups];
  Floats offset_[kMaxGroups];
  GroupSum<kBits> sums_[8];
};

template <DType kType>
void dot_blocks(const std::byte* data, int blocks, const QuantRows& x, float* acc) {
  DotSink<kBitsOf<kType>> low(x, acc);
  if constexpr (kParts == 1) {
    for (int b = 0; b < blocks; ++b) {
      decode_block<kType>(PanelSource{data, 0}, b, low);
    }
  } else {
    // Block by block, so that one half computes on what the other has fetched.
    DotSink<kBitsOf<kType>> high(x, acc + kLanes);
    for (int b = 0; b < blocks; ++b) {
      decode_block<kType>(PanelSource{data, 0}, b, low);
      decode_block<kType>(PanelSource{data, kLanes}, b, high);
    }
    high.store(acc + kLanes);
  }
  low.store(acc);
}

void dot_panel(DType type, const std::byte* data, int columns, const QuantRows* x, float* acc) {
  with_type(type,
            [&]<DType kType>() { dot_blocks<kType>(data, columns / kBlock<kType>, *x, acc); });
}

}  // namespace
}  // namespace rift::kernels
