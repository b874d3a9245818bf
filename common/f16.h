// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace rift {

/// IEEE binary16 to float, exact, subnormals and infinities included. Scalar: kernels have their
/// own vector forms.
[[nodiscard]] constexpr float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1FU;
  std::uint32_t mantissa = h & 0x3FFU;
  if (exponent == 0x1FU) {
    return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
  }
  if (mantissa == 0) {
    return std::bit_cast<float>(sign);
  }
  const int shift = std::countl_zero(mantissa) - 21;
  mantissa = (mantissa << shift) & 0x3FFU;
  return std::bit_cast<float>(sign | (static_cast<std::uint32_t>(113 - shift) << 23) |
                              (mantissa << 13));
}

/// float to IEEE binary16, round to nearest even; overflow gives infinity, NaN stays NaN.
[[nodiscard]] constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7C00U | (magnitude > 0x7F800000U ? 0x200U : 0U));
  }
  if (magnitude >= 0x477FF000U) {
    return static_cast<std::uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x33000001U) {
    return sign;
  }
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = (magnitude & 0x7FFFFFU) | 0x800000U;
  const std::uint32_t shift = exponent < 113 ? 126U - exponent : 13U;
  std::uint32_t half = mantissa >> shift;
  if (exponent >= 113) {
    half = (half & 0x3FFU) | ((exponent - 112U) << 10);
  }
  const std::uint32_t rest = mantissa & ((1U << shift) - 1U);
  const std::uint32_t middle = 1U << (shift - 1U);
  if (rest > middle || (rest == middle && (half & 1U) != 0)) {
    ++half;
  }
  return static_cast<std::uint16_t>(sign | half);
}

[[nodiscard]] constexpr float bf16_to_f32(std::uint16_t h) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16);
}

/// float to bfloat16, round to nearest even; NaN stays NaN.
[[nodiscard]] constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace rift
