// SPDX-License-Identifier: Apache-2.0
#include "common/percentile.h"

#include <gtest/gtest.h>

namespace rift {
namespace {

TEST(Percentile, IsTheNearestRank) {
  EXPECT_EQ(percentile({}, 0.5), 0.0);
  EXPECT_EQ(percentile({7.0}, 0.99), 7.0);
  EXPECT_EQ(percentile({4.0, 1.0, 3.0, 2.0}, 0.5), 2.0);
  EXPECT_EQ(percentile({4.0, 1.0, 3.0, 2.0}, 0.99), 4.0);
  EXPECT_EQ(percentile({4.0, 1.0, 3.0, 2.0}, 0.0), 1.0);
}

}  // namespace
}  // namespace rift
