// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/status_line.h"
#include "common/clock.h"

#include <cstddef>
#include <string_view>

namespace rift::cli {

/// Progress of a sweep with the time that is left, on the terminal's last line. Thread: one at a
/// time.
class EvalProgress {
 public:
  explicit EvalProgress(bool enabled) : line_(enabled) {}

  /// `seconds` the last measurement took; those of 0 were known before and tell nothing about time.
  void show(std::string_view what, std::size_t done, std::size_t total, double seconds);
  void close() { line_.close(); }

 private:
  StatusLine line_;
  TimePoint began_ = Clock::now();
  std::size_t measured_ = 0;
};

}  // namespace rift::cli
