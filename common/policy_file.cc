// SPDX-License-Identifier: Apache-2.0
#include "common/policy_file.h"

#include "common/error.h"

#define TOML_EXCEPTIONS 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <sstream>
#include <string_view>

namespace rift {
namespace {

/// One table of the file: every key must be known, and have the type that it is read as.
class TableReader {
 public:
  explicit TableReader(const std::string& file) : file_(file) {}

  using Reader = std::function<void(const toml::node&)>;

  TableReader& integer(const char* key, std::int32_t& out) {
    readers_[key] = [this, key, &out](const toml::node& node) {
      const auto value = node.value_exact<std::int64_t>();
      if (!value || *value < std::numeric_limits<std::int32_t>::min() ||
          *value > std::numeric_limits<std::int32_t>::max()) {
        throw wrong(node, key, "a whole number of 32 bits");
      }
      out = static_cast<std::int32_t>(*value);
    };
    return *this;
  }
  TableReader& number(const char* key, float& out) {
    readers_[key] = [this, key, &out](const toml::node& node) { out = finite(node, key); };
    return *this;
  }
  template <std::size_t kCount>
  TableReader& numbers(const char* key, std::array<float, kCount>& out) {
    readers_[key] = [this, key, &out](const toml::node& node) {
      const toml::array* array = node.as_array();
      if (array == nullptr || array->size() != kCount) {
        throw wrong(node, key, fmt::format("{} numbers", kCount));
      }
      for (std::size_t i = 0; i < kCount; ++i) {
        out[i] = finite(*array->get(i), key);
      }
    };
    return *this;
  }
  TableReader& text(const char* key, std::string& out) {
    readers_[key] = [this, key, &out](const toml::node& node) { out = string(node, key); };
    return *this;
  }
  template <typename Value>
  TableReader& name(const char* key, Value& out, std::optional<Value> (*parse)(std::string_view)) {
    readers_[key] = [this, key, &out, parse](const toml::node& node) {
      const std::string given = string(node, key);
      const std::optional<Value> value = parse(given);
      if (!value) {
        throw wrong(node, key, "another name than '" + given + "'");
      }
      out = *value;
    };
    return *this;
  }
  TableReader& table(const char* key, TableReader& reader) {
    readers_[key] = [this, key, &reader](const toml::node& node) {
      const toml::table* table = node.as_table();
      if (table == nullptr) {
        throw wrong(node, key, "a table");
      }
      reader.read(*table);
    };
    return *this;
  }

  void read(const toml::table& table) const {
    for (const auto& [key, node] : table) {
      const auto reader = readers_.find(std::string(key.str()));
      if (reader == readers_.end()) {
        throw fail(Errc::kInvalidArgument,
                   "{}:{}: unknown key '{}'",
                   file_,
                   node.source().begin.line,
                   key.str());
      }
      reader->second(node);
    }
  }

 private:
  [[nodiscard]] Error wrong(const toml::node& node,
                            const char* key,
                            const std::string& want) const {
    return fail(
        Errc::kInvalidArgument, "{}:{}: {} must be {}", file_, node.source().begin.line, key, want);
  }
  [[nodiscard]] float finite(const toml::node& node, const char* key) const {
    const auto value = node.value<double>();
    const auto result = static_cast<float>(value.value_or(NAN));
    if (!node.is_number() || !std::isfinite(result)) {
      throw wrong(node, key, "a finite number");
    }
    return result;
  }
  [[nodiscard]] std::string string(const toml::node& node, const char* key) const {
    const auto value = node.value_exact<std::string>();
    if (!value) {
      throw wrong(node, key, "a string");
    }
    return *value;
  }

