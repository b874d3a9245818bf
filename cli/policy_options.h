// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace rift::cli {

/// Names that options take, for CLI::IsMember.
[[nodiscard]] const std::vector<std::string>& policy_names();
[[nodiscard]] const std::vector<std::string>& selector_names();
[[nodiscard]] const std::vector<std::string>& allocation_names();
[[nodiscard]] const std::vector<std::string>& pooling_names();

/// What scores and how the budget is divided, for one policy.
void add_selector_options(CLI::App& command, PolicySpec& spec);

/// Thresholds of RIFT-ada from a policy file into `spec`; nothing else is taken from it.
/// `draft_fingerprint`: of the model in use. Errors (thrown): as read_policy_file; kMismatch where
/// the file was made for another draft model; kInvalidArgument where rift-ada has no file.
void load_ada(const std::string& file, const std::string& draft_fingerprint, AdaSpec& ada);

}  // namespace rift::cli
