// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <utility>
#include <vector>

namespace rift {

/// How tokens are chosen from logits. temperature 0 is greedy (argmax, ties to the lower id).
/// Order of application: logit bias, penalties, temperature, top-k, top-p, min-p. Value type.
struct SamplingParams {
  float temperature = 0.0F;
  std::int32_t top_k = 0;  // 0: off
  float top_p = 1.0F;      // 1: off
  float min_p = 0.0F;      // 0: off
  float repeat_penalty = 1.0F;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  std::int32_t penalty_window = 64;  // last tokens that the penalties look at; -1: all
  std::uint64_t seed = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;

  [[nodiscard]] bool has_penalties() const {
    return repeat_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
  bool operator==(const SamplingParams&) const = default;
};

}  // namespace rift
