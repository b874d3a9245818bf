// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/working_set_layout.h"
#include "transport/messages.h"

#include <cstdint>
#include <span>

namespace rift::score_node {

/// What a session must agree with.
struct OpenLimits {
  KvGeometry geometry;
  std::int32_t vocab = 0;
  std::uint64_t send_chunk_bytes = 0;
};

/// Whether a session can be opened: every value that later sizes, offsets and indices are computed
/// from is checked here, once. Errors: kInvalidArgument, kMismatch, kOutOfRange.
[[nodiscard]] Status check_open(const transport::ScoreOpen& open, const OpenLimits& limits);

/// Errors: kOutOfRange for an id outside [0, vocab).
[[nodiscard]] Status check_tokens(std::span<const TokenId> tokens, std::int32_t vocab);

}  // namespace rift::score_node
