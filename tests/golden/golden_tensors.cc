// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/golden_tensors.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace rift::golden {
namespace {

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw std::runtime_error("golden file missing: " + path.string() +
                             " (set RIFT_GOLDEN to the golden folder)");
  }
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

template <typename T>
std::vector<T> copy_elements(std::string_view bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(T));
  return out;
}

}  // namespace

std::filesystem::path golden_folder() {
  const char* env = std::getenv("RIFT_GOLDEN");  // NOLINT(concurrency-mt-unsafe): tests, one thread
  return env != nullptr ? env : RIFT_GOLDEN_DEFAULT;
}

boost::json::value read_json(const std::filesystem::path& path) {
  return boost::json::parse(read_all(path));
}

std::map<std::string, Tensor> read_tensors(const std::filesystem::path& path) {
  const std::string file = read_all(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  const std::string_view all = file;
  const boost::json::value header = boost::json::parse(all.substr(8, header_bytes));
  const std::string_view data = all.substr(8 + header_bytes);
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.as_object()) {
    if (name == "__metadata__") {
      continue;
    }
    Tensor t;
    t.shape = boost::json::value_to<std::vector<std::int64_t>>(entry.at("shape"));
    const auto range = boost::json::value_to<std::vector<std::uint64_t>>(entry.at("data_offsets"));
    const std::string_view bytes = data.substr(range.at(0), range.at(1) - range.at(0));
    const auto& type = entry.at("dtype").as_string();
    if (type == "F32") {
      t.f32 = copy_elements<float>(bytes);
    } else if (type == "I32") {
      t.i32 = copy_elements<std::int32_t>(bytes);
    } else {
      throw std::runtime_error(path.string() + ": element type " + std::string(type));
    }
    tensors.emplace(name, std::move(t));
  }
  return tensors;
}

}  // namespace rift::golden
