// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/policy_spec.h"
#include "common/sampling_params.h"
#include "common/types.h"
#include "transport/messages.h"
#include "transport/transport.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::target_node {

/// One answer to produce. Value type.
struct Request {
  std::vector<TokenId> prompt;  // not empty
  std::int32_t max_tokens = 256;
  std::vector<TokenId> stop_tokens;  // end-of-generation ids; the one that stops is committed
  SamplingParams sampling;
  bool use_draft = true;
  PolicySpec policy;
  std::int32_t draft_len = 4;   // gamma
  bool auto_draft_len = false;  // chosen per round, draft_len at most (core/draft_length.h)
  std::int32_t top_n = 64;      // support of the draft's q at temperature > 0
  bool ignore_stop = false;     // go on past end-of-generation tokens (benchmarks, verification)

  bool operator==(const Request&) const = default;
};

enum class FinishReason : std::uint8_t { kStop, kLength, kCancelled };
[[nodiscard]] std::string_view to_string(FinishReason reason);

/// Counters of one answer; grows while it is produced.
struct Progress {
  std::uint64_t steps = 0;  // verification passes (plain decoding steps included)
  std::uint64_t drafted_tokens = 0;
  std::uint64_t accepted_tokens = 0;  // drafted and committed
  std::uint32_t refreshes = 0;
  std::uint64_t refresh_bytes = 0;
  bool drafting = false;  // a draft node takes part right now

  bool operator==(const Progress&) const = default;
};

/// What one answer came to.
struct Outcome {
  std::vector<TokenId> tokens;
  FinishReason finish = FinishReason::kLength;
  Progress progress;
  /// [gamma]: how often the drafted token at this position was committed.
  std::vector<std::uint64_t> accepted_per_position;
  /// [gamma]: how often a token was drafted at this position.
  std::vector<std::uint64_t> drafted_per_position;
  /// Tokens committed by verification passes, those after an end of sequence left out; the first
  /// token of the answer comes from prefill and is not counted.
  std::uint64_t committed_by_steps = 0;
  std::int32_t prompt_tokens_reused = 0;  // of the prompt, found in a cached history
  double prefill_seconds = 0.0;
  double decode_seconds = 0.0;  // first token -> last token
  double draft_wait_seconds = 0.0;
  double verify_seconds = 0.0;
  std::uint32_t draft_lost = 0;
  std::string draft_error;                // why drafting was not used or ended; empty otherwise
  transport::SessionReady draft_ready;    // as announced; zeros without a draft
  transport::SessionClosed draft_closed;  // totals; zeros without a draft
  transport::LinkInfo draft_link;

  /// Mean number of tokens committed per verification pass; 0 without passes.
  [[nodiscard]] double accepted_length() const;
};

/// Callbacks of one answer, on the node's loop.
struct RequestEvents {
  std::function<void(std::int32_t done, std::int32_t total)> on_prefill;
  std::function<void(std::span<const TokenId> tokens, const Progress& progress)> on_tokens;
  std::function<void(Outcome outcome)> on_done;
  std::function<void(const Error& error)> on_error;  // refused or failed; nothing follows
};

}  // namespace rift::target_node
