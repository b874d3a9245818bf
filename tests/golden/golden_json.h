// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace rift::testing {

/// A file of the golden data: below RIFT_GOLDEN, else the folder given at build time.
inline std::filesystem::path golden_path(const std::string& name) {
  const char* folder = std::getenv("RIFT_GOLDEN");
  return std::filesystem::path(folder != nullptr ? folder : RIFT_GOLDEN_DEFAULT) / name;
}

/// All bytes of a file; throws, naming it, where it cannot be read: a missing golden is a failure.
inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("cannot read " + path.string());
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

inline boost::json::value golden_json(const std::string& name) {
  return boost::json::parse(read_bytes(golden_path(name)));
}

}  // namespace rift::testing
