// SPDX-License-Identifier: Apache-2.0
#include "eval/figures.h"

#include "eval/axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace rift::eval {
namespace {

constexpr std::int32_t kMostBuckets = 16;
constexpr std::int32_t kShortestOutput = 64;  // of "AL vs output length", doubled from there
constexpr std::array kHeldAxes{Axis::kBudget, Axis::kBlock, Axis::kRho, Axis::kDraftLen};

using RowIndices = std::vector<std::size_t>;

// The value at which the other axes' plots stand.
double held_value(std::span<const Row> rows, Axis axis) {
  const auto values = axis_values(rows, axis);
  const double standard = axis_value(Setting{}, axis);
  return values.empty() || std::ranges::find(values, standard) != values.end() ? standard
                                                                               : values.back();
}

class Figures {
 public:
  Figures(const Evaluation& evaluation, std::span<const RowSummary> summaries)
      : evaluation_(evaluation), summaries_(summaries), labels_(evaluation.rows) {
    for (const Row& row : evaluation.rows) {
      for (const Measurement& run : row.runs) {
        if (!run.steps.empty()) {
          last_ = std::max(last_, run.steps.back().position + run.steps.back().length - 1);
        }
      }
    }
    name_variants();
  }

  [[nodiscard]] std::vector<Figure> all() const {
    return {
        over_axis("AL vs draft budget (paper, Fig. 1b)",
                  Axis::kBudget,
                  "budget B, positions",
                  "--budget 256,512,1024"),
        over_position(),
        mass(),
        over_axis("AL vs recent share ρ (paper, Fig. 3)", Axis::kRho, "ρ", "--rho 0.25,0.5,0.75"),
        over_axis("AL vs block size (paper, Fig. 15)",
                  Axis::kBlock,
                  "block P, positions",
                  "--block 1,16,128"),
        over_axis("AL vs draft length (paper, Fig. 13)",
                  Axis::kDraftLen,
                  "draft length γ",
                  "--draft-len 5,11,17"),
        over_output(),
        over_refreshes(),
        over_bytes(),
        over_latency(),
        acceptance()};
  }

  // Rows with the held value on every axis but `free`.
  [[nodiscard]] RowIndices rows(std::optional<Axis> free) const {
    RowIndices out;
    for (std::size_t i = 0; i < evaluation_.rows.size(); ++i) {
      const Setting& setting = evaluation_.rows[i].setting;
      const bool shown = std::ranges::all_of(kHeldAxes, [&](Axis axis) {
        return axis == free || !has_axis(setting.policy.policy, axis) ||
               axis_value(setting, axis) == held_value(evaluation_.rows, axis);
      });
      if (shown && summaries_[i].steps > 0) {
        out.push_back(i);
      }
    }
    std::ranges::stable_sort(out, {}, [this](std::size_t i) { return rank(policy(i)); });
    return out;
  }

 private:
  using Label = std::string (Labels::*)(const Setting&) const;

  [[nodiscard]] Policy policy(std::size_t row) const {
    return evaluation_.rows[row].setting.policy.policy;
  }

  void name_variants() {
    std::map<Policy, std::int32_t> next;
    for (const Label label : {&Labels::with_delta, &Labels::without_delta}) {
      next.clear();
      for (const Row& row : evaluation_.rows) {
        const auto [at, added] = variants_.try_emplace((labels_.*label)(row.setting), 0);
        if (added) {
          at->second = next[row.setting.policy.policy]++;
        }
      }
    }
  }

  [[nodiscard]] std::string held_text(std::optional<Axis> free) const {
    std::string out;
    for (const Axis axis : kHeldAxes) {
      if (axis != free && !axis_values(evaluation_.rows, axis).empty()) {
        out += fmt::format("{}{} = {}",
                           out.empty() ? "" : ", ",
                           symbol(axis),
                           number(held_value(evaluation_.rows, axis)));
      }
    }
    return out;
  }

  [[nodiscard]] PlotSeries empty_series(std::size_t row, Label label) const {
    PlotSeries series;
    series.label = (labels_.*label)(evaluation_.rows[row].setting);
    series.color = rank(policy(row));
    series.variant = variants_.at(series.label);
    return series;
  }

  [[nodiscard]] PlotPoint point(std::size_t row, double x) const {
    return {x, summaries_[row].pooled, summaries_[row].interval, ""};
  }

  // The series of `plot` with the row's label, made where it is new.
  PlotSeries& series_of(std::vector<PlotSeries>& list, std::size_t row, Label label) const {
    PlotSeries series = empty_series(row, label);
    const auto found = std::ranges::find(list, series.label, &PlotSeries::label);
    return found != list.end() ? *found : list.emplace_back(std::move(series));
  }

