// SPDX-License-Identifier: Apache-2.0
#include "eval/plot.h"

#include "common/check.h"
#include "eval/axes.h"
#include "eval/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace rift::eval {
namespace {

constexpr double kWidth = 360.0;
constexpr double kHeight = 250.0;
constexpr double kLeft = 44.0;
constexpr double kRight = 12.0;
constexpr double kTop = 10.0;
constexpr double kBottom = 40.0;
constexpr double kLogSpan = 8.0;
constexpr std::size_t kMostValueTicks = 7;
constexpr std::array<std::string_view, 4> kDashes{"none", "6 3", "2 3", "9 3 2 3"};

// Data to drawing.
struct Scale {
  double low = 0.0, high = 1.0;  // data
  double from = 0.0, to = 1.0;   // drawing
  bool logarithmic = false;

  [[nodiscard]] double operator()(double value) const {
    const auto f = [this](double v) { return logarithmic ? std::log(v) : v; };
    const double span = f(high) - f(low);
    return span == 0.0 ? (from + to) / 2.0 : from + (f(value) - f(low)) / span * (to - from);
  }
};

struct Bounds {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

std::vector<double> x_values(const Plot& plot) {
  std::vector<double> out;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      out.push_back(point.x);
    }
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Bounds y_bounds(const Plot& plot) {
  Bounds bounds;
  for (const auto* list : {&plot.series, &plot.constants}) {
    for (const PlotSeries& series : *list) {
      for (const PlotPoint& point : series.points) {
        bounds.add(point.y);
        if (point.interval) {
          bounds.add(point.interval->low);
          bounds.add(point.interval->high);
        }
      }
    }
  }
  return bounds;
}

struct YAxis {
  Scale scale;
  std::vector<double> ticks;
};

// Begins and ends at a tick.
YAxis y_axis(const Plot& plot) {
  Bounds b = y_bounds(plot);
  if (plot.y_range) {
    b = {plot.y_range->low, plot.y_range->high};
  }
  const auto inner = ticks(b.low, b.high, 5);
  const double step = inner.size() > 1 ? inner[1] - inner[0] : 1.0;
  const double first = std::floor(b.low / step + 1e-9);
  const double last = std::ceil(b.high / step - 1e-9);
  YAxis axis{{first * step, last * step, kHeight - kBottom, kTop}, {}};
  for (double i = first; i <= last; i += 1.0) {
    axis.ticks.push_back(i * step);
  }
  return axis;
}

Scale x_scale(const std::vector<double>& values, bool allow_log) {
  const double low = values.front();
  const double high = values.back();
  const bool logarithmic = allow_log && low > 0.0 && high / low >= kLogSpan;
  return {low, high, kLeft + 8.0, kWidth - kRight - 8.0, logarithmic};
}

std::vector<double> logarithmic_ticks(double low, double high) {
  std::vector<double> out;
  for (double decade = std::pow(10.0, std::floor(std::log10(low))); decade <= high;
       decade *= 10.0) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (decade * factor >= low && decade * factor <= high) {
        out.push_back(decade * factor);
      }
    }
  }
  while (out.size() > kMostValueTicks) {
    std::vector<double> half;
    for (std::size_t i = 0; i < out.size(); i += 2) {
      half.push_back(out[i]);
    }
    out = half;
  }
  return out;
}

std::string short_number(double value) {
  if (std::abs(value) >= 1e6) {
    return number(value / 1e6) + "M";
  }
  return std::abs(value) >= 1e4 ? number(value / 1e3) + "k" : number(value);
}

// `inner`: elements within the mark.
std::string mark(double x, double y, const PlotSeries& series, std::string_view inner) {
  const std::string style = fmt::format(
      "class=\"mark c{}{}\"", series.color, series.variant / 4 % 2 == 1 ? " hollow" : "");
  switch (series.variant % 4) {
    case 1:
      return fmt::format("<rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\">{}</rect>",
                         style,
                         x - 3.5,
                         y - 3.5,
                         inner);
    case 2:
      return fmt::format(
          "<path {} d=\"M{:.1f} {:.1f}l4.4 8h-8.8z\">{}</path>", style, x, y - 4.8, inner);
    case 3:
      return fmt::format("<path {} d=\"M{:.1f} {:.1f}l4.8 4.8-4.8 4.8-4.8-4.8z\">{}</path>",
                         style,
                         x,
                         y - 4.8,
                         inner);
    default:
      return fmt::format(
          "<circle {} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.6\">{}</circle>", style, x, y, inner);
  }
}

std::string line_class(const PlotSeries& series) {
  return fmt::format("class=\"line c{}\" stroke-dasharray=\"{}\"",
                     series.color,
                     kDashes[static_cast<std::size_t>(series.variant) % kDashes.size()]);
}

