// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"

#include <string>
#include <string_view>

namespace rift::cli {

/// One live line about a running answer. On a terminal it stays at the bottom while text scrolls
/// above it; elsewhere it is written to stderr as a plain line, now and then, but not into text
/// that goes to the same file. Thread: one.
class StatusLine {
 public:
  explicit StatusLine(bool enabled);
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  void show(std::string_view text);
  /// From now on the answer's text goes to stdout.
  void text_begins();
  /// Gives the terminal back. Idempotent.
  void close();

 private:
  bool enabled_;
  bool terminal_;
  bool open_ = false;
  int rows_ = 0;
  int columns_ = 0;
  std::string shown_;
  TimePoint next_;
};

}  // namespace rift::cli
