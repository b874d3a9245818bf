// SPDX-License-Identifier: Apache-2.0
#include "eval/report.h"

#include "tests/unit/eval/synthetic.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rift::eval {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Full KV commits 4 tokens a step, rift-dyn 3.
Evaluation two_rows() {
  Evaluation e = evaluation_of(2);
  e.rows.push_back({setting_of(Policy::kFull), {run_of(10, 4), run_of(10, 4)}});
  Setting dyn = setting_of(Policy::kRiftDyn, 512);
  dyn.policy.rho = 0.7F;
  dyn.policy.delta = 32;
  dyn.policy.refresh_lag = 0;
  Measurement a = run_of(10, 3);
  a.first_set_bytes = 6000;
  a.refresh_bytes = 3000;
  a.refresh_positions = {4};
  a.refresh_lags = {2};
  a.refresh_seconds = {0.25};
  a.mass = {{0, 0.5F}};
  a.drafted_per_position = {10, 8};
  a.accepted_per_position = {8, 4};
  a.seconds = 1.5;
  e.rows.push_back({dyn, {a, run_of(10, 3)}});
  return e;
}

TEST(ReportJson, HasTheKeysThatScriptsRelyOn) {
  const json::object report = to_json(two_rows());
  const json::object& row = report.at("rows").at(1).as_object();
  EXPECT_EQ(row.at("policy"), "rift-dyn");
  EXPECT_EQ(row.at("budget"), 512);
  EXPECT_EQ(row.at("block"), 16);
  EXPECT_EQ(row.at("rho"), 0.7);
  EXPECT_EQ(row.at("delta"), 32);
  EXPECT_EQ(row.at("draft_len"), 11);
  EXPECT_EQ(row.at("temperature"), 0.0);
  EXPECT_EQ(row.at("selector"), "snapkv");
  EXPECT_EQ(row.at("allocation"), "uniform");
  EXPECT_EQ(row.at("lag"), 0);
  EXPECT_EQ(row.at("lag_mean"), 2.0);
  EXPECT_EQ(row.at("prompts"), 2);
  EXPECT_EQ(row.at("steps"), 20);
  EXPECT_EQ(row.at("committed_tokens"), 60);
  EXPECT_EQ(row.at("accepted_length_pooled"), 3.0);
  EXPECT_EQ(row.at("accepted_length_mean"), 3.0);
  EXPECT_EQ(row.at("ci95"), (json::array{3.0, 3.0}));
  EXPECT_EQ(row.at("retention"), 0.75);
  EXPECT_EQ(row.at("retention_ci95"), (json::array{0.75, 0.75}));
  EXPECT_EQ(row.at("refreshes"), 1);
  EXPECT_DOUBLE_EQ(row.at("refreshes_per_1k_tokens").as_double(), 1000.0 / 60.0);
  EXPECT_EQ(row.at("bytes_per_token"), 150.0);
  EXPECT_EQ(row.at("first_set_bytes_per_token"), 100.0);
  EXPECT_EQ(row.at("refresh_bytes_per_token"), 50.0);
  EXPECT_EQ(row.at("mass_retained"), 0.5);
  EXPECT_EQ(row.at("refresh_seconds_p50"), 0.25);
  EXPECT_EQ(row.at("refresh_seconds_p99"), 0.25);
  EXPECT_EQ(row.at("seconds"), 1.5);
  EXPECT_EQ(row.at("acceptance_per_position"), (json::array{0.8, 0.5}));
  EXPECT_EQ(row.at("drafted_per_position"), (json::array{10, 8}));
  EXPECT_EQ(row.at("accepted_per_position"), (json::array{8, 4}));
  EXPECT_EQ(row.at("per_prompt"), (json::object{{"a", 3.0}, {"b", 3.0}}));
}

TEST(ReportJson, IsNullWhereAPolicyHasNoSuchOptionOrNothingWasMeasured) {
  const json::object report = to_json(two_rows());
  const json::object& row = report.at("rows").at(0).as_object();
  for (const char* key : {"budget",
                          "block",
                          "rho",
                          "delta",
                          "selector",
                          "allocation",
                          "window",
                          "lag",
                          "lag_mean",
                          "ada",
                          "mass_retained",
                          "refresh_seconds_p50"}) {
    EXPECT_TRUE(row.at(key).is_null()) << key;
  }
  EXPECT_EQ(row.at("retention"), 1.0);
}

TEST(ReportJson, SaysWhatWasEvaluated) {
  Evaluation e = two_rows();
  const json::object settings = to_json(e, {.resamples = 10, .seed = 5}).at("settings").as_object();
  EXPECT_EQ(settings.at("mode"), "replay");
  EXPECT_EQ(settings.at("draft"), (json::object{{"file", "d.gguf"}, {"fingerprint", "f00d"}}));
  EXPECT_TRUE(settings.at("target").is_null());
  EXPECT_EQ(settings.at("bootstrap"), (json::object{{"resamples", 10}, {"seed", 5}}));
  EXPECT_EQ(
      settings.at("prompts").at(1),
      (json::object{
          {"name", "b"}, {"category", "code"}, {"prompt_tokens", 100}, {"response_tokens", 40}}));
  e.target_file = "t.gguf";
  EXPECT_EQ(to_json(e).at("settings").at("target").at("file"), "t.gguf");
}

