// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rift::cli {

struct ChildResult {
  int exit_code = 0;   // 128 + signal where one ended it
  std::string output;  // the last 64 KiB of stdout and stderr together
};

/// Runs argv[0] (looked for in PATH) with exactly these arguments, no shell between, and waits.
/// Errors (thrown): kNotFound where the program does not exist, kIo.
[[nodiscard]] ChildResult run_child(const std::vector<std::string>& argv);

/// The last `lines` non-empty lines of `text`, indented.
[[nodiscard]] std::string last_lines(const std::string& text, std::size_t lines);

}  // namespace rift::cli
