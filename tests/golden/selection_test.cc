// SPDX-License-Identifier: Apache-2.0
// Known-good selections: golden selection/README.md. Tolerances are that file's.
#include "policy/selection.h"

#include "common/policy_spec.h"
#include "policy/budget.h"
#include "tests/golden/selection_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rift::policy {
namespace {

using ::testing::ElementsAreArray;

PolicySpec spec_of(const std::string& name, const boost::json::object& c) {
  PolicySpec spec;
  spec.budget = c.at("budget").to_number<std::int32_t>();
  spec.window = kWindow;
  spec.block = c.contains("block") ? c.at("block").to_number<std::int32_t>() : 1;
  spec.rho = c.contains("rho") ? c.at("rho").to_number<float>() : 0.5F;
  spec.policy = starts_with(name, "swa")      ? Policy::kSwa
                : starts_with(name, "snapkv") ? Policy::kSnapKv
                                              : Policy::kRiftStat;
  return spec;
}

void check_case(const Set& set, const std::string& name, const boost::json::object& c) {
  const PolicySpec spec = spec_of(name, c);
  const BudgetPlan plan = plan_budget(spec, kNoBudgetLimit);
  if (c.contains("recent")) {
    ASSERT_EQ(plan.recent, c.at("recent").to_number<std::int32_t>());
  }
  const std::int32_t limit = set.n - plan.recent;
  const Pool pool = parse_pool(c.contains("pool") ? std::string_view(c.at("pool").as_string())
                                                  : std::string_view("none"));
  for (std::int32_t head = 0; head < set.kv_heads; ++head) {
    const auto scores = block_scores(set.snapkv(head, set.n, pool), spec.block, limit);
    const std::vector<std::int32_t> chosen = top_k(scores, plan.slots_per_head);
    if (c.contains("block")) {
      expect_scores(scores, row(set.at(name + ".block_scores"), head));
      EXPECT_THAT(chosen, ElementsAreArray(int_row(set.at(name + ".block_ids"), head)));
    }
    const std::vector<std::int32_t> kept = kept_positions(chosen, spec.block, plan.recent, set.n);
    EXPECT_LE(std::ssize(kept), spec.budget);
    EXPECT_THAT(kept, ElementsAreArray(set.at(name + ".kept." + std::to_string(head)).ints));
    for (std::int32_t g = 0; g < set.group(); ++g) {
      const std::int32_t h = head * set.group() + g;
      EXPECT_NEAR(set.mass(h, set.n, kept),
                  set.at(name + ".mass").floats[static_cast<std::size_t>(h)],
                  1e-5);
    }
  }
}

class Selection : public ::testing::TestWithParam<std::string> {};

TEST_P(Selection, ScoresMatchForEveryPooling) {
  const Set& set = load(GetParam());
  for (const char* pool : {"none", "avg5", "max7"}) {
    SCOPED_TRACE(pool);
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      expect_scores(set.snapkv(head, set.n, parse_pool(pool)),
                    row(set.at(std::string("score.snapkv.") + pool), head));
    }
  }
}

TEST_P(Selection, KeepsTheGoldenPositionsAndTheirMass) {
  const Set& set = load(GetParam());
  int cases = 0;
  for (const auto& [key, c] : set.about.at("cases").as_object()) {
    const std::string name(key);
    if (starts_with(name, "swa") || starts_with(name, "snapkv") ||
        starts_with(name, "rift_stat.rho") || starts_with(name, "rift_stat.blocks") ||
        name == "rift_stat.short_recent") {
      SCOPED_TRACE(name);
      check_case(set, name, c.as_object());
      ++cases;
    }
  }
  EXPECT_GE(cases, 15);
}

class Refresh : public ::testing::TestWithParam<std::string> {};

TEST_P(Refresh, SelectsAndSlidesAsRiftDynDoes) {
  const Set& set = load(GetParam());
  const boost::json::object& c = set.about.at("cases").at("rift_dyn").as_object();
  const PolicySpec spec = spec_of("rift_dyn", c);
  const BudgetPlan plan = plan_budget(spec, kNoBudgetLimit);
  ASSERT_EQ(plan.recent, c.at("recent").to_number<std::int32_t>());
  const auto prompt = c.at("prompt").to_number<std::int32_t>();
  const auto delta = c.at("delta").to_number<std::int32_t>();
  std::map<std::int32_t, std::vector<std::vector<std::int32_t>>> selections;
  for (std::int32_t t = 0; t <= 2 * delta; t += delta) {
    const std::string name = "rift_dyn.refresh" + std::to_string(t);
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      const std::vector<float> scores = set.snapkv(head, prompt + t, {Pooling::kNone, 1});
      expect_scores(scores, row(set.at(name + ".score"), head));
      const auto candidates = block_scores(scores, 1, prompt + t - plan.recent);
      selections[t].push_back(top_k(candidates, plan.slots_per_head));
      EXPECT_THAT(selections[t].back(),
                  ElementsAreArray(int_row(set.at(name + ".selected"), head)));
    }
  }
  for (const auto& step : c.at("steps").as_array()) {
    const auto t = step.to_number<std::int32_t>();
    const std::string name = "rift_dyn.step" + std::to_string(t);
    for (std::int32_t h = 0; h < set.query_heads; ++h) {
      const std::int32_t head = h / set.group();
      const std::vector<std::int32_t> kept =
          kept_positions(selections.at(t / delta * delta)[static_cast<std::size_t>(head)],
                         1,
                         plan.recent,
                         prompt + t);
      EXPECT_THAT(kept, ElementsAreArray(int_row(set.at(name + ".kept"), head)));
      EXPECT_NEAR(set.mass(h, prompt + t, kept),
                  set.at(name + ".mass").floats[static_cast<std::size_t>(h)],
                  1e-5);
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Sets,
                         Selection,
                         ::testing::Values("synthetic0",
                                           "synthetic1",
                                           "qwen2_0.5b_layer2",
                                           "qwen2_0.5b_layer12",
                                           "qwen2_0.5b_layer21"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Sets,
                         Refresh,
                         ::testing::Values("synthetic0", "synthetic1", "qwen2_0.5b_layer12"),
                         test_name);

}  // namespace
}  // namespace rift::policy
