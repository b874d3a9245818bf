// SPDX-License-Identifier: Apache-2.0
// One row of activations against packed panels: weights go from memory through a few shifts into
// the products, without the detour over an unpacked panel that only pays for more rows.
#include "kernels/cpu/decode_avx2.inl.h"
#include "kernels/cpu/quant_avx2.inl.h"

namespace rift::kernels::avx2 {
namespace {

/// The arithmetic of dot_rows in matmul_avx2.cc for one row, on registers as they come.
template <class F>
class DotSink {
 public:
  DotSink(const QuantRows& x, __m256 y)
      : q_(x.q), x_scale_(x.scale), x_sum_(F::kGroup == 32 ? x.sum32 : x.sum16), y_(y) {}

  void scales(int group, __m256 scale, __m256 offset) {
    scale_[group % kMaxGroups] = scale;
    offset_[group % kMaxGroups] = offset;
  }
  void columns(int j, int slot, int link, __m256i bytes) {
    const __m256i product = multiply_bytes<F>(bytes, broadcast4(q_ + 4 * j));
    __m256i& pairs = pairs_[slot];
    pairs = link % F::kChain == 0 ? product : _mm256_add_epi16(pairs, product);
    add_now(pairs);
    if (link % F::kChain == F::kChain - 1) {
      const __m256i words = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
      sums_[slot] = link < F::kChain ? words : _mm256_add_epi32(sums_[slot], words);
      add_now(sums_[slot]);
    }
  }
  void finish(int group, int slot) {
    const __m256 x_scale = _mm256_set1_ps(x_scale_[group * F::kGroup / 32]);
    const __m256 both = _mm256_mul_ps(scale_[group % kMaxGroups], x_scale);
    y_ = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums_[slot]), both, y_);
    if constexpr (!F::kSigned) {
      y_ = _mm256_fmadd_ps(offset_[group % kMaxGroups], _mm256_set1_ps(x_sum_[group]), y_);
    }
  }
  [[nodiscard]] __m256 sum() const { return y_; }

 private:
  static constexpr int kMaxGroups = 256 / F::kGroup;  // of a block

  const std::int8_t* q_;
  const float* x_scale_;
  const float* x_sum_;
  __m256 y_;
  __m256 scale_[kMaxGroups];
  __m256 offset_[kMaxGroups];
  __m256i pairs_[8];
  __m256i sums_[8];
};

template <DType kType, class F>
void dot(const std::byte* data, int columns, const QuantRows& x, float* acc) {
  DotSink<F> low(x, _mm256_loadu_ps(acc));
  DotSink<F> high(x, _mm256_loadu_ps(acc + kWidth));
  // Block by block, so that one half computes on what the other has fetched.
  for (int b = 0; b < columns / kBlock<kType>; ++b) {
    decode_block<kType>(PanelSource{data, 0}, b, low);
    decode_block<kType>(PanelSource{data, kWidth}, b, high);
  }
  _mm256_storeu_ps(acc, low.sum());
  _mm256_storeu_ps(acc + kWidth, high.sum());
}

}  // namespace

void dot_panel(DType type, const std::byte* data, int columns, const QuantRows* x, float* acc) {
  switch (type) {
    case DType::kQ4_0:
      return dot<DType::kQ4_0, FourBits>(data, columns, *x, acc);
    case DType::kQ4_1:
      return dot<DType::kQ4_1, FourBits>(data, columns, *x, acc);
    case DType::kQ5_0:
      return dot<DType::kQ5_0, FiveBits>(data, columns, *x, acc);
    case DType::kQ5_1:
      return dot<DType::kQ5_1, FiveBits>(data, columns, *x, acc);
    case DType::kQ8_0:
      return dot<DType::kQ8_0, EightBits>(data, columns, *x, acc);
    case DType::kQ4_K:
      return dot<DType::kQ4_K, FourBits>(data, columns, *x, acc);
    case DType::kQ5_K:
      return dot<DType::kQ5_K, FiveBits>(data, columns, *x, acc);
    case DType::kQ6_K:
      return dot<DType::kQ6_K, SixBits>(data, columns, *x, acc);
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return;  // never packed
  }
}

}  // namespace rift::kernels::avx2
