// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/plot.h"
#include "eval/statistics.h"
#include "eval/types.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rift::eval {

/// A plot of the report, or the line that says what would give it. Value type.
struct Figure {
  std::string title;
  std::string held;  // values of the sweep's other axes, "B = 1024, γ = 11"; may be empty
  std::optional<Plot> plot;
  std::string note;  // where there is no plot
};

/// Every figure of the report, in its order. A plot shows the rows whose other axes have one value:
/// the default of `rift` where it ran, else the largest. summaries[i] belongs to rows[i].
/// Thread: any (pure).
[[nodiscard]] std::vector<Figure> figures(const Evaluation& evaluation,
                                          std::span<const RowSummary> summaries);

/// Rows that figures without an axis of the sweep show: one value of B, P, ρ and γ each, run on a
/// prompt at least. Indices, in reading order, StreamingLLM behind SWA.
[[nodiscard]] std::vector<std::size_t> held_rows(const Evaluation& evaluation,
                                                 std::span<const RowSummary> summaries);

}  // namespace rift::eval
