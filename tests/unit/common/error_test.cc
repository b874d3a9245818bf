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

TEST(PolicyName, ParsesBackToItself) {
  for (const Policy p :
       {Policy::kFull, Policy::kSwa, Policy::kSnapKv, Policy::kRiftStat, Policy::kRiftDyn}) {
    EXPECT_EQ(parse_policy(to_string(p)), p);
  }
  EXPECT_EQ(parse_policy("RIFT"), std::nullopt);
}

}  // namespace
}  // namespace rift