  static void sort_points(Plot& plot) {
    for (PlotSeries& series : plot.series) {
      std::ranges::stable_sort(series.points, {}, &PlotPoint::x);
    }
  }

  // Drawn where its points have two values of x at least; else `note` stands there.
  static Figure finish(Figure figure, Plot plot, std::string note) {
    std::set<double> x;
    for (const PlotSeries& series : plot.series) {
      for (const PlotPoint& point : series.points) {
        x.insert(point.x);
      }
    }
    if (x.size() < 2) {
      figure.note = std::move(note);
      figure.held.clear();
      return figure;
    }
    plot.title = figure.title;
    sort_points(plot);
    figure.plot = std::move(plot);
    return figure;
  }

  [[nodiscard]] Figure over_axis(std::string title,
                                 Axis axis,
                                 std::string x_label,
                                 std::string_view option) const {
    Plot plot;
    plot.x_label = std::move(x_label);
    plot.y_label = "AL, pooled";
    plot.ticks_at_values = true;
    plot.allow_log = axis == Axis::kBudget || axis == Axis::kBlock;
    for (const std::size_t row : rows(axis)) {
      if (has_axis(policy(row), axis)) {
        series_of(plot.series, row, &Labels::with_delta)
            .points.push_back(point(row, axis_value(evaluation_.rows[row].setting, axis)));
      } else {
        PlotSeries& series = series_of(plot.constants, row, &Labels::with_delta);
        series.points = {point(row, 0.0)};
        series.points.front().interval.reset();
      }
    }
    return finish({std::move(title), held_text(axis), {}, ""},
                  std::move(plot),
                  fmt::format("needs two values of {}, {}", symbol(axis), option));
  }

  // One series a row over the buckets that `values` gives.
  template <typename Values>
  [[nodiscard]] Plot over_buckets(Values values, bool at_end) const {
    Plot plot;
    for (const std::size_t row : rows(std::nullopt)) {
      PlotSeries& series = series_of(plot.series, row, &Labels::with_delta);
      for (const Bucket& bucket : values(evaluation_.rows[row].runs)) {
        const double middle = (static_cast<double>(bucket.begin) + bucket.end) / 2.0;
        series.points.push_back({at_end ? static_cast<double>(bucket.end) : middle,
                                 bucket.value,
                                 std::nullopt,
                                 fmt::format("tokens {} to {}", bucket.begin, bucket.end - 1)});
      }
    }
    std::erase_if(plot.series, [](const PlotSeries& series) { return series.points.empty(); });
    return plot;
  }

  [[nodiscard]] Figure over_position() const {
    const std::int32_t width = bucket_width(last_, kMostBuckets);
    Plot plot = over_buckets(
        [width](std::span<const Measurement> runs) {
          return accepted_length_by_position(runs, width);
        },
        false);
    plot.x_label = "position in the answer, tokens";
    plot.y_label = "AL";
    return finish({"AL vs output position (paper, Fig. 1a)", held_text({}), {}, ""},
                  std::move(plot),
                  "needs answers of more than 32 tokens: -n 512 or a longer replay");
  }

  [[nodiscard]] Figure mass() const {
    const std::int32_t width = bucket_width(last_, kMostBuckets);
    Plot plot = over_buckets(
        [width](std::span<const Measurement> runs) { return mass_by_position(runs, width); },
        false);
    plot.x_label = "position in the answer, tokens";
    plot.y_label = "mass retained";
    return finish(
        {"Retained attention mass vs output position (paper, Fig. 2)", held_text({}), {}, ""},
        std::move(plot),
        "needs retained mass at two positions, which replays measure: --replay");
  }

  [[nodiscard]] Figure over_output() const {
    std::vector<std::int32_t> ends;
    for (std::int32_t end = kShortestOutput; end <= last_ && end < (1 << 24); end *= 2) {
      ends.push_back(end);
    }
    ends.push_back(last_ + 1);
    Plot plot = over_buckets(
        [&ends](std::span<const Measurement> runs) {
          return accepted_length_by_output(runs, ends);
        },
        true);
    plot.x_label = "output length, tokens";
    plot.allow_log = true;
    plot.ticks_at_values = true;
    plot.y_label = "AL, pooled";
    return finish({"AL vs output length (paper, Fig. 14)", held_text({}), {}, ""},
                  std::move(plot),
                  "needs answers of more than 64 tokens: -n 512 or a longer replay");
  }