  const std::string& file_;
  std::map<std::string, Reader> readers_;
};

void put_threshold(std::string& out, const char* key, float value) {
  if (std::isfinite(value)) {
    out += fmt::format("{} = {}\n", key, static_cast<double>(value));
  }
}

}  // namespace

PolicyFile read_policy_file(const std::filesystem::path& path) {
  const std::string name = path.string();
  if (!std::filesystem::is_regular_file(path)) {
    throw fail(Errc::kNotFound, "cannot read {}", name);
  }
  PolicyFile out;
  out.policy.policy = Policy::kRiftAda;
  PolicySpec& p = out.policy;
  AdaSpec& a = p.ada;
  TableReader made(name);
  made.text("draft", out.draft_fingerprint)
      .text("target", out.target_fingerprint)
      .number("temperature", out.temperature)
      .integer("draft_len", out.draft_len);
  TableReader ada(name);
  ada.integer("stride", a.stride)
      .integer("min_age", a.min_age)
      .integer("max_age", a.max_age)
      .number("acceptance_low", a.acceptance_low)
      .number("entropy_high", a.entropy_high)
      .number("acceptance_drop", a.acceptance_drop)
      .number("entropy_rise", a.entropy_rise)
      .number("drift_high", a.drift_high)
      .name("gate", a.gate, parse_ada_gate)
      .numbers("weights", a.weights)
      .number("score_threshold", a.score_threshold);
  TableReader all(name);
  all.name("policy", p.policy, parse_policy)
      .integer("budget", p.budget)
      .integer("block", p.block)
      .number("rho", p.rho)
      .integer("window", p.window)
      .integer("staging_percent", p.staging_percent)
      .name("selector", p.selector, parse_selector)
      .name("allocation", p.allocation, parse_allocation)
      .name("pooling", p.pooling, parse_pooling)
      .integer("pool_width", p.pool_width)
      .table("ada", ada)
      .table("calibrated_for", made);
  try {
    all.read(toml::parse_file(name));
  } catch (const toml::parse_error& error) {
    throw fail(
        Errc::kInvalidArgument, "{}:{}: {}", name, error.source().begin.line, error.description());
  }
  if (p.policy != Policy::kRiftAda) {
    throw fail(Errc::kInvalidArgument,
               "{}: policy is {}: a policy file is for rift-ada",
               name,
               to_string(p.policy));
  }
  return out;
}

std::string to_toml(const PolicyFile& file, const std::string& notes) {
  std::string out;
  std::istringstream lines(notes);
  for (std::string line; std::getline(lines, line);) {
    out += line.empty() ? "#\n" : "# " + line + "\n";
  }
  const PolicySpec& p = file.policy;
  const auto number = [](float value) { return static_cast<double>(value); };
  out += fmt::format(
      "policy = \"{}\"\nbudget = {}\nblock = {}\nrho = {}\nwindow = {}\nstaging_percent = {}\n"
      "selector = \"{}\"\nallocation = \"{}\"\npooling = \"{}\"\npool_width = {}\n",
      to_string(p.policy),
      p.budget,
      p.block,
      number(p.rho),
      p.window,
      p.staging_percent,
      to_string(p.selector),
      to_string(p.allocation),
      to_string(p.pooling),
      p.pool_width);
  const AdaSpec& a = p.ada;
  out += fmt::format("\n[ada]\nstride = {}\nmin_age = {}\nmax_age = {}\ngate = \"{}\"\n",
                     a.stride,
                     a.min_age,
                     a.max_age,
                     to_string(a.gate));
  put_threshold(out, "acceptance_low", a.acceptance_low);
  put_threshold(out, "entropy_high", a.entropy_high);
  put_threshold(out, "acceptance_drop", a.acceptance_drop);
  put_threshold(out, "entropy_rise", a.entropy_rise);
  put_threshold(out, "drift_high", a.drift_high);
  if (a.gate == AdaGate::kScore) {
    out += fmt::format("weights = [{}, {}, {}, {}, {}]\n",
                       number(a.weights[0]),
                       number(a.weights[1]),
                       number(a.weights[2]),
                       number(a.weights[3]),
                       number(a.weights[4]));
    put_threshold(out, "score_threshold", a.score_threshold);
  }
  out += fmt::format(
      "\n[calibrated_for]\ndraft = \"{}\"\ntarget = \"{}\"\ntemperature = {}\ndraft_len = {}\n",
      file.draft_fingerprint,
      file.target_fingerprint,
      number(file.temperature),
      file.draft_len);
  return out;
}

}  // namespace rift
