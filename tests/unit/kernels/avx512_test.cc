// SPDX-License-Identifier: Apache-2.0
// AVX-512 gives AVX2's bits: everything that its table does by itself, body by body.
#include "kernels/cpu/panels.h"
#include "kernels/cpu/quant_blocks.h"
#include "tests/unit/kernels/fixture.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rift::kernels {
namespace {

constexpr int kRows = 33;
constexpr int kPanelRows = 16;
constexpr int kColumns = 768;

class Avx512 : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ops_ = find_tested_ops(GetParam());
    if (ops_ == nullptr) {
      GTEST_SKIP() << GetParam() << " does not run on this machine";
    }
    avx2_ = find_cpu_ops("avx2");
  }
  const CpuOps* ops_ = nullptr;
  const CpuOps* avx2_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Cpu,
                         Avx512,
                         testing::Values("avx512", "avx512_emulated"),
                         [](const auto& target) { return target.param; });

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::vector<DType> quantised_types() {
  std::vector<DType> types;
  for (const DType type : kAllTypes) {
    if (block_elements(type) > 1) {
      types.push_back(type);
    }
  }
  return types;
}

/// Rounded rows of activations. Their largest bytes may differ in sign from column to column.
class Rounded {
 public:
  Rounded(const std::vector<float>& x, const MatmulOps& ops)
      : q_(x.size()),
        scale_(x.size() / 32),
        total_(x.size() / 32),
        sum32_(x.size() / 32),
        sum16_(x.size() / 16) {
    // Rows follow each other without a gap, so that they can be rounded as one.
    ops.round_row(x.data(),
                  static_cast<std::int64_t>(x.size()),
                  {q_.data(), scale_.data(), total_.data(), sum32_.data(), sum16_.data()});
  }
  [[nodiscard]] QuantRows rows() const {
    return {q_.data(), scale_.data(), total_.data(), sum32_.data(), sum16_.data(), kColumns};
  }

 private:
  std::vector<std::int8_t> q_;
  std::vector<float> scale_;
  std::vector<std::int32_t> total_;
  std::vector<float> sum32_;
  std::vector<float> sum16_;
};

struct Weights {
  DType type;
  std::vector<std::byte> packed;

  Weights(DType dtype, const std::vector<std::byte>& rows) : type(dtype), packed(rows.size()) {
    const std::byte* starts[kPanelRows];
    for (int r = 0; r < kPanelRows; ++r) {
      starts[r] = rows.data() + static_cast<std::size_t>(r) * row_bytes(type, kColumns);
    }
    pack_panel(type, starts, kPanelRows, kColumns, packed.data());
  }
};

/// acc [rows, 16] over all columns, by unpacked panels.
std::vector<float> dot_unpacked(const MatmulOps& ops,
                                const Weights& w,
                                const QuantRows& x,
                                int rows) {
  std::vector<float> acc(static_cast<std::size_t>(rows * kPanelRows), 0.0F);
  QuantPanel panel;
  for (int c = 0; c < kColumns; c += kQuantChunk) {
    ops.unpack_panel(
        w.type, w.packed.data() + kPanelRows * row_bytes(w.type, c), kQuantChunk, &panel);
    const QuantRows from = {
        x.q + c, x.scale + c / 32, x.total + c / 32, x.sum32 + c / 32, x.sum16 + c / 16, x.stride};
    ops.dot_quant(w.type, &panel, kQuantChunk, &from, rows, acc.data());
  }
  return acc;
}

void compare_products(const MatmulOps& ops,
                      const MatmulOps& avx2,
                      const Weights& w,
                      const QuantRows& x) {
  const std::vector<float> expected = dot_unpacked(avx2, w, x, kRows);
  for (const float value : expected) {
    ASSERT_TRUE(std::isfinite(value));
  }
  for (int rows = 1; rows <= kRows; ++rows) {
    const std::vector<float> y = dot_unpacked(ops, w, x, rows);
    const std::vector<float> first(expected.begin(), expected.begin() + rows * kPanelRows);
    EXPECT_TRUE(same_bits(y, first)) << rows << " rows";
  }
  std::vector<float> alone(kPanelRows, 0.0F);
  ops.dot_panel(w.type, w.packed.data(), kColumns, &x, alone.data());
  EXPECT_EQ(std::memcmp(alone.data(), expected.data(), kPanelRows * sizeof(float)), 0);
}

TEST_P(Avx512, ProductsOfQuantisedWeightsHaveTheBitsOfAvx2) {
  Random random(11);
  const std::vector<float> x = random_floats(kRows * kColumns, random);
  const Rounded rounded(x, *avx2_->matmul);
  for (const DType type : quantised_types()) {
    SCOPED_TRACE(to_string(type));
    const Weights w(type, random_weights(type, kPanelRows, kColumns, random));
    compare_products(*ops_->matmul, *avx2_->matmul, w, rounded.rows());
  }
}

TEST_P(Avx512, ProductsOfTheLargestBytesHaveTheBitsOfAvx2) {
  for (const DType type : quantised_types()) {
    for (const int fill : {0xFF, 0x80, 0x7F, 0x00}) {
      std::vector<std::byte> bytes(kPanelRows * row_bytes(type, kColumns),
                                   static_cast<std::byte>(fill));
      for (std::size_t at = 0; at < bytes.size(); at += block_bytes(type)) {
        for (const std::size_t place : f16_places(type)) {
          put_f16(&bytes[at + place], 0.01F);
        }
      }
      const Weights w(type, bytes);
      // All columns at 127, all at -127, and the two in turn.
      for (const int pattern : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << to_string(type) << " fill " << fill << " " << pattern);
        std::vector<float> x(kRows * kColumns, pattern == 1 ? -3.0F : 3.0F);
        for (std::size_t i = 0; pattern == 2 && i < x.size(); i += 2) {
          x[i] = -3.0F;
        }
        const Rounded rounded(x, *avx2_->matmul);
        compare_products(*ops_->matmul, *avx2_->matmul, w, rounded.rows());
      }
    }
  }
}

