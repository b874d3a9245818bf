// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/child_process.h"

#include <boost/json/object.hpp>

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace rift::test {

/// Folder of the built programs, and of the models that tests need.
[[nodiscard]] std::filesystem::path bin_dir();
[[nodiscard]] std::string model(const std::string& file);
[[nodiscard]] std::string small_model();  // Qwen2.5-Coder 0.5B
[[nodiscard]] std::string large_model();  // Qwen2.5-Coder 1.5B

/// What a finished `rift` left.
struct Finished {
  std::string ended;  // "exit code 0"
  std::string out;
  std::string err;
  boost::json::object json;  // of --json, where it was asked for
};

/// A running `rift` whose output is gathered while it runs.
class RiftProcess {
 public:
  /// `json`: adds --json with a file of its own.
  RiftProcess(std::vector<std::string> arguments, bool json);
  ~RiftProcess();
  RiftProcess(const RiftProcess&) = delete;
  RiftProcess& operator=(const RiftProcess&) = delete;

  /// Gathers output until `enough(stdout, stderr)`, the end, or `limit`. True when it was enough.
  bool read_until(const std::function<bool(const std::string& out, const std::string& err)>& enough,
                  std::chrono::seconds limit);
  [[nodiscard]] Finished finish(std::chrono::seconds limit);
  [[nodiscard]] pid_t pid() const { return child_.pid(); }
  /// Process id of the child whose executable is called `name`; -1 when there is none.
  [[nodiscard]] pid_t node(const std::string& name) const;

 private:
  bool pump(std::chrono::milliseconds wait);

  std::filesystem::path json_file_;
  cli::Pipe out_;
  cli::Pipe err_;
  cli::ChildProcess child_;
  std::string out_text_;
  std::string err_text_;
};

/// Runs to the end.
[[nodiscard]] Finished run_rift(const std::vector<std::string>& arguments,
                                bool json,
                                std::chrono::seconds limit = std::chrono::seconds(300));

/// Processes, of any parent, whose executable lies in bin_dir().
[[nodiscard]] std::vector<pid_t> running_nodes();
/// Waits until running_nodes() is empty; false after `limit`.
[[nodiscard]] bool all_nodes_gone(std::chrono::seconds limit);

}  // namespace rift::test
