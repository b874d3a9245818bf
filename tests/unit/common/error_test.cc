// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"

#include "common/policy_spec.h"

#include <gtest/gtest.h>

namespace rift {
namespace {

TEST(Result, HoldsAValueOrAnError) {
  const Result<int> good = 7;
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.value(), 7);
  Result<int> bad = fail(Errc::kTimeout, "no answer in {} s", 3);
  EXPECT_FALSE(bad);
  EXPECT_EQ(bad.error().code(), Errc::kTimeout);
  EXPECT_EQ(bad.error().message(), "no answer in 3 s");
  EXPECT_THROW(std::move(bad).value_or_throw(), Error);
}

TEST(Status, IsSuccessUntilGivenAnError) {
  EXPECT_TRUE(Status());
  const Status bad = fail(Errc::kIo, "disk");
  EXPECT_FALSE(bad.ok());
  EXPECT_THROW(bad.value_or_throw(), Error);
}

template <typename Value>
void expect_names_parse_back(Value last, std::optional<Value> (*parse)(std::string_view)) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    const auto value = static_cast<Value>(i);
    EXPECT_EQ(parse(to_string(value)), value) << i;
  }
  EXPECT_EQ(parse("RIFT"), std::nullopt);
  EXPECT_EQ(parse("unknown"), std::nullopt);
}

TEST(PolicyNames, ParseBackToThemselves) {
  expect_names_parse_back(Policy::kRiftAda, parse_policy);
  expect_names_parse_back(Selector::kH2o, parse_selector);
  expect_names_parse_back(Allocation::kPyramidKv, parse_allocation);
  expect_names_parse_back(Pooling::kMax, parse_pooling);
  expect_names_parse_back(AdaGate::kScore, parse_ada_gate);
}

}  // namespace
}  // namespace rift