TEST(ReportJson, WritesRiftAdasParametersWithNullForThresholdsThatAreOff) {
  Evaluation e = evaluation_of(1);
  Setting ada = setting_of(Policy::kRiftAda);
  ada.policy.ada.min_age = 1;
  ada.policy.ada.entropy_high = 1.5F;
  e.rows.push_back({ada, {run_of(1, 1)}});
  const json::object report = to_json(e);
  const json::object& out = report.at("rows").at(0).at("ada").as_object();
  EXPECT_EQ(out.at("min_age"), 1);
  EXPECT_EQ(out.at("entropy_high"), 1.5);
  EXPECT_TRUE(out.at("acceptance_low").is_null());
  EXPECT_TRUE(report.at("rows").at(0).at("delta").is_null());
}

TEST(ReportJson, LeavesOutPromptsThatHaveNotRun) {
  Evaluation e = evaluation_of(2);
  e.rows.push_back({setting_of(Policy::kSwa), {run_of(5, 2), Measurement{}}});
  const json::object row = to_json(e).at("rows").at(0).as_object();
  EXPECT_EQ(row.at("prompts"), 1);
  EXPECT_EQ(row.at("per_prompt"), (json::object{{"a", 2.0}}));
  EXPECT_TRUE(row.at("retention").is_null());
}

std::vector<std::string> split(const std::string& text, const std::string& by) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find(by, begin)) != std::string::npos;
       begin = end + by.size()) {
    out.push_back(text.substr(begin, end - begin));
  }
  out.push_back(text.substr(begin));
  return out;
}

TEST(ReportCsv, HasALineForEveryRow) {
  const auto lines = split(to_csv(two_rows()), "\r\n");
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines.back(), "");
  const auto header = split(lines[0], ",");
  const auto full = split(lines[1], ",");
  const auto dyn = split(lines[2], ",");
  ASSERT_EQ(full.size(), header.size());
  ASSERT_EQ(dyn.size(), header.size());
  const auto field = [&](const std::vector<std::string>& row, const std::string& column) {
    const auto at = std::find(header.begin(), header.end(), column);
    return at == header.end() ? "no column " + column
                              : row[static_cast<std::size_t>(at - header.begin())];
  };
  EXPECT_EQ(field(full, "policy"), "full");
  EXPECT_EQ(field(full, "budget"), "");
  EXPECT_EQ(field(dyn, "rho"), "0.7");
  EXPECT_EQ(field(dyn, "ci95_low"), "3");
  EXPECT_EQ(field(dyn, "retention_ci95_high"), "0.75");
  EXPECT_EQ(field(dyn, "accepted_per_position"), "8 4");
}

TEST(ReportCsv, QuotesFieldsWithCommas) {
  Evaluation e = evaluation_of(1);
  e.rows.push_back({setting_of(Policy::kRiftAda), {run_of(1, 1)}});
  EXPECT_THAT(to_csv(e), HasSubstr(R"(,"{""stride"":16,""min_age"":32,)"));
}

TEST(ReportHtml, EscapesNamesThatComeFromFiles) {
  Evaluation e = two_rows();
  e.prompts[0] = "<script>alert(1)</script>";
  e.categories[1] = "\"><img src=x onerror=alert(2)>";
  e.draft_file = "a&b'.gguf";
  const std::string page = to_html(e);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;"));
  EXPECT_THAT(page, HasSubstr("a&amp;b&#39;.gguf"));
}

TEST(ReportHtml, NeedsNothingFromOutside) {
  const std::string page = to_html(two_rows());
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<link"}) {
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  }
  EXPECT_THAT(page, HasSubstr("name=\"viewport\""));
  EXPECT_THAT(page, HasSubstr("prefers-color-scheme: dark"));
}

TEST(ReportHtml, PutsStreamingLlmBesideSwa) {
  Evaluation e = evaluation_of(1);
  for (const Policy policy : {Policy::kRiftStat, Policy::kStreamingLlm, Policy::kSwa}) {
    for (const std::int32_t budget : {256, 512}) {
      e.rows.push_back({setting_of(policy, budget), {run_of(10, 2)}});
    }
  }
  const std::string page = to_html(e);
  std::vector<std::string> names;
  for (std::string text : split(page.substr(page.find("<tbody>")), "<th scope=\"row\">")) {
    names.push_back(text.substr(0, text.find('<')));
  }
  names.resize(7);
  EXPECT_THAT(
      names,
      ElementsAre("", "swa", "streaming-llm", "rift-stat", "swa", "streaming-llm", "rift-stat"));
}

TEST(ReportHtml, SaysWhereFarContextGainsNothing) {
  Evaluation e = evaluation_of(2);
  e.rows.push_back({setting_of(Policy::kSwa), {run_of(100, 2), run_of(100, 4)}});
  e.rows.push_back({setting_of(Policy::kRiftStat), {run_of(100, 3), run_of(100, 4)}});
  const std::string page = to_html(e);
  EXPECT_THAT(page, HasSubstr("<td>+50.0 %</td>"));
  EXPECT_THAT(page, HasSubstr("<td>none (+0.0 %)</td>"));
}

TEST(ReportHtml, OfASweepWithoutRowsIsAPage) {
  EXPECT_THAT(to_html(evaluation_of(0)), HasSubstr("</html>"));
  Evaluation e = evaluation_of(1);
  e.rows.push_back({setting_of(Policy::kSwa), {Measurement{}}});
  EXPECT_THAT(to_html(e), HasSubstr("</html>"));
}

}  // namespace
}  // namespace rift::eval
