// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace rift::model {

// What the readers of GGUF metadata and of config.json share. `file` is used in messages.

inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxHeads = 4096;
inline constexpr std::int64_t kMaxHeadDim = 4096;
inline constexpr std::int64_t kMaxWidth = 1 << 24;  // C, F, V
inline constexpr std::int64_t kMaxContext = 1 << 30;

/// Errors (thrown): kUnsupported naming the architecture and the known ones.
[[nodiscard]] Architecture parse_architecture(std::string_view name, std::string_view file);

/// Errors (thrown): kCorrupt unless 1 <= value <= limit.
[[nodiscard]] std::int32_t checked_size(std::int64_t value,
                                        std::int64_t limit,
                                        std::string_view key,
                                        std::string_view file);

/// Errors (thrown): kCorrupt unless finite and above 0.
[[nodiscard]] double checked_positive(double value, std::string_view key, std::string_view file);

/// Checks head counts and fills what follows from other fields.
/// Errors (thrown): kCorrupt, kUnsupported.
void finish_config(ModelConfig& config,
                   const std::vector<double>& frequencies,
                   std::string_view file);

}  // namespace rift::model
