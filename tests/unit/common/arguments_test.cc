// SPDX-License-Identifier: Apache-2.0
#include "common/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rift {
namespace {

TEST(Arguments, DraftModelFlagBecomesALongOptionAndTheOrderIsReversed) {
  const char* const argv[] = {"rift", "run", "-md", "d.gguf", "-m", "t.gguf", "-md=e.gguf", "-mdx"};
  EXPECT_THAT(
      command_line(8, argv),
      ::testing::ElementsAre("-mdx", "--md=e.gguf", "t.gguf", "-m", "d.gguf", "--md", "run"));
}

TEST(Arguments, AProgramWithoutArgumentsHasNone) {
  const char* const argv[] = {"rift"};
  EXPECT_THAT(command_line(1, argv), ::testing::IsEmpty());
  EXPECT_THAT(command_line(0, argv), ::testing::IsEmpty());
}

}  // namespace
}  // namespace rift
