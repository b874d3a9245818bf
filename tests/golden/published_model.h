// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace rift::testing {

/// A published model: below RIFT_MODELS, else ~/.cache/rift/models.
inline std::filesystem::path model_path(const std::string& name) {
  if (const char* folder = std::getenv("RIFT_MODELS")) {
    return std::filesystem::path(folder) / name;
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "/") / ".cache/rift/models" / name;
}

/// Under CI the models have been fetched: a test without its model is a failure there.
inline bool may_skip() {
  const char* ci = std::getenv("CI");
  return ci == nullptr || std::string_view(ci) != "true";
}

}  // namespace rift::testing

/// Ends the running test where the file is absent: skipped, or failed with CI=true.
#define RIFT_NEED_MODEL(path)                                     \
  if (!std::filesystem::exists(path)) {                           \
    if (!::rift::testing::may_skip()) {                           \
      FAIL() << (path) << " is absent: `make fetch` gets it";     \
    }                                                             \
    GTEST_SKIP() << (path) << " is absent: `make fetch` gets it"; \
  }                                                               \
  static_assert(true, "a semicolon follows")