  using X = std::function<double(const RowSummary&)>;

  // Rows as marks; the table names what differs within a series.
  [[nodiscard]] Plot scatter(const RowIndices& shown, const X& x, std::string x_label) const {
    Plot plot;
    plot.x_label = std::move(x_label);
    plot.y_label = "AL, pooled";
    plot.lines = false;
    for (const std::size_t row : shown) {
      PlotPoint p = point(row, x(summaries_[row]));
      p.interval.reset();
      p.name = point_name(evaluation_.rows[row].setting);
      series_of(plot.series, row, &Labels::without_delta).points.push_back(std::move(p));
    }
    return plot;
  }

  [[nodiscard]] std::string point_name(const Setting& setting) const {
    std::string out;
    for (const Axis axis :
         {Axis::kBudget, Axis::kBlock, Axis::kRho, Axis::kDelta, Axis::kDraftLen}) {
      const bool differs = axis_values(evaluation_.rows, axis).size() > 1;
      if (differs && has_axis(setting.policy.policy, axis)) {
        out += fmt::format(
            "{}{}={}", out.empty() ? "" : " ", symbol(axis), number(axis_value(setting, axis)));
      }
    }
    return out;
  }

  [[nodiscard]] Figure over_refreshes() const {
    Plot plot = scatter(
        rows(std::nullopt),
        [](const RowSummary& s) { return s.refreshes_per_1k; },
        "refreshes per 1,000 tokens");
    plot.lines = true;
    return finish({"AL vs refreshes (paper, Fig. 6)", held_text({}), {}, ""},
                  std::move(plot),
                  "needs a policy that refreshes: --policy rift-dyn --delta 16,32,128");
  }

  [[nodiscard]] RowIndices every_row(bool with_latency) const {
    RowIndices out;
    for (std::size_t i = 0; i < evaluation_.rows.size(); ++i) {
      if (summaries_[i].steps > 0 && (!with_latency || summaries_[i].refresh_seconds_p50)) {
        out.push_back(i);
      }
    }
    std::ranges::stable_sort(out, {}, [this](std::size_t i) { return rank(policy(i)); });
    return out;
  }

  [[nodiscard]] Figure over_bytes() const {
    Plot plot = scatter(
        every_row(false),
        [](const RowSummary& s) { return s.bytes_per_token() / 1000.0; },
        "kB moved per token");
    plot.allow_log = true;
    return finish({"AL vs bytes moved per token", "every row", {}, ""},
                  std::move(plot),
                  "needs two settings that move different amounts: --budget 256,512 or --policy "
                  "rift-stat,rift-dyn");
  }

  [[nodiscard]] Figure over_latency() const {
    Plot plot = scatter(
        every_row(true),
        [](const RowSummary& s) { return s.refresh_seconds_p50.value() * 1000.0; },
        "refresh latency, p50, ms");
    plot.allow_log = true;
    return finish({"AL vs refresh latency", "every row that refreshed", {}, ""},
                  std::move(plot),
                  "needs two settings that refresh: --policy rift-dyn --delta 16,32,128");
  }

  [[nodiscard]] Figure acceptance() const {
    Plot plot;
    plot.x_label = "position in the draft";
    plot.y_label = "acceptance";
    plot.y_range = Interval{0.0, 1.0};
    for (const std::size_t row : rows(std::nullopt)) {
      PlotSeries& series = series_of(plot.series, row, &Labels::with_delta);
      const auto& positions = summaries_[row].acceptance;
      for (std::size_t i = 0; i < positions.size(); ++i) {
        if (positions[i].drafted > 0) {
          series.points.push_back(
              {static_cast<double>(i + 1), positions[i].rate(), std::nullopt, ""});
        }
      }
    }
    std::erase_if(plot.series, [](const PlotSeries& series) { return series.points.empty(); });
    return finish({"Acceptance by draft position", held_text({}), {}, ""},
                  std::move(plot),
                  "needs drafts of two tokens: --draft-len 11");
  }

  const Evaluation& evaluation_;
  std::span<const RowSummary> summaries_;
  Labels labels_;
  std::map<std::string, std::int32_t> variants_;  // by label
  std::int32_t last_ = 0;                         // last position of all answers
};

}  // namespace

std::vector<Figure> figures(const Evaluation& evaluation, std::span<const RowSummary> summaries) {
  return Figures(evaluation, summaries).all();
}

std::vector<std::size_t> held_rows(const Evaluation& evaluation,
                                   std::span<const RowSummary> summaries) {
  return Figures(evaluation, summaries).rows(std::nullopt);
}

}  // namespace rift::eval
