// SPDX-License-Identifier: Apache-2.0
#include "common/trace.h"

#include "common/error.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace rift {
namespace {

std::filesystem::path scratch(const std::string& name) {
  return std::filesystem::path(testing::TempDir()) / ("rift_trace_" + name);
}

boost::json::value parse_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return boost::json::parse(text.str());
}

TEST(Trace, JoinsTheEventsOfTwoNodesAndRemovesTheParts) {
  const TimePoint t0{std::chrono::microseconds(100)};
  const TimePoint t1{std::chrono::microseconds(350)};
  {
    Trace a(scratch("a"), "draft");
    a.span("rounds", "draft", t0, t1, {{"tokens", 11}});
    Trace b(scratch("b"), "score");
    b.span("refresh", "score", t0, t1);
  }
  merge_traces({scratch("a"), scratch("b"), scratch("missing")}, scratch("out"));
  const boost::json::value merged = parse_file(scratch("out"));
  const auto& events = merged.at("traceEvents").as_array();
  ASSERT_EQ(events.size(), 6U);  // per node: its name, its track, one slice
  EXPECT_EQ(events[2].at("name"), "draft");
  EXPECT_EQ(events[2].at("ts").to_number<double>(), 100.0);
  EXPECT_EQ(events[2].at("dur").to_number<double>(), 250.0);
  EXPECT_EQ(events[2].at("args").at("tokens").as_int64(), 11);
  EXPECT_FALSE(std::filesystem::exists(scratch("a")));
}

TEST(Trace, LeavesOutALineThatACrashCut) {
  std::ofstream(scratch("cut")) << "[\n{\"ph\":\"M\"},\n{\"ph\":\"X\",\"na";
  merge_traces({scratch("cut")}, scratch("out2"));
  const boost::json::value merged = parse_file(scratch("out2"));
  EXPECT_EQ(merged.at("traceEvents").as_array().size(), 1U);
}

TEST(Trace, SaysWhereItCannotWrite) {
  EXPECT_THROW(Trace("/nonexistent-folder/x.json", "draft"), Error);
}

}  // namespace
}  // namespace rift
