// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/scoped_fd.h"

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rift::cli {

struct Pipe {
  ScopedFd read;
  ScopedFd write;
};
/// Both ends close on exec. Errors (thrown): kIo.
[[nodiscard]] Pipe make_pipe();

/// Which of the parent's descriptors become which of the child's; all others close.
struct PassedFd {
  int ours = -1;
  int theirs = -1;
};

/// A child that ends with its owner. Move-only.
class ChildProcess {
 public:
  ChildProcess() = default;
  /// Errors (thrown): kNotFound, kIo.
  ChildProcess(const std::filesystem::path& program,
               const std::vector<std::string>& arguments,
               const std::vector<PassedFd>& fds);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// How it ended, e.g. "exit code 1" or "signal 9"; nothing while it runs.
  [[nodiscard]] std::optional<std::string> ended();
  /// SIGTERM, and SIGKILL when it is still there after `patience`. Waits for its end.
  void terminate(std::chrono::milliseconds patience);

 private:
  pid_t pid_ = -1;
  std::optional<std::string> ended_;
};

struct ChildResult {
  int exit_code = 0;   // 128 + signal where one ended it
  std::string output;  // the last 64 KiB of stdout and stderr together
};

/// Runs argv[0] (looked for in PATH) with exactly these arguments, no shell between, and waits. Its
/// standard input is empty. Errors (thrown): kNotFound where the program does not exist, kIo.
[[nodiscard]] ChildResult run_child(const std::vector<std::string>& argv);

/// Reads one line within `timeout`; the descriptor is a pipe. Errors (thrown): kTimeout,
/// kUnavailable at its end, kCancelled after an interrupt.
[[nodiscard]] std::string read_line(int fd, std::string& buffer, std::chrono::milliseconds timeout);

}  // namespace rift::cli
