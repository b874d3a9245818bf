// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

namespace rift {

/// `action` throws an Error of `code` whose message holds `phrase`.
template <typename Action>
void expect_error(Errc code, std::string_view phrase, const Action& action) {
  try {
    action();
    ADD_FAILURE() << "no error; expected one that says: " << phrase;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_THAT(error.message(), ::testing::HasSubstr(std::string(phrase)));
  }
}

}  // namespace rift
