// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/statistics.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rift::eval {

/// One mark of a plot. Value type.
struct PlotPoint {
  double x = 0.0;
  double y = 0.0;
  std::optional<Interval> interval;  // of y
  std::string name;                  // told on hover and in the plot's table; may be empty
};

struct PlotSeries {
  std::string label;
  std::int32_t color = 0;    // 0 to 7: class c0 to c7 of the page's style
  std::int32_t variant = 0;  // dash pattern and mark among series of one colour
  std::vector<PlotPoint> points;
};

/// A line or scatter plot. Value type.
struct Plot {
  std::string title;  // for screen readers
  std::string x_label, y_label;
  std::vector<PlotSeries> series;
  /// Series that do not depend on x: their one point is drawn as a line across.
  std::vector<PlotSeries> constants;
  bool lines = true;                // joins the points of a series
  bool allow_log = false;           // x is logarithmic where all are above 0 and span a factor of 8
  bool ticks_at_values = false;     // the axis shows the x values themselves
  std::optional<Interval> y_range;  // empty: from the data
};

/// Nice numbers about `count` apart that lie in low..high, ascending; one number where they are
/// equal.
[[nodiscard]] std::vector<double> ticks(double low, double high, std::int32_t count);

/// Inline SVG of 360 x 250 units that fills its box; colours come from the page.
/// Precondition: at least one point. Thread: any (pure).
[[nodiscard]] std::string to_svg(const Plot& plot);
/// List of the series with their marks, HTML.
[[nodiscard]] std::string legend(const Plot& plot);

}  // namespace rift::eval
