// SPDX-License-Identifier: Apache-2.0
// Entropy, query drift, acceptance and decisions of RIFT-ada against golden signals.json.
#include "policy/ada.h"
#include "tests/golden/golden_json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace rift::policy {
namespace {

using boost::json::array;
using boost::json::object;
using boost::json::value;

const object& signals() {
  static const value parsed = testing::golden_json("signals.json");
  return parsed.as_object();
}

template <typename T>
std::vector<T> numbers(const value& from) {
  std::vector<T> out;
  for (const value& item : from.as_array()) {
    out.push_back(static_cast<T>(item.to_number<double>()));
  }
  return out;
}

void expect_near(double actual, double expected, const std::string& what) {
  const object& tolerance = signals().at("tolerance").as_object();
  const double bound = tolerance.at("absolute").to_number<double>() +
                       tolerance.at("relative").to_number<double>() * std::abs(expected);
  EXPECT_NEAR(actual, expected, bound) << what;
}

std::string name_of(const value& item) { return std::string(item.at("name").as_string()); }

TEST(SignalsGolden, Entropy) {
  const array& cases = signals().at("entropy").as_array();
  ASSERT_EQ(cases.size(), 7U);
  for (const value& item : cases) {
    expect_near(entropy(numbers<float>(item.at("logits"))),
                item.at("entropy").to_number<double>(),
                name_of(item));
  }
}

TEST(SignalsGolden, EntropyOfAStrideIsTheMean) {
  const object& stride = signals().at("stride_entropy").as_object();
  std::vector<float> entropies;
  for (const value& logits : stride.at("logits").as_array()) {
    entropies.push_back(static_cast<float>(entropy(numbers<float>(logits))));
    expect_near(entropies.back(),
                stride.at("per_token").as_array()[entropies.size() - 1].to_number<double>(),
                "token " + std::to_string(entropies.size() - 1));
  }
  ASSERT_EQ(entropies.size(), 8U);
  AdaState state({.stride = 8}, 100);
  state.on_step(5, std::span(entropies).first(5), 0.0);
  EXPECT_FALSE(state.stride_over(105));
  state.on_step(3, std::span(entropies).subspan(5), 0.0);
  ASSERT_TRUE(state.stride_over(108));
  EXPECT_FALSE(state.end_stride(108, true).refresh);
  expect_near(state.signals().entropy, stride.at("mean").to_number<double>(), "stride");
}

TEST(SignalsGolden, QueryDrift) {
  const array& cases = signals().at("query_drift").as_array();
  ASSERT_EQ(cases.size(), 5U);
  for (const value& item : cases) {
    const auto of = [&](const char* key) { return item.at(key).to_number<std::int32_t>(); };
    const QueryDrift::Shape shape{of("layers"), of("query_heads"), of("kv_heads"), of("head_dim")};
    const std::int32_t most = std::max(of("steps_reference"), of("steps_now"));
    QueryDrift drift(shape, most);
    const auto put_all = [&](const std::vector<float>& queries, std::int32_t steps) {
      const std::size_t row =
          static_cast<std::size_t>(shape.query_heads) * static_cast<std::size_t>(shape.head_dim);
      for (std::int32_t layer = 0; layer < shape.layers; ++layer) {
        for (std::int32_t step = 0; step < steps; ++step) {
          const auto at = static_cast<std::size_t>(layer * steps + step);
          drift.put(step, layer, queries.data() + at * row);
        }
      }
    };
    put_all(numbers<float>(item.at("reference")), of("steps_reference"));
    drift.settle(of("steps_reference"));
    EXPECT_EQ(drift.drift(0), 0.0) << name_of(item);  // no reference yet
    drift.next_stride(false);
    put_all(numbers<float>(item.at("now")), of("steps_now"));
    const double expected = item.at("drift").to_number<double>();
    expect_near(drift.drift(of("steps_now")), expected, name_of(item) + ", pending");
    drift.settle(of("steps_now"));
    expect_near(drift.drift(0), expected, name_of(item) + ", settled");
  }
}

TEST(SignalsGolden, Acceptance) {
  const array& cases = signals().at("acceptance").as_array();
  ASSERT_EQ(cases.size(), 7U);
  for (const value& item : cases) {
    expect_near(recent_acceptance(numbers<double>(item.at("lengths"))),
                item.at("acceptance").to_number<double>(),
                boost::json::serialize(item.at("lengths")));
  }
}

TEST(SignalsGolden, Decisions) {
  const array& cases = signals().at("decisions").as_array();
  ASSERT_EQ(cases.size(), 17U);
  for (const value& item : cases) {
    const object& s = item.at("signals").as_object();
    const object& t = item.at("thresholds").as_object();
    const auto threshold = [&](const char* key, float off) {
      return t.at(key).is_null() ? off : t.at(key).to_number<float>();
    };
    const AdaSpec spec{.min_age = t.at("min_age").to_number<std::int32_t>(),
                       .max_age = t.at("max_age").to_number<std::int32_t>(),
                       .acceptance_low = threshold("acceptance_low", -AdaSpec::kOff),
                       .entropy_high = threshold("entropy_high", AdaSpec::kOff),
                       .acceptance_drop = threshold("acceptance_drop", AdaSpec::kOff),
                       .entropy_rise = threshold("entropy_rise", AdaSpec::kOff),
                       .drift_high = threshold("drift_high", AdaSpec::kOff)};
    const auto number = [&](const char* key) { return s.at(key).to_number<double>(); };
    const AdaDecision decision = decide(spec,
                                        {.age = s.at("age").to_number<std::int32_t>(),
                                         .acceptance = number("acceptance"),
                                         .acceptance_base = number("acceptance_base"),
                                         .entropy = number("entropy"),
                                         .entropy_base = number("entropy_base"),
                                         .drift = number("drift")});
    EXPECT_EQ(decision.refresh, item.at("refresh").as_bool()) << boost::json::serialize(item);
    EXPECT_EQ(to_string(decision.rule), item.at("rule").as_string())
        << boost::json::serialize(item);
  }
}

}  // namespace
}  // namespace rift::policy
