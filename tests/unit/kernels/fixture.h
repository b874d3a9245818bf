// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/f16.h"
#include "common/types.h"
#include "kernels/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace rift::kernels {

inline constexpr DType kPlainTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DType kAllTypes[] = {DType::kF32,
                                      DType::kF16,
                                      DType::kBF16,
                                      DType::kQ4_0,
                                      DType::kQ4_1,
                                      DType::kQ5_0,
                                      DType::kQ5_1,
                                      DType::kQ8_0,
                                      DType::kQ4_K,
                                      DType::kQ5_K,
                                      DType::kQ6_K};

/// Unit of rounding of f32.
inline constexpr double kEps = 1.0 / (1 << 24);

#if defined(__x86_64__)
/// The AVX-512 table with its instructions emulated: see emulated_avx512.h.
extern const MatmulOps kMatmulEmulated;
extern const AttentionOps kAttentionEmulated;
inline constexpr CpuOps kEmulated = {
    "avx512_emulated", &kMatmulEmulated, &kAttentionEmulated, &kElementwiseAvx2};
#endif

/// Null where the machine lacks what the target needs.
inline const CpuOps* find_tested_ops(const std::string& target) {
#if defined(__x86_64__)
  if (target == kEmulated.name) {
    return find_cpu_ops("avx2") != nullptr ? &kEmulated : nullptr;
  }
#endif
  return find_cpu_ops(target.c_str());
}

/// Runs a test once per instruction set of this machine, and with AVX-512 emulated.
class EveryTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const CpuOps* ops = find_tested_ops(GetParam());
    if (ops == nullptr) {
      GTEST_SKIP() << GetParam() << " does not run on this machine";
    }
    set_cpu_ops_for_test(*ops);
  }
};

#define RIFT_FOR_EVERY_TARGET(suite)                                                       \
  INSTANTIATE_TEST_SUITE_P(Cpu,                                                            \
                           suite,                                                          \
                           testing::Values("scalar", "avx2", "avx512", "avx512_emulated"), \
                           [](const auto& target) { return target.param; })

using Random = std::mt19937;

inline std::vector<float> random_floats(std::size_t n, Random& random, float spread = 1.0F) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> out(n);
  for (float& value : out) {
    value = normal(random);
  }
  return out;
}

inline void put_f16(std::byte* at, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, sizeof(bits));
}

/// Where the f16 numbers of a block lie.
inline std::vector<std::size_t> f16_places(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ6_K:
      return {208};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  return {};
}

/// Valid weights of any type: random bits with finite scales; plain types normally distributed.
inline std::vector<std::byte> random_weights(DType type,
                                             std::int64_t rows,
                                             std::int64_t cols,
                                             Random& random) {
  const std::size_t bytes = static_cast<std::size_t>(rows) * row_bytes(type, cols);
  std::vector<std::byte> out(bytes);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  if (block_elements(type) == 1) {
    const std::size_t size = block_bytes(type);
    for (std::size_t at = 0; at < bytes; at += size) {
      const float value = normal(random);
      if (type == DType::kF32) {
        std::memcpy(&out[at], &value, size);
      } else {
        const std::uint16_t half = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        std::memcpy(&out[at], &half, size);
      }
    }
    return out;
  }
  for (std::byte& byte : out) {
    byte = static_cast<std::byte>(random());
  }
  for (std::size_t at = 0; at < bytes; at += block_bytes(type)) {
    for (const std::size_t place : f16_places(type)) {
      put_f16(&out[at + place], normal(random));
    }
  }
  return out;
}

}  // namespace rift::kernels
