// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#include "common/error.h"
#include "kernels/ref/ops.h"
#include "tests/unit/kernels/fixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rift::kernels {
namespace {

using Ops = EveryTarget;
RIFT_FOR_EVERY_TARGET(Ops);

constexpr std::size_t kSizes[] = {1, 3, 7, 8, 9, 16, 31, 33, 64, 100, 256, 514};
constexpr std::size_t kShifts[] = {0, 1, 5};

void expect_near(std::span<const float> actual, std::span<const double> expected, double ulps) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], ulps * kEps * std::fabs(expected[i]) + 1e-37) << i;
  }
}

TEST_P(Ops, RmsNormAgreesWithTheTwin) {
  for (const std::size_t n : kSizes) {
    for (const std::size_t shift : kShifts) {
      Random random(static_cast<unsigned>(n));
      std::vector<float> x = random_floats(n + shift, random);
      const std::vector<float> weight = random_floats(n + shift, random);
      const std::span<float> view = std::span(x).subspan(shift);
      const auto w = std::span(weight).subspan(shift);
      const std::vector<double> expected = ref::rms_norm(view, w, 1e-6F);
      rms_norm(view, w, 1e-6F, view.data());
      // A sum of n squares of one sign, then three roundings.
      expect_near(view, expected, 8.0 + std::sqrt(static_cast<double>(n)));
    }
  }
}

TEST_P(Ops, RopeTurnsTheRightPairs) {
  for (const std::int64_t head_dim : {2, 6, 8, 16, 20, 64, 128}) {
    for (const std::size_t shift : kShifts) {
      Random random(5);
      const std::vector<float> x =
          random_floats(static_cast<std::size_t>(3 * head_dim) + shift, random);
      std::vector<float> cos;
      std::vector<float> sin;
      for (std::int64_t i = 0; i < head_dim / 2; ++i) {
        cos.push_back(std::cos(0.3F * static_cast<float>(i + 1)));
        sin.push_back(std::sin(0.3F * static_cast<float>(i + 1)));
      }
      const auto from = std::span(x).subspan(shift);
      std::vector<float> half = x;
      std::vector<float> interleaved = x;
      rope_half(half.data() + shift, 3, head_dim, cos.data(), sin.data());
      rope_interleaved(interleaved.data() + shift, 3, head_dim, cos.data(), sin.data());
      const std::vector<double> expected_half =
          ref::rope_half(from, head_dim, cos.data(), sin.data());
      const std::vector<double> expected_interleaved =
          ref::rope_interleaved(from, head_dim, cos.data(), sin.data());
      for (std::size_t i = 0; i < from.size(); ++i) {
        // |x| < 5 and |cos|, |sin| <= 1: three roundings of numbers below 10.
        ASSERT_NEAR(half[i + shift], expected_half[i], 3 * kEps * 10);
        ASSERT_NEAR(interleaved[i + shift], expected_interleaved[i], 3 * kEps * 10);
      }
    }
  }
}

TEST_P(Ops, SiluAgreesWithTheTwinAndSaturates) {
  for (const std::size_t n : kSizes) {
    for (const std::size_t shift : kShifts) {
      Random random(static_cast<unsigned>(n));
      std::vector<float> gate = random_floats(n + shift, random, 8.0F);
      const std::vector<float> up = random_floats(n + shift, random);
      const auto view = std::span(gate).subspan(shift);
      const auto other = std::span(up).subspan(shift);
      const std::vector<double> expected = ref::silu_multiply(view, other);
      silu_multiply(view, other, view.data());
      expect_near(view, expected, 8.0);
    }
  }
  const std::vector<float> gate = {100.0F, -100.0F, 3e38F, -3e38F, 0.0F, 88.0F, -80.0F, 1.0F};
  const std::vector<float> up(8, 1.0F);
  std::vector<float> out(8);
  silu_multiply(gate, up, out.data());
  EXPECT_EQ(out[0], 100.0F);
  EXPECT_NEAR(out[1], 0.0F, 1e-35F);
  EXPECT_EQ(out[2], 3e38F);
  EXPECT_NEAR(out[3], 0.0F, 1e-35F);
  EXPECT_EQ(out[4], 0.0F);
  EXPECT_EQ(out[5], 88.0F);
}

TEST_P(Ops, AddAddsEveryElementOnce) {
  for (const std::size_t n : kSizes) {
    Random random(1);
    std::vector<float> x = random_floats(n, random);
    const std::vector<float> before = x;
    const std::vector<float> y = random_floats(n, random);
    add(x, y);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_EQ(x[i], before[i] + y[i]);
    }
  }
}

TEST_P(Ops, StoreRoundsToNearestEvenAndLoadIsExact) {
  for (const std::size_t n : kSizes) {
    Random random(static_cast<unsigned>(n));
    std::vector<float> x = random_floats(n, random, 100.0F);
    x[0] = 65520.0F;
    if (n > 8) {
      x[1] = 1.0F + 1.0F / 2048.0F;
      x[2] = 5e-8F;
      x[3] = std::numeric_limits<float>::infinity();
      x[4] = 1.0F + 1.0F / 256.0F;
    }
    for (const DType dtype : kPlainTypes) {
      std::vector<std::byte> bytes(n * 4 + 8, std::byte{0x5A});
      store_as(dtype, x.data(), bytes.data(), static_cast<std::int64_t>(n));
      EXPECT_EQ(bytes[row_bytes(dtype, static_cast<std::int64_t>(n))], std::byte{0x5A});
      std::vector<float> back(n);
      load_as(dtype, bytes.data(), back.data(), static_cast<std::int64_t>(n));
      for (std::size_t i = 0; i < n; ++i) {
        const float expected = dtype == DType::kF32   ? x[i]
                               : dtype == DType::kF16 ? f16_to_f32(f32_to_f16(x[i]))
                                                      : bf16_to_f32(f32_to_bf16(x[i]));
        ASSERT_EQ(back[i], expected) << to_string(dtype) << " element " << i;
      }
    }
  }
}

TEST(CpuTarget, TheBestOneIsTakenUnlessALowerOneIsAskedFor) {
  EXPECT_STREQ(choose_cpu_ops("scalar").name, "scalar");
  EXPECT_STREQ(choose_cpu_ops("").name, choose_cpu_ops(nullptr).name);
  const char* best = "scalar";
  std::vector<const char*> unusable = {"sse9"};
  for (const char* name : {"avx2", "avx512"}) {
    if (find_cpu_ops(name) != nullptr) {
      EXPECT_STREQ(choose_cpu_ops(name).name, name);
      best = name;
    } else {
      unusable.push_back(name);
    }
  }
  EXPECT_STREQ(choose_cpu_ops(nullptr).name, best);
  for (const std::string name : unusable) {
    try {
      static_cast<void>(choose_cpu_ops(name.c_str()));
      FAIL() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
      EXPECT_NE(error.message().find('"' + name + '"'), std::string::npos);
      EXPECT_NE(error.message().find("scalar"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace rift::kernels
