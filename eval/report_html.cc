// SPDX-License-Identifier: Apache-2.0
#include "eval/axes.h"
#include "eval/figures.h"
#include "eval/html.h"
#include "eval/report.h"
#include "eval/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>

namespace rift::eval {
namespace {

constexpr std::string_view kNone = "–";
constexpr double kGainWorthNaming = 0.02;  // of the AL without far context

std::string interval_text(const Interval& interval, int digits) {
  return fmt::format("{:.{}f}–{:.{}f}", interval.low, digits, interval.high, digits);
}

std::string or_none(const std::optional<double>& value, int digits, double unit = 1.0) {
  return value ? fmt::format("{:.{}f}", *value * unit, digits) : std::string(kNone);
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

// One column of settings; the rows' texts, kNone where the policy does not have it.
struct SettingColumn {
  std::string name;
  std::vector<std::string> texts;

  // The one text of all rows that have it; empty where they differ or none has it.
  [[nodiscard]] std::string common() const {
    std::string found;
    for (const std::string& text : texts) {
      if (text == kNone) {
        continue;
      }
      if (!found.empty() && text != found) {
        return "";
      }
      found = text;
    }
    return found;
  }
  [[nodiscard]] bool nobody() const {
    return std::ranges::all_of(texts, [](const std::string& text) { return text == kNone; });
  }
};

class Page {
 public:
  Page(const Evaluation& evaluation, const BootstrapOptions& options)
      : evaluation_(evaluation), options_(options) {
    for (const Row& row : evaluation.rows) {
      summaries_.push_back(summarise(evaluation, row, options));
    }
    for (std::size_t i = 0; i < evaluation.rows.size(); ++i) {
      order_.push_back(i);
    }
    // Rows to be compared stand together: one temperature, draft length and budget; there the
    // policies in reading order.
    std::ranges::stable_sort(order_, {}, [this](std::size_t i) {
      const Setting& s = evaluation_.rows[i].setting;
      const bool budgeted = has_axis(s.policy.policy, Axis::kBudget);
      return std::tuple(
          s.temperature, s.draft_len, budgeted ? s.policy.budget : -1, rank(s.policy.policy));
    });
  }

  [[nodiscard]] std::string body() const {
    return header() + results() + figure_section() + per_prompt() + prompts() + definitions();
  }

 private:
  [[nodiscard]] std::string header() const {
    std::string out = "<header>\n<h1>RIFT evaluation</h1>\n<dl>\n";
    const auto line = [&out](std::string_view term, const std::string& text) {
      out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", term, escape_html(text));
    };
    const Evaluation& e = evaluation_;
    line("Mode",
         e.mode == "replay" ? "replay of recorded answers of the target"
                            : e.mode + ": the target generates");
    line("Draft", fmt::format("{} ({})", e.draft_file, e.draft_fingerprint));
    if (!e.target_file.empty()) {
      line("Target", fmt::format("{} ({})", e.target_file, e.target_fingerprint));
    }
    std::int64_t prompt_tokens = 0;
    std::int64_t response_tokens = 0;
    for (const std::int32_t tokens : e.prompt_tokens) {
      prompt_tokens += tokens;
    }
    for (const std::int32_t tokens : e.response_tokens) {
      response_tokens += tokens;
    }
    line("Prompts",
         fmt::format("{}, {} tokens; answers of {} tokens in all",
                     e.prompts.size(),
                     prompt_tokens,
                     response_tokens));
    return out + "</dl>\n</header>\n";
  }

  [[nodiscard]] std::vector<SettingColumn> setting_columns() const {
    std::vector<SettingColumn> columns;
    const auto add = [&](std::string_view name, auto text) {
      SettingColumn column{std::string(name), {}};
      for (const std::size_t i : order_) {
        column.texts.push_back(text(evaluation_.rows[i].setting));
      }
      columns.push_back(std::move(column));
    };
    for (const Axis axis :
         {Axis::kBudget, Axis::kBlock, Axis::kRho, Axis::kDelta, Axis::kDraftLen}) {
      add(symbol(axis), [axis](const Setting& s) {
        return has_axis(s.policy.policy, axis) ? number(axis_value(s, axis)) : std::string(kNone);
      });
    }
    add("T", [](const Setting& s) { return number(s.temperature); });
    const auto selecting = [&](std::string_view name, auto text) {
      add(name, [text](const Setting& s) {
        return has_selector(s.policy.policy) ? text(s.policy) : std::string(kNone);
      });
    };
    selecting("selector", [](const PolicySpec& p) { return std::string(to_string(p.selector)); });
    selecting("allocation",
              [](const PolicySpec& p) { return std::string(to_string(p.allocation)); });
    selecting("pooling", [](const PolicySpec& p) { return std::string(to_string(p.pooling)); });
    selecting("window", [](const PolicySpec& p) { return std::to_string(p.window); });
    add("lag set", [](const Setting& s) {
      return has_refreshes(s.policy.policy) ? lag_text(s.policy.refresh_lag) : std::string(kNone);
    });
    return columns;
  }

  [[nodiscard]] std::string results() const {
    HtmlTable table;
    table.caption = "All settings. CI: 95 % bootstrap interval over prompts.";
    table.columns = {"policy"};
    std::vector<SettingColumn> varied;
    std::string same;
    for (SettingColumn& column : setting_columns()) {
      if (column.nobody()) {
        continue;
      }
      if (const std::string common = column.common(); !common.empty()) {
        same += fmt::format("{}{} = {}", same.empty() ? "" : ", ", column.name, common);
      } else {
        table.columns.push_back(column.name);
        varied.push_back(std::move(column));
      }
    }
    for (const char* name : {"AL pooled",
                             "CI",
                             "AL mean",
                             "vs full KV",
                             "CI",
                             "refreshes / 1k",
                             "kB / token",
                             "of which refreshes",
                             "mass",
                             "lag",
                             "latency p50, ms",
                             "p99, ms",
                             "prompts",
                             "steps"}) {
      table.columns.emplace_back(name);
    }
    for (std::size_t at = 0; at < order_.size(); ++at) {
      table.rows.push_back(result_cells(at, varied));
    }
    std::string out = "<section>\n<h2>Results</h2>\n";
    if (!same.empty()) {
      out += fmt::format("<p>Wherever a policy has it: {}.</p>\n", escape_html(same));
    }
    return out + to_html(table) + "</section>\n";
  }

  [[nodiscard]] std::vector<std::string> result_cells(
      std::size_t at, const std::vector<SettingColumn>& varied) const {
    const RowSummary& s = summaries_[order_[at]];
    std::vector<std::string> cells{
        std::string(to_string(evaluation_.rows[order_[at]].setting.policy.policy))};
    for (const SettingColumn& column : varied) {
      cells.push_back(column.texts[at]);
    }
    const auto& r = s.retention;
    for (std::string cell :
         {fmt::format("{:.3f}", s.pooled),
          interval_text(s.interval, 3),
          fmt::format("{:.3f}", s.mean),
          r ? percent(r->share) : std::string(kNone),
          r ? interval_text({100.0 * r->interval.low, 100.0 * r->interval.high}, 1)
            : std::string(kNone),
          fmt::format("{:.1f}", s.refreshes_per_1k),
          fmt::format("{:.1f}", s.bytes_per_token() / 1e3),
          fmt::format("{:.1f}", s.refresh_bytes_per_token / 1e3),
          or_none(s.mass, 3),
          or_none(s.lag, 1),
          or_none(s.refresh_seconds_p50, 1, 1e3),
          or_none(s.refresh_seconds_p99, 1, 1e3),
          std::to_string(s.prompts),
          std::to_string(s.steps)}) {
      cells.push_back(std::move(cell));
    }
    return cells;
  }

  static HtmlTable values_of(const Figure& figure) {
    const Plot& plot = *figure.plot;
    HtmlTable table{figure.title, {"series", plot.x_label, plot.y_label, "95 % CI"}, {}};
    for (const PlotSeries& series : plot.constants) {
      table.rows.push_back({series.label,
                            "any",
                            fmt::format("{:.3f}", series.points.front().y),
                            std::string(kNone)});
    }
    for (const PlotSeries& series : plot.series) {
      for (const PlotPoint& point : series.points) {
        const bool named = !point.name.empty();
        table.rows.push_back(
            {series.label + (named ? ", " + point.name : ""),
             number(point.x),
             fmt::format("{:.3f}", point.y),
             point.interval ? interval_text(*point.interval, 3) : std::string(kNone)});
      }
    }
    return table;
  }

  static std::string drawn(const Figure& figure) {
    return fmt::format(
        "<figure>\n<h3>{}</h3>\n<p class=\"held\">{}</p>\n{}{}"
        "<details><summary>Values</summary>\n{}</details>\n</figure>\n",
        escape_html(figure.title),
        escape_html(figure.held),
        to_svg(*figure.plot),
        legend(*figure.plot),
        to_html(values_of(figure)));
  }

  [[nodiscard]] std::string figure_section() const {
    std::string plots;
    std::string notes;
    for (const Figure& figure : figures(evaluation_, summaries_)) {
      if (figure.plot) {
        plots += drawn(figure);
      } else {
        notes +=
            fmt::format("<li>{}: {}</li>\n", escape_html(figure.title), escape_html(figure.note));
      }
    }
    if (!plots.empty()) {
      plots = "<div class=\"figures\">\n" + plots + "</div>\n";
    }
    if (!notes.empty()) {
      notes = "<h3>Not drawn</h3>\n<ul class=\"notes\">\n" + notes + "</ul>\n";
    }
    return "<section>\n<h2>Figures</h2>\n" + plots + notes + "</section>\n";
  }

  // Best AL among `rows` on a prompt that satisfy `wanted`; 0 for none.
  template <typename Wanted>
  [[nodiscard]] double best(const std::vector<std::size_t>& rows,
                            std::size_t prompt,
                            Wanted wanted) const {
    double out = 0.0;
    for (const std::size_t i : rows) {
      const Row& row = evaluation_.rows[i];
      if (wanted(row.setting.policy.policy)) {
        out = std::max(out, row.runs.at(prompt).accepted_length());
      }
    }
    return out;
  }

  // What keeping far positions gains on a prompt.
  [[nodiscard]] std::string gain(const std::vector<std::size_t>& rows, std::size_t prompt) const {
    const double recent = best(rows, prompt, [](Policy policy) {
      return policy == Policy::kSwa || policy == Policy::kStreamingLlm;
    });
    const double far = best(
        rows, prompt, [](Policy policy) { return has_selector(policy) || policy == Policy::kH2o; });
    if (recent == 0.0 || far == 0.0) {
      return std::string(kNone);
    }
    const double share = far / recent - 1.0;
    return share < kGainWorthNaming ? fmt::format("none ({:+.1f} %)", 100.0 * share)
                                    : fmt::format("{:+.1f} %", 100.0 * share);
  }

  [[nodiscard]] std::string per_prompt() const {
    const auto rows = held_rows(evaluation_, summaries_);
    if (rows.empty()) {
      return "";
    }
    const Labels labels(evaluation_.rows);
    HtmlTable table;
    table.caption =
        "AL of each prompt at the figures' settings. Gain: the best policy that keeps far "
        "positions over the better of SWA and StreamingLLM; below 2 % the prompt needs no far "
        "context.";
    table.columns = {"prompt"};
    for (const std::size_t i : rows) {
      table.columns.push_back(labels.with_delta(evaluation_.rows[i].setting));
    }
    table.columns.emplace_back("gain of far context");
    for (std::size_t p = 0; p < evaluation_.prompts.size(); ++p) {
      std::vector<std::string> cells{evaluation_.prompts[p]};
      for (const std::size_t i : rows) {
        const Measurement& run = evaluation_.rows[i].runs.at(p);
        cells.push_back(run.steps.empty() ? std::string(kNone)
                                          : fmt::format("{:.3f}", run.accepted_length()));
      }
      cells.push_back(gain(rows, p));
      table.rows.push_back(std::move(cells));
    }
    return "<section>\n<h2>Prompt by prompt</h2>\n" + to_html(table) + "</section>\n";
  }

  [[nodiscard]] std::string prompts() const {
    HtmlTable table{
        "The prompt set.", {"prompt", "category", "prompt tokens", "answer tokens"}, {}};
    for (std::size_t i = 0; i < evaluation_.prompts.size(); ++i) {
      table.rows.push_back({evaluation_.prompts[i],
                            evaluation_.categories.at(i),
                            std::to_string(evaluation_.prompt_tokens.at(i)),
                            std::to_string(evaluation_.response_tokens.at(i))});
    }
    return "<section>\n<h2>Prompts</h2>\n<details><summary>List</summary>\n" + to_html(table) +
           "</details>\n</section>\n";
  }

  [[nodiscard]] std::string definitions() const {
    return fmt::format(
        "<section>\n<h2>How to read this</h2>\n"
        "<p>Accepted length (AL): tokens that a verification step commits, the target's own "
        "included. Pooled: tokens over steps of all prompts. Mean: the mean of the prompts' ALs. "
        "CI: percentile bootstrap over prompts, {} resamples, seed {}; with few prompts it says "
        "little.</p>\n"
        "<p>vs full KV: pooled AL as a share of the full-KV row's with the same γ and T on the "
        "same prompts, the interval paired. kB / token: first working set and refreshes, streamed "
        "to the draft, over tokens committed (1 kB = 1,000 bytes). Mass: share of the draft's full "
        "attention that falls on what is kept, mean over layers and heads. Lag: tokens committed "
        "between a refresh's request and its swap, mean. Latency: the same in time.</p>\n"
        "</section>",
        options_.resamples,
        options_.seed);
  }

  const Evaluation& evaluation_;
  BootstrapOptions options_;
  std::vector<RowSummary> summaries_;
  std::vector<std::size_t> order_;  // of the rows in tables
};

}  // namespace

std::string to_html(const Evaluation& evaluation, const BootstrapOptions& options) {
  constexpr std::string_view kPlace = "{{body}}";
  std::string page = kReportPage;
  page.replace(page.find(kPlace), kPlace.size(), Page(evaluation, options).body());
  return page;
}

}  // namespace rift::eval
