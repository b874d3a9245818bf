// SPDX-License-Identifier: Apache-2.0
#include "cli/law_test.h"

#include <gtest/gtest.h>

namespace rift::cli {
namespace {

TEST(ChiSquare, AgreesWithTheTextbookDie) {
  // 60 throws: (25 + 4 + 4 + 16 + 9 + 16) / 10 = 7.4, five degrees of freedom: p = 0.1925
  // (numerical integration of the density).
  const LawResult r = chi_square({5, 8, 12, 14, 7, 14}, std::vector<double>(6, 1.0 / 6));
  EXPECT_EQ(r.cells, 6);
  EXPECT_NEAR(r.statistic, 7.4, 1e-9);
  EXPECT_NEAR(r.p_value, 0.1925, 1e-4);
}

TEST(ChiSquare, FindsACoinThatIsNotFair) {
  // Statistic 36 with one degree of freedom: p = 1.97e-9.
  const LawResult r = chi_square({80, 20}, {0.5, 0.5});
  EXPECT_NEAR(r.statistic, 36.0, 1e-9);
  EXPECT_NEAR(r.p_value, 1.973e-9, 1e-11);
  EXPECT_FALSE(r.holds());
}

TEST(ChiSquare, JoinsCellsUntilEachExpectsFive) {
  // In order of probability: 46, 40, [4 + 3], [3 + 2 + 1 + 1]. (4 - 7)^2 / 7 + (10 - 7)^2 / 7.
  const LawResult r =
      chi_square({46, 1, 40, 3, 4, 3, 2, 1}, {0.46, 0.04, 0.40, 0.03, 0.03, 0.02, 0.01, 0.01});
  EXPECT_EQ(r.cells, 4);
  EXPECT_NEAR(r.statistic, 18.0 / 7.0, 1e-9);
}

TEST(ChiSquare, WhatIsLeftGoesToTheLastCell) {
  const LawResult r = chi_square({50, 46, 2, 1, 1}, {0.5, 0.46, 0.02, 0.01, 0.01});
  EXPECT_EQ(r.cells, 2);
  EXPECT_NEAR(r.statistic, 0.0, 1e-9);
  EXPECT_NEAR(r.p_value, 1.0, 1e-9);
}

TEST(ChiSquare, TooFewCountsTestNothing) {
  const LawResult r = chi_square({3, 1}, {0.5, 0.5});
  EXPECT_FALSE(r.tested());
  EXPECT_FALSE(r.holds());
}

}  // namespace
}  // namespace rift::cli
