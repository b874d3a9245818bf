// SPDX-License-Identifier: Apache-2.0
#include "cli/policy_options.h"

#include "common/error.h"
#include "common/policy_file.h"

#include <CLI/CLI.hpp>

namespace rift::cli {
namespace {

template <typename Value>
std::vector<std::string> names_up_to(Value last) {
  std::vector<std::string> out;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    out.emplace_back(to_string(static_cast<Value>(i)));
  }
  return out;
}

template <typename Value>
void add_named(CLI::App& command,
               const char* name,
               Value& value,
               const std::vector<std::string>& names,
               std::optional<Value> (*parse)(std::string_view),
               const char* help) {
  command
      .add_option_function<std::string>(
          name, [&value, parse](const std::string& text) { value = *parse(text); }, help)
      ->check(CLI::IsMember(names))
      ->default_str(std::string(to_string(value)));
}

}  // namespace

const std::vector<std::string>& policy_names() {
  static const std::vector<std::string> kBuilt = [] {
    std::vector<std::string> names = names_up_to(Policy::kRiftAda);
    std::erase(names, to_string(Policy::kH2o));  // no session can be opened with it yet
    return names;
  }();
  return kBuilt;
}

const std::vector<std::string>& selector_names() {
  static const std::vector<std::string> kAll = names_up_to(Selector::kH2o);
  return kAll;
}

const std::vector<std::string>& allocation_names() {
  static const std::vector<std::string> kAll = names_up_to(Allocation::kPyramidKv);
  return kAll;
}

const std::vector<std::string>& pooling_names() {
  static const std::vector<std::string> kAll = names_up_to(Pooling::kMax);
  return kAll;
}

void add_selector_options(CLI::App& command, PolicySpec& spec) {
  add_named(command,
            "--selector",
            spec.selector,
            selector_names(),
            parse_selector,
            "what scores positions");
  add_named(command,
            "--allocation",
            spec.allocation,
            allocation_names(),
            parse_allocation,
            "division of the budget among heads and layers");
  add_named(command,
            "--pooling",
            spec.pooling,
            pooling_names(),
            parse_pooling,
            "of SnapKV scores along the positions");
  command.add_option("--pool-width", spec.pool_width, "positions pooled, odd")
      ->check(CLI::Range(1, 4095))
      ->capture_default_str();
}

void load_ada(const std::string& file, const std::string& draft_fingerprint, AdaSpec& ada) {
  if (file.empty()) {
    throw fail(Errc::kInvalidArgument,
               "rift-ada needs its thresholds: give --policy-file FILE.toml (rift calibrate makes "
               "one)");
  }
  const PolicyFile read = read_policy_file(file);
  if (!read.draft_fingerprint.empty() && read.draft_fingerprint != draft_fingerprint) {
    throw fail(Errc::kMismatch,
               "{} was calibrated for the draft model {}, this one is {}: calibrate again",
               file,
               read.draft_fingerprint,
               draft_fingerprint);
  }
  ada = read.policy.ada;
}

}  // namespace rift::cli
