// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/sweep.h"

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace rift::cli {

/// Models, prompts and machine of `rift eval` and `rift calibrate`.
struct EvalInput {
  std::string draft_model;
  std::string target_model;          // empty: replay
  std::vector<std::string> replay;   // files and folders of recorded answers
  std::vector<std::string> prompts;  // prompt sets
  std::string chat_format;
  std::int32_t max_tokens = 512;
  std::int32_t limit = 0;  // of prompts; 0: all
  int jobs = 0;
  int threads = 0;  // of all jobs together
  bool exact = false;
};

void add_eval_input(CLI::App& command, EvalInput& input);

/// What the input names, opened and checked.
struct EvalSetup {
  std::vector<eval::Sequence> sequences;
  eval::SweepOptions options;
  std::string draft_fingerprint, target_fingerprint;
};
/// Errors (thrown): what loading throws; kInvalidArgument for input that does not go together.
[[nodiscard]] EvalSetup open_eval(const EvalInput& input);

}  // namespace rift::cli