std::string hover(const PlotSeries& series, const PlotPoint& point, const Plot& plot) {
  std::string text = fmt::format("{}{}{}: {} = {}, {} = {}",
                                 series.label,
                                 point.name.empty() ? "" : ", ",
                                 point.name,
                                 plot.x_label,
                                 number(point.x),
                                 plot.y_label,
                                 number(point.y));
  if (point.interval) {
    text += fmt::format(
        " (95 % CI {} to {})", number(point.interval->low), number(point.interval->high));
  }
  return escape_html(text);
}

void draw_axes(std::string& out,
               const Plot& plot,
               const std::vector<double>& values,
               const Scale& x,
               const YAxis& vertical) {
  const Scale& y = vertical.scale;
  for (const double tick : vertical.ticks) {
    out += fmt::format(
        "<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1f}\" "
        "text-anchor=\"end\">{}</text>\n",
        kLeft,
        y(tick),
        kWidth - kRight,
        kLeft - 5.0,
        y(tick) + 3.5,
        short_number(tick));
  }
  std::vector<double> shown = values;
  if (!plot.ticks_at_values || values.size() > kMostValueTicks) {
    shown = x.logarithmic ? logarithmic_ticks(x.low, x.high) : ticks(x.low, x.high, 5);
  }
  for (const double tick : shown) {
    out += fmt::format(
        "<path class=\"axis\" d=\"M{0:.1f} {1}v4\"/><text class=\"tick\" x=\"{0:.1f}\" y=\"{2}\" "
        "text-anchor=\"middle\">{3}</text>\n",
        x(tick),
        kHeight - kBottom,
        kHeight - kBottom + 15.0,
        short_number(tick));
  }
  out += fmt::format("<path class=\"axis\" d=\"M{} {}V{}H{}\"/>\n",
                     kLeft,
                     kTop,
                     kHeight - kBottom,
                     kWidth - kRight);
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}{}</text>\n",
                     (kLeft + kWidth - kRight) / 2.0,
                     kHeight - 7.0,
                     escape_html(plot.x_label),
                     x.logarithmic ? " (log)" : "");
  out += fmt::format(
      "<text transform=\"translate(11 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      (kTop + kHeight - kBottom) / 2.0,
      escape_html(plot.y_label));
}

void draw_series(
    std::string& out, const Plot& plot, const PlotSeries& series, const Scale& x, const Scale& y) {
  if (plot.lines && series.points.size() > 1) {
    std::string path;
    for (const PlotPoint& point : series.points) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(point.x), y(point.y));
    }
    out += fmt::format("<path {} d=\"{}\"/>\n", line_class(series), path);
  }
  for (const PlotPoint& point : series.points) {
    if (point.interval) {
      out += fmt::format("<path class=\"error c{}\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>\n",
                         series.color,
                         x(point.x),
                         y(point.interval->low),
                         y(point.interval->high));
    }
    const std::string title = "<title>" + hover(series, point, plot) + "</title>";
    out += mark(x(point.x), y(point.y), series, title) + '\n';
  }
}

}  // namespace

std::vector<double> ticks(double low, double high, std::int32_t count) {
  const double span = high - low;
  if (!(span > 0.0) || !std::isfinite(span)) {
    return {low};
  }
  const double raw = span / count;
  const double magnitude = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10.0 * magnitude;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * magnitude >= raw * (1.0 - 1e-9)) {
      step = factor * magnitude;
    }
  }
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1.0) {
    out.push_back(i * step + 0.0);  // never -0
  }
  return out;
}

std::string to_svg(const Plot& plot) {
  const auto values = x_values(plot);
  RIFT_CHECK(!values.empty(), "plot '{}' has no points", plot.title);
  const Scale x = x_scale(values, plot.allow_log);
  const YAxis vertical = y_axis(plot);
  const Scale& y = vertical.scale;
  std::string out = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}; the values are in the table "
      "below\">\n",
      kWidth,
      kHeight,
      escape_html(plot.title));
  draw_axes(out, plot, values, x, vertical);
  for (const PlotSeries& series : plot.constants) {
    out += fmt::format("<path {} d=\"M{} {:.1f}H{}\"><title>{}: {} = {}</title></path>\n",
                       line_class(series),
                       kLeft,
                       y(series.points.front().y),
                       kWidth - kRight,
                       escape_html(series.label),
                       escape_html(plot.y_label),
                       number(series.points.front().y));
  }
  for (const PlotSeries& series : plot.series) {
    draw_series(out, plot, series, x, y);
  }
  return out + "</svg>\n";
}

std::string legend(const Plot& plot) {
  std::string out = "<ul class=\"legend\">";
  const auto add = [&out](const PlotSeries& series, bool line, bool marked) {
    out += "<li><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\">";
    if (line) {
      out += fmt::format("<path {} d=\"M0 6H26\"/>", line_class(series));
    }
    if (marked) {
      out += mark(13.0, 6.0, series, "");
    }
    out += fmt::format("</svg>{}</li>\n", escape_html(series.label));
  };
  for (const PlotSeries& series : plot.constants) {
    add(series, true, false);
  }
  for (const PlotSeries& series : plot.series) {
    add(series, plot.lines, true);
  }
  return out + "</ul>\n";
}

}  // namespace rift::eval
