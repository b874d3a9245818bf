// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/models/model_summary.h"
#include "common/policy_spec.h"

#include <boost/json/fwd.hpp>

#include <cstdint>
#include <string>

namespace rift::cli {

/// What a session with `spec` takes on the draft node.
struct BudgetCost {
  WorkingSetLayout layout;
  std::int32_t recent = 0;
  std::int32_t unused = 0;
};

/// Errors (thrown): kInvalidArgument (budget, block).
[[nodiscard]] BudgetCost budget_cost(const KvGeometry& geometry,
                                     const PolicySpec& spec,
                                     std::int32_t max_draft_len);

/// The page of `rift models inspect`. Text of the file is escaped and cut to a line.
[[nodiscard]] std::string inspect_text(const ModelSummary& summary,
                                       const PolicySpec& spec,
                                       std::int32_t max_draft_len);
[[nodiscard]] boost::json::value inspect_json(const ModelSummary& summary,
                                              const PolicySpec& spec,
                                              std::int32_t max_draft_len);

}  // namespace rift::cli
