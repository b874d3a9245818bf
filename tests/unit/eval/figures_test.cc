// SPDX-License-Identifier: Apache-2.0
#include "eval/figures.h"

#include "eval/html.h"
#include "tests/unit/eval/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace rift::eval {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Figure figure(const Evaluation& e, std::string_view title) {
  std::vector<RowSummary> summaries;
  for (const Row& row : e.rows) {
    summaries.push_back(summarise(e, row, {.resamples = 10}));
  }
  const auto all = figures(e, summaries);
  const auto found = std::ranges::find_if(
      all, [&](const Figure& f) { return f.title.find(title) != std::string::npos; });
  if (found == all.end()) {
    ADD_FAILURE() << "no figure " << title;
    return {};
  }
  return *found;
}

std::vector<std::string> labels(const std::vector<PlotSeries>& series) {
  std::vector<std::string> out;
  for (const PlotSeries& s : series) {
    out.push_back(s.label);
  }
  return out;
}

std::vector<std::pair<double, double>> points(const PlotSeries& series) {
  std::vector<std::pair<double, double>> out;
  for (const PlotPoint& p : series.points) {
    out.emplace_back(p.x, p.y);
  }
  return out;
}

using P = std::pair<double, double>;

TEST(Figures, DrawAlOverTheBudgetWithFullKvAsALineAcross) {
  Evaluation e = evaluation_of(1);
  e.rows.push_back({setting_of(Policy::kRiftStat, 512), {run_of(10, 4)}});
  e.rows.push_back({setting_of(Policy::kRiftStat, 256), {run_of(10, 3)}});
  e.rows.push_back({setting_of(Policy::kStreamingLlm, 256), {run_of(10, 2)}});
  e.rows.push_back({setting_of(Policy::kSwa, 256), {run_of(10, 1)}});
  e.rows.push_back({setting_of(Policy::kFull), {run_of(10, 5)}});
  const Figure f = figure(e, "draft budget");
  ASSERT_TRUE(f.plot);
  EXPECT_EQ(f.held, "P = 16, ρ = 0.5, γ = 11");
  EXPECT_THAT(labels(f.plot->constants), ElementsAre("full"));
  EXPECT_THAT(labels(f.plot->series), ElementsAre("swa", "streaming-llm", "rift-stat"));
  EXPECT_THAT(points(f.plot->series[2]), ElementsAre(P{256, 3}, P{512, 4}));
}

TEST(Figures, SayWhichOptionWouldDrawThem) {
  Evaluation e = evaluation_of(1);
  e.rows.push_back({setting_of(Policy::kRiftStat), {run_of(2, 4)}});
  for (const auto& [title, option] : {std::pair{"draft budget", "--budget"},
                                      {"recent share", "--rho"},
                                      {"block size", "--block"},
                                      {"draft length", "--draft-len"},
                                      {"output position", "-n 512"},
                                      {"output length", "-n 512"},
                                      {"attention mass", "--replay"},
                                      {"refreshes", "--delta"},
                                      {"refresh latency", "--delta"},
                                      {"bytes moved", "--budget"},
                                      {"Acceptance", "--draft-len"}}) {
    const Figure f = figure(e, title);
    EXPECT_FALSE(f.plot) << title;
    EXPECT_THAT(f.note, HasSubstr(option));
  }
}

TEST(Figures, HoldTheOtherAxesAtTheDefaultOrElseTheLargestValue) {
  Evaluation e = evaluation_of(1);
  for (const std::int32_t budget : {512, 256}) {
    for (const std::int32_t block : {8, 16, 128}) {
      Setting s = setting_of(Policy::kRiftStat, budget);
      s.policy.block = block;
      e.rows.push_back({s, {run_of(10, budget / 256)}});
    }
  }
  const Figure f = figure(e, "block size");
  ASSERT_TRUE(f.plot);
  EXPECT_EQ(f.held, "B = 512, ρ = 0.5, γ = 11");
  EXPECT_THAT(points(f.plot->series.at(0)), ElementsAre(P{8, 2}, P{16, 2}, P{128, 2}));
  const Figure budget = figure(e, "draft budget");
  EXPECT_EQ(budget.held, "P = 16, ρ = 0.5, γ = 11");
  EXPECT_THAT(points(budget.plot->series.at(0)), ElementsAre(P{256, 1}, P{512, 2}));
}

