// SPDX-License-Identifier: Apache-2.0
#include "common/cpu_list.h"

#include "common/error.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace rift {
namespace {

std::string message_of(std::string_view text, Errc code) {
  try {
    (void)parse_cpu_list(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << text;
    return error.message();
  }
  return "";
}

TEST(CpuList, TakesNumbersAndRangesInTheOrderGivenEachOnce) {
  const std::vector<int> all = available_cpus();
  ASSERT_FALSE(all.empty());
  const int first = all.front();
  EXPECT_EQ(parse_cpu_list(fmt::format("{}", first)), std::vector<int>{first});
  EXPECT_EQ(parse_cpu_list(fmt::format("{0}-{0},{0}", first)), std::vector<int>{first});
  if (all.size() >= 2 && all[1] == first + 1) {
    EXPECT_EQ(parse_cpu_list(fmt::format("{}-{}", first, first + 1)),
              (std::vector<int>{first, first + 1}));
    EXPECT_EQ(parse_cpu_list(fmt::format("{},{}", first + 1, first)),
              (std::vector<int>{first + 1, first}));
  }
}

TEST(CpuList, RefusesWhatIsNoListAndNamesCpusThatAreNotThere) {
  for (const char* text :
       {"", ",", "0,", "a", "0-", "-1", "3-2", "0 1", "0x1", "99999999999", "0-1-2"}) {
    EXPECT_THAT(message_of(text, Errc::kInvalidArgument), testing::HasSubstr("list of CPUs"))
        << text;
  }
  const int absent = available_cpus().back() + 1;
  EXPECT_THAT(message_of(fmt::format("{},{}", available_cpus().front(), absent), Errc::kNotFound),
              testing::AllOf(testing::StartsWith(fmt::format("CPU {} is not there", absent)),
                             testing::EndsWith(fmt::format("{}", absent - 1))));
}

TEST(CpuList, AThreadThatIsPinnedPassesItOnToThoseItStarts) {
  const int last = available_cpus().back();
  std::vector<int> own;
  std::vector<int> started;
  std::thread([&] {
    run_this_thread_on({last});
    own = available_cpus();
    std::thread([&] { started = available_cpus(); }).join();
  }).join();
  EXPECT_EQ(own, std::vector<int>{last});
  EXPECT_EQ(started, std::vector<int>{last});
  EXPECT_EQ(thread_count(0, own), 1);
  EXPECT_EQ(thread_count(3, own), 3);
  EXPECT_EQ(thread_count(0, {}), static_cast<int>(available_cpus().size()));
}

}  // namespace
}  // namespace rift
