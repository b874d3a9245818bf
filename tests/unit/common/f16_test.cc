// SPDX-License-Identifier: Apache-2.0
#include "common/f16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rift {
namespace {

TEST(F16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const auto h = static_cast<std::uint16_t>(bits);
    const float f = f16_to_f32(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f)))) << bits;
    } else {
      EXPECT_EQ(f32_to_f16(f), h) << bits;
    }
  }
}

TEST(F16, ValuesAgreeWithTheirDefinition) {
  EXPECT_EQ(f16_to_f32(0x3C00), 1.0F);
  EXPECT_EQ(f16_to_f32(0x0001), std::ldexp(1.0F, -24));
  EXPECT_EQ(f16_to_f32(0x03FF), std::ldexp(1023.0F, -24));
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0F);
  EXPECT_EQ(f16_to_f32(0xFC00), -std::numeric_limits<float>::infinity());
}

TEST(F16, RoundsToNearestEven) {
  // Between neighbours a and b: below the middle gives a, above gives b, the middle gives the even.
  for (std::uint16_t h = 0; h < 0x7BFF; ++h) {
    const double a = f16_to_f32(h);
    const double b = f16_to_f32(static_cast<std::uint16_t>(h + 1));
    const auto middle = static_cast<float>((a + b) / 2);
    EXPECT_EQ(f32_to_f16(middle), h % 2 == 0 ? h : h + 1) << h;
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 0.0F)), h);
    EXPECT_EQ(f32_to_f16(std::nextafter(middle, 1e9F)), h + 1);
  }
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7C00);
  EXPECT_EQ(f32_to_f16(65519.996F), 0x7BFF);
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_bf16(1.0F), 0x3F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808000U)), 0x3F80);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F818000U)), 0x3F82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace rift