TEST(Figures, JoinTheRefreshIntervalsOfAPolicy) {
  Evaluation e = evaluation_of(1);
  for (const std::int32_t delta : {32, 16}) {
    Setting s = setting_of(Policy::kRiftDyn);
    s.policy.delta = delta;
    Measurement m = run_of(25, 4);
    m.refresh_positions.assign(static_cast<std::size_t>(64 / delta), 0);
    m.refresh_seconds.assign(m.refresh_positions.size(), delta * 0.01);
    e.rows.push_back({s, {m}});
  }
  const Figure f = figure(e, "refreshes");
  ASSERT_TRUE(f.plot);
  EXPECT_THAT(labels(f.plot->series), ElementsAre("rift-dyn"));
  EXPECT_THAT(points(f.plot->series[0]), ElementsAre(P{20, 4}, P{40, 4}));
  EXPECT_EQ(f.plot->series[0].points[0].name, "Δ=32");
  const Figure latency = figure(e, "refresh latency");
  ASSERT_TRUE(latency.plot);
  EXPECT_THAT(points(latency.plot->series[0]), ElementsAre(P{160, 4}, P{320, 4}));
}

TEST(Figures, DrawPositionsOutputLengthsMassAndAcceptance) {
  Evaluation e = evaluation_of(1);
  Measurement m = run_of(64, 2);  // 128 tokens
  m.mass = {{0, 0.5F}, {40, 0.25F}};
  m.drafted_per_position = {10, 5, 0};
  m.accepted_per_position = {5, 1, 0};
  e.rows.push_back({setting_of(Policy::kSwa), {m}});
  EXPECT_THAT(points(figure(e, "output position").plot.value().series.at(0)),
              ElementsAre(P{16, 2}, P{48, 2}, P{80, 2}, P{112, 2}));
  EXPECT_THAT(points(figure(e, "output length").plot.value().series.at(0)),
              ElementsAre(P{64, 2}, P{128, 2}));
  EXPECT_THAT(points(figure(e, "attention mass").plot.value().series.at(0)),
              ElementsAre(P{16, 0.5}, P{48, 0.25}));
  EXPECT_THAT(points(figure(e, "Acceptance").plot.value().series.at(0)),
              ElementsAre(P{1, 0.5}, P{2, 0.2}));
}

TEST(Figures, TellSettingsApartByWhatDiffers) {
  Evaluation e = evaluation_of(1);
  for (const Selector selector : {Selector::kSnapKv, Selector::kCurDkv}) {
    for (const std::int32_t budget : {256, 512}) {
      Setting s = setting_of(Policy::kRiftDyn, budget);
      s.policy.selector = selector;
      e.rows.push_back({s, {run_of(10, 2)}});
    }
  }
  const Figure f = figure(e, "draft budget");
  EXPECT_THAT(labels(f.plot.value().series),
              ElementsAre("rift-dyn Δ=128 snapkv", "rift-dyn Δ=128 curdkv"));
  EXPECT_EQ(f.plot->series[0].color, f.plot->series[1].color);
  EXPECT_NE(f.plot->series[0].variant, f.plot->series[1].variant);
}

TEST(Plot, TicksAreNiceNumbers) {
  EXPECT_THAT(
      ticks(0.0, 1.0, 5),
      ElementsAre(
          DoubleEq(0), DoubleEq(0.2), DoubleEq(0.4), DoubleEq(0.6), DoubleEq(0.8), DoubleEq(1.0)));
  EXPECT_THAT(ticks(2.3, 4.4, 5), ElementsAre(DoubleEq(2.5), 3.0, 3.5, 4.0));
  EXPECT_THAT(ticks(3.0, 3.0, 5), ElementsAre(3.0));
}

TEST(Plot, IsSvgWithALabelAndEscapedNames) {
  Plot plot;
  plot.title = "a < b";
  plot.series = {{"<x>", 1, 2, {{1, 1, Interval{0.5, 1.5}, ""}, {2, 1, {}, ""}}}};
  const std::string svg = to_svg(plot);
  EXPECT_THAT(svg, HasSubstr("role=\"img\" aria-label=\"a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("&lt;x&gt;"));
  EXPECT_THAT(svg, HasSubstr("95 % CI 0.5 to 1.5"));
  EXPECT_THAT(legend(plot), HasSubstr("&lt;x&gt;"));
}

TEST(Html, ReplacesWhatABrowserCouldMisread) {
  EXPECT_EQ(escape_html("a<b>&\"'"), "a&lt;b&gt;&amp;&quot;&#39;");
  EXPECT_EQ(escape_html(std::string_view("\0\x1b", 2)), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("\xFF<\xC3"), "\xEF\xBF\xBD&lt;\xEF\xBF\xBD");
  EXPECT_EQ(escape_html("γ\n"), "γ\n");
}

}  // namespace
}  // namespace rift::eval