TEST_P(Avx512, PanelsHaveTheBytesOfAvx2) {
  Random random(12);
  for (const DType type : quantised_types()) {
    const Weights w(type, random_weights(type, kPanelRows, kColumns, random));
    for (int columns = quant_format(type).block; columns <= kQuantChunk; columns *= 2) {
      SCOPED_TRACE(testing::Message() << to_string(type) << " " << columns << " columns");
      QuantPanel a = {};
      QuantPanel b = {};
      ops_->matmul->unpack_panel(type, w.packed.data(), columns, &a);
      avx2_->matmul->unpack_panel(type, w.packed.data(), columns, &b);
      EXPECT_EQ(std::memcmp(&a, &b, sizeof(a)), 0);
      FloatPanel wide_a = {};
      FloatPanel wide_b = {};
      ops_->matmul->widen_panel(type, &a, columns, &wide_a);
      avx2_->matmul->widen_panel(type, &b, columns, &wide_b);
      EXPECT_EQ(std::memcmp(&wide_a, &wide_b, sizeof(wide_a)), 0);
    }
  }
}

TEST_P(Avx512, ProductsOfFloatsHaveTheBitsOfAvx2) {
  Random random(13);
  FloatPanel panel;
  for (float& value : panel.w) {
    value = std::normal_distribution<float>()(random);
  }
  for (const int columns : {1, 2, 31, 255, 256}) {
    const std::vector<float> x = random_floats(kRows * 300, random);
    for (int rows = 1; rows <= kRows; ++rows) {
      const std::vector<float> start =
          random_floats(static_cast<std::size_t>(2 * rows * kPanelRows), random);
      std::vector<float> y = start;
      std::vector<float> expected = start;
      ops_->matmul->dot_float(&panel, columns, x.data(), 300, rows, y.data());
      avx2_->matmul->dot_float(&panel, columns, x.data(), 300, rows, expected.data());
      EXPECT_TRUE(same_bits(y, expected)) << columns << " columns, " << rows << " rows";
    }
  }
}

TEST_P(Avx512, LogitsHaveTheBitsOfAvx2) {
  Random random(14);
  for (const int head_dim : {8, 64, 80, 128}) {
    const std::vector<float> keys =
        random_floats(static_cast<std::size_t>(head_dim * kKeyChunk), random);
    for (int n = 1; n <= 17; ++n) {
      const std::int64_t stride = head_dim + 3;
      const std::vector<float> q = random_floats(static_cast<std::size_t>(n * stride), random);
      std::vector<float> y(static_cast<std::size_t>(n * 40));
      std::vector<float> expected = y;
      ops_->attention->dot_keys(q.data(), stride, n, head_dim, keys.data(), 0.125F, y.data(), 40);
      avx2_->attention->dot_keys(
          q.data(), stride, n, head_dim, keys.data(), 0.125F, expected.data(), 40);
      EXPECT_TRUE(same_bits(y, expected)) << n << " queries of " << head_dim;
    }
  }
}

/// What fold_values reads and writes, for n queries.
struct Softmax {
  std::vector<float> logits;
  std::vector<float> maxima;
  std::vector<float> sums;
  std::vector<float> out;

  void fold(const AttentionOps& ops,
            DType type,
            const std::byte* const* values,
            int count,
            int head_dim) {
    ops.fold_values(type,
                    values,
                    count,
                    head_dim,
                    static_cast<int>(maxima.size()),
                    logits.data(),
                    maxima.data(),
                    sums.data(),
                    out.data());
  }
};

TEST_P(Avx512, SoftmaxAndValuesHaveTheBitsOfAvx2) {
  Random random(15);
  for (const DType type : kPlainTypes) {
    for (const int head_dim : {8, 24, 32, 64, 72, 128}) {
      const std::vector<std::byte> values = random_weights(type, kKeyChunk, head_dim, random);
      const std::byte* rows[kKeyChunk];
      for (std::size_t j = 0; j < kKeyChunk; ++j) {
        rows[j] = values.data() + j * row_bytes(type, head_dim);
      }
      for (const int count : {1, 7, 8, 15, 16, 17, 31, 32}) {
        for (const std::size_t n : {1U, 2U, 3U, 6U, 7U, 9U}) {
          Softmax a;
          a.logits = random_floats(n * kKeyChunk, random, 30.0F);
          a.maxima = random_floats(n, random, 30.0F);
          a.maxima[0] = -INFINITY;
          a.sums = std::vector<float>(n, 2.0F);
          a.out = random_floats(n * static_cast<std::size_t>(head_dim), random);
          Softmax b = a;
          a.fold(*ops_->attention, type, rows, count, head_dim);
          b.fold(*avx2_->attention, type, rows, count, head_dim);
          EXPECT_TRUE(same_bits(a.logits, b.logits) && same_bits(a.maxima, b.maxima) &&
                      same_bits(a.sums, b.sums) && same_bits(a.out, b.out))
              << to_string(type) << " D=" << head_dim << " count " << count << " n " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rift::kernels
