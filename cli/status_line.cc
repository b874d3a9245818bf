// SPDX-License-Identifier: Apache-2.0
#include "cli/status_line.h"

#include <fmt/format.h>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

namespace rift::cli {
namespace {

constexpr auto kTerminalInterval = std::chrono::milliseconds(100);
constexpr auto kPlainInterval = std::chrono::seconds(5);

bool same_file(int a, int b) {
  struct stat one {};
  struct stat other {};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

}  // namespace

StatusLine::StatusLine(bool enabled)
    : enabled_(enabled), terminal_(::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1) {
  winsize size{};
  if (!enabled_ || !terminal_ || ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 ||
      size.ws_row < 4) {
    terminal_ = false;
    return;
  }
  rows_ = size.ws_row;
  columns_ = size.ws_col;
  // Make room for the last row, then let text scroll in the rows above it only.
  fmt::print(stderr, "\n\0337\033[1;{}r\0338\033[1A", rows_ - 1);
  std::fflush(stderr);
  open_ = true;
}

StatusLine::~StatusLine() { close(); }

void StatusLine::show(std::string_view text) {
  const TimePoint now = Clock::now();
  if (!enabled_ || now < next_ || text == shown_) {
    return;
  }
  shown_ = text;
  if (open_) {
    next_ = now + kTerminalInterval;
    std::fflush(stdout);
    const auto width = static_cast<std::size_t>(columns_ > 1 ? columns_ - 1 : 1);
    fmt::print(stderr, "\0337\033[{};1H\033[2K\033[7m{}\033[0m\0338", rows_, text.substr(0, width));
    std::fflush(stderr);
  } else if (!terminal_) {
    next_ = now + kPlainInterval;
    fmt::print(stderr, "{}\n", text);
  }
}

void StatusLine::text_begins() {
  if (!open_ && same_file(STDOUT_FILENO, STDERR_FILENO)) {
    enabled_ = false;
  }
}

void StatusLine::close() {
  if (open_) {
    std::fflush(stdout);
    fmt::print(stderr, "\0337\033[r\033[{};1H\033[2K\0338", rows_);
    std::fflush(stderr);
    open_ = false;
  }
  enabled_ = false;
}

}  // namespace rift::cli
