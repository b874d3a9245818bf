// SPDX-License-Identifier: Apache-2.0
#include "cli/output_file.h"

#include "common/error.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace rift::cli {

void write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    fmt::print("{}\n", text);
    return;
  }
  std::ofstream file(path, std::ios::trunc);
  file << text << '\n';
  if (!file.flush()) {
    throw fail(Errc::kIo, "cannot write {}", path);
  }
}

void check_writable(const std::string& path) {
  if (path.empty() || path == "-") {
    return;
  }
  const bool existed = std::filesystem::exists(path);
  const bool good = std::ofstream(path, std::ios::app).good();
  if (!existed) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  if (!good) {
    throw fail(Errc::kIo, "cannot write {}", path);
  }
}

}  // namespace rift::cli
