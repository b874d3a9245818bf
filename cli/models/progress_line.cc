// SPDX-License-Identifier: Apache-2.0
#include "cli/models/progress_line.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>

namespace rift::cli {
namespace {

constexpr int kBarCells = 24;
constexpr std::chrono::milliseconds kRedraw{100};

}  // namespace

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressLine::show(const FetchProgress& progress) {
  const std::string step = fmt::format("{}: {}", progress.file, progress.step);
  const bool fresh = step != last_step_;
  const auto now = std::chrono::steady_clock::now();
  if (!fresh && (!terminal_ || now - last_ < kRedraw)) {
    return;
  }
  last_step_ = step;
  last_ = now;
  if (terminal_) {
    draw(progress);
  } else {
    fmt::print(stderr,
               "{} ({} of {} MB)\n",
               step,
               progress.done_bytes / 1'000'000,
               progress.total_bytes / 1'000'000);
  }
}

void ProgressLine::draw(const FetchProgress& progress) {
  const double share = progress.total_bytes == 0 ? 0.0
                                                 : static_cast<double>(progress.done_bytes) /
                                                       static_cast<double>(progress.total_bytes);
  const int cells = std::min(kBarCells, static_cast<int>(share * kBarCells));
  fmt::print(stderr,
             "\r\x1b[K{} [{:#<{}}{:.<{}}] {:>4}/{} MB  {}",
             progress.file,
             "",
             cells,
             "",
             kBarCells - cells,
             progress.done_bytes / 1'000'000,
             progress.total_bytes / 1'000'000,
             progress.step);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) {
    fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
    drawn_ = false;
  }
}

}  // namespace rift::cli
