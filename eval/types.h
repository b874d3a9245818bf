// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"
#include "common/types.h"
#include "policy/ada.h"

#include <cstdint>
#include <string>
#include <vector>

namespace rift::eval {

/// One prompt, and what the target answers where that is known (replay). Value type.
struct Sequence {
  std::string name;      // unique within a set
  std::string category;  // may be empty
  std::vector<TokenId> prompt;
  std::vector<TokenId> response;  // response[0] follows prompt.back(); empty: the target generates
};

/// One row of a sweep: everything that decides the accepted length besides models and prompts.
struct Setting {
  PolicySpec policy;
  std::int32_t draft_len = 11;  // gamma
  float temperature = 0.0F;

  bool operator==(const Setting&) const = default;
};

/// A verification step: where it began and what it committed.
struct Step {
  std::int32_t position = 0;  // of the answer's token that it began with
  std::int32_t length = 0;    // tokens committed, the target's own included
};

/// Share of the draft's full attention that falls on what the working set kept, at one query.
struct MassSample {
  std::int32_t position = 0;  // of the answer
  float mass = 0.0F;          // mean over layers and query heads
};

/// The end of a stride of a RIFT-ada session.
struct Stride {
  std::int32_t position = 0;  // of the answer, tokens committed then
  policy::Signals signals;
  policy::AdaDecision decision;
};

/// What one setting gave on one prompt. Value type.
struct Measurement {
  std::vector<Step> steps;
  /// [gamma]: how often a token was drafted, and committed, at this position of a draft.
  std::vector<std::uint64_t> drafted_per_position;
  std::vector<std::uint64_t> accepted_per_position;
  std::uint64_t first_set_bytes = 0;            // streamed before the first draft
  std::uint64_t refresh_bytes = 0;              // streamed by refreshes
  std::vector<std::int32_t> refresh_positions;  // answer's tokens at each request
  std::vector<std::int32_t> refresh_lags;       // tokens committed between request and swap
  std::vector<double> refresh_seconds;          // request to swap
  std::vector<MassSample> mass;
  std::vector<Stride> strides;
  double seconds = 0.0;

  /// Tokens committed by verification steps.
  [[nodiscard]] std::int64_t committed() const {
    std::int64_t sum = 0;
    for (const Step& step : steps) {
      sum += step.length;
    }
    return sum;
  }
  /// Mean tokens per step; 0 without steps.
  [[nodiscard]] double accepted_length() const {
    return steps.empty() ? 0.0
                         : static_cast<double>(committed()) / static_cast<double>(steps.size());
  }
};

/// A setting over all prompts; runs[i] belongs to prompts[i].
struct Row {
  Setting setting;
  std::vector<Measurement> runs;
};

struct Evaluation {
  std::string mode;  // "replay" or "live"
  std::string draft_file, draft_fingerprint;
  std::string target_file, target_fingerprint;  // empty in replay
  std::vector<std::string> prompts;             // names
  std::vector<std::string> categories;
  std::vector<std::int32_t> prompt_tokens;
  std::vector<std::int32_t> response_tokens;
  std::vector<Row> rows;
};

}  // namespace rift::eval
