// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/rift_process.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

namespace rift::test {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

const std::vector<std::string>& arguments() {
  static const std::vector<std::string> list{
      "run",
      "-m",
      small_model(),
      "-md",
      small_model(),
      "-n",
      "150",
      "--ignore-eos",
      "--budget",
      "64",
      "--delta",
      "8",
      "--draft-len",
      "4",
      "-p",
      "Write a long story about a lighthouse keeper who collects clocks."};
  return list;
}

std::string plain_tokens() {
  static const std::string tokens = [] {
    auto list = arguments();
    list.emplace_back("--no-draft");
    const Finished run = run_rift(list, true);
    EXPECT_EQ(run.ended, "exit code 0") << run.err;
    return boost::json::serialize(run.json.at("output_tokens"));
  }();
  return tokens;
}

bool answer_has_begun(const std::string& out) { return out.size() > 60; }

struct Case {
  const char* node;
  int signal;
};

class KilledMidAnswer : public testing::TestWithParam<Case> {};

TEST_P(KilledMidAnswer, LeavesTheTextAsItIsAndSaysWhatHappened) {
  const auto [node, signal] = GetParam();
  RiftProcess rift(arguments(), true);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  const pid_t victim = rift.node(node);
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, signal), 0);
  const Finished done = rift.finish(120s);
  EXPECT_EQ(done.ended, "exit code 0") << done.err;
  EXPECT_EQ(boost::json::serialize(done.json.at("output_tokens")), plain_tokens());
  const auto& faults = done.json.at("faults").as_object();
  if (std::string(node) == "draft_node") {
    EXPECT_EQ(faults.at("draft_lost").to_number<int>(), 1);
    EXPECT_THAT(done.err, testing::HasSubstr("lost"));
  } else {
    EXPECT_EQ(faults.at("draft_lost").to_number<int>(), 0);
    EXPECT_EQ(faults.at("score_lost").to_number<int>(), 1);
  }
  EXPECT_TRUE(all_nodes_gone(10s));
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         KilledMidAnswer,
                         testing::Values(Case{"draft_node", SIGKILL},
                                         Case{"score_node", SIGKILL},
                                         Case{"draft_node", SIGSTOP},
                                         Case{"score_node", SIGSTOP}));

TEST(Interrupt, EndsEveryProcessAndExitsWith130) {
  RiftProcess rift(arguments(), false);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  ASSERT_EQ(::kill(rift.pid(), SIGINT), 0);
  const Finished done = rift.finish(20s);
  EXPECT_EQ(done.ended, "exit code 130");
  EXPECT_TRUE(all_nodes_gone(10s));
}

TEST(Interrupt, AKilledRiftLeavesNoNodeBehind) {
  RiftProcess rift(arguments(), false);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  ASSERT_EQ(::kill(rift.pid(), SIGKILL), 0);
  (void)rift.finish(20s);
  EXPECT_TRUE(all_nodes_gone(10s));
}

TEST(Killed, ALostTargetIsAnErrorThatNamesIt) {
  RiftProcess rift(arguments(), false);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  const pid_t target = rift.node("target_node");
  ASSERT_GT(target, 0);
  ASSERT_EQ(::kill(target, SIGKILL), 0);
  const Finished done = rift.finish(20s);
  EXPECT_EQ(done.ended, "exit code 1");
  EXPECT_THAT(done.err, testing::HasSubstr("target_node ended (signal 9)"));
  EXPECT_TRUE(all_nodes_gone(10s));
}

}  // namespace
}  // namespace rift::test
