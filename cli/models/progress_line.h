// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/models/fetch.h"

#include <chrono>
#include <string>

namespace rift::cli {

/// Shows a fetch on stderr: one line that is drawn over on a terminal, otherwise a plain line for
/// every new step. Thread: one.
class ProgressLine {
 public:
  ProgressLine();
  void show(const FetchProgress& progress);
  /// Removes the drawn line, so that other text can follow.
  void clear();

 private:
  void draw(const FetchProgress& progress);

  bool terminal_;
  bool drawn_ = false;
  std::string last_step_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace rift::cli
