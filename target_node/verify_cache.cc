// SPDX-License-Identifier: Apache-2.0
#include "target_node/verify_cache.h"

#include "common/error.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>

namespace rift::target_node {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

fs::path file_of(const fs::path& folder, const VerifyKey& key) {
  return folder / fmt::format("{:016x}.json", std::hash<std::string>()(key.text()));
}

std::vector<double> times(const json::value& list, std::int32_t count) {
  std::vector<double> out;
  for (const json::value& item : list.as_array()) {
    out.push_back(item.to_number<double>());
  }
  const bool good = std::ssize(out) == count && std::all_of(out.begin(), out.end(), [](double t) {
                      return std::isfinite(t) && t > 0.0;
                    });
  return good ? out : std::vector<double>();
}

}  // namespace

std::string VerifyKey::text() const {
  return fmt::format("{} {} {} threads {}{}{} rows {}",
                     fingerprint,
                     cpu,
                     cpu_target,
                     threads,
                     exact ? " exact" : "",
                     packed ? " packed" : "",
                     widest);
}

std::optional<VerifyCosts> read_verify_costs(const fs::path& folder, const VerifyKey& key) {
  std::ifstream file(file_of(folder, key));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  try {
    const json::value parsed = json::parse(text);
    VerifyCosts costs;
    costs.empty = times(parsed.at("empty_seconds"), key.widest);
    costs.deep = times(parsed.at("deep_seconds"), key.widest);
    costs.depth = parsed.at("depth").to_number<std::int32_t>();
    if (parsed.at("key").as_string() == key.text() && !costs.empty.empty() && !costs.deep.empty() &&
        costs.depth > 0) {
      return costs;
    }
  } catch (const std::exception&) {  // not what this program wrote: as if it were not there
    return std::nullopt;
  }
  return std::nullopt;
}

void write_verify_costs(const fs::path& folder, const VerifyKey& key, const VerifyCosts& costs) {
  const fs::path path = file_of(folder, key);
  const fs::path fresh = path.string() + fmt::format(".{}", ::getpid());
  std::error_code error;
  fs::create_directories(folder, error);
  std::ofstream file(fresh, std::ios::trunc);
  file << json::serialize(
      json::object{{"key", key.text()},
                   {"depth", costs.depth},
                   {"empty_seconds", json::array(costs.empty.begin(), costs.empty.end())},
                   {"deep_seconds", json::array(costs.deep.begin(), costs.deep.end())}});
  file.close();
  if (file.good()) {
    fs::rename(fresh, path, error);
  }
  if (!file.good() || error) {
    std::error_code ignored;
    fs::remove(fresh, ignored);
    throw fail(Errc::kIo, "cannot write {}", path.string());
  }
}

fs::path verify_cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  if (const fs::path cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return cache / "rift/verify";
  }
  const fs::path home = variable("HOME");
  return home.empty() ? fs::path() : home / ".cache/rift/verify";
}

std::string cpu_name() {
  constexpr std::string_view kKey = "model name";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (const std::size_t colon = line.find(": ");
        line.starts_with(kKey) && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

}  // namespace rift::target_node
