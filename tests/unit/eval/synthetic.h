// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/types.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace rift::eval {

/// Steps that commit `lengths` tokens, one behind the other.
inline Measurement run_of(const std::vector<std::int32_t>& lengths) {
  Measurement m;
  std::int32_t position = 0;
  for (const std::int32_t length : lengths) {
    m.steps.push_back({position, length});
    position += length;
  }
  return m;
}

inline Measurement run_of(std::size_t steps, std::int32_t length) {
  return run_of(std::vector<std::int32_t>(steps, length));
}

inline Setting setting_of(Policy policy, std::int32_t budget = 1024) {
  Setting s;
  s.policy.policy = policy;
  s.policy.budget = budget;
  return s;
}

/// A replay of prompts "a", "b", … without rows.
inline Evaluation evaluation_of(std::size_t prompts) {
  Evaluation e;
  e.mode = "replay";
  e.draft_file = "d.gguf";
  e.draft_fingerprint = "f00d";
  for (std::size_t i = 0; i < prompts; ++i) {
    e.prompts.emplace_back(1, static_cast<char>('a' + i));
    e.categories.emplace_back("code");
    e.prompt_tokens.push_back(100);
    e.response_tokens.push_back(40);
  }
  return e;
}

}  // namespace rift::eval
