// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/statistics.h"
#include "eval/types.h"

#include <boost/json/object.hpp>

#include <string>

namespace rift::eval {

// An evaluation in the forms that `rift eval` writes. The keys are described in eval/README.md.
// Thread: any (pure). Cost: a bootstrap per row.

/// CLI.md, `rift eval --json`: {"settings": {…}, "rows": […]}, rows in the order of the sweep.
/// Options that a policy does not have, and what was not measured, are null.
[[nodiscard]] boost::json::object to_json(const Evaluation& evaluation,
                                          const BootstrapOptions& options = {});

/// The same rows as RFC 4180 CSV with a header line: null is an empty field, an interval two
/// columns, a list one field with its numbers separated by spaces; `per_prompt` is left out.
[[nodiscard]] std::string to_csv(const Evaluation& evaluation,
                                 const BootstrapOptions& options = {});

/// One HTML page with tables and plots that needs no other file, network or script.
[[nodiscard]] std::string to_html(const Evaluation& evaluation,
                                  const BootstrapOptions& options = {});

}  // namespace rift::eval
