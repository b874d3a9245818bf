// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/rift_process.h"

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

namespace rift::test {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

std::vector<std::string> arguments(const std::string& prompt, const char* tokens) {
  return {"run",
          "-m",
          small_model(),
          "-md",
          small_model(),
          "-n",
          tokens,
          "--ignore-eos",
          "--budget",
          "64",
          "--delta",
          "8",
          "--draft-len",
          "4",
          "-p",
          prompt};
}

const std::vector<std::string>& long_answer() {
  static const auto list =
      arguments("Write a long story about a lighthouse keeper who collects clocks.", "150");
  return list;
}

// Read in several passes, so that a node can be lost between them.
const std::vector<std::string>& long_prompt() {
  static const auto list = [] {
    std::string prompt;
    for (int i = 0; i < 120; ++i) {
      prompt += fmt::format("Clock {} shows {} minutes past {}.\n", i, i * 7 % 60, i * 5 % 12);
    }
    return arguments(prompt + "Which clocks show the same hour?", "40");
  }();
  return list;
}

std::string plain_tokens(std::vector<std::string> list) {
  list.emplace_back("--no-draft");
  const Finished run = run_rift(list, true);
  EXPECT_EQ(run.ended, "exit code 0") << run.err;
  return boost::json::serialize(run.json.at("output_tokens"));
}

bool answer_has_begun(const std::string& out, const std::string& /*err*/) {
  return out.size() > 60;
}

bool prompt_is_being_read(const std::string& /*out*/, const std::string& err) {
  return err.find("reading the prompt") != std::string::npos;
}

struct Case {
  const char* node;
  int signal;
};

// The answer's end, after `signal` went to `node` of `rift`.
void expect_plain_answer(RiftProcess& rift, const Case& c, const std::string& plain) {
  const pid_t victim = rift.node(c.node);
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, c.signal), 0);
  const Finished done = rift.finish(120s);
  ASSERT_EQ(done.ended, "exit code 0") << done.err;
  EXPECT_EQ(boost::json::serialize(done.json.at("output_tokens")), plain);
  const auto& faults = done.json.at("faults").as_object();
  if (std::string(c.node) == "draft_node") {
    EXPECT_EQ(faults.at("draft_lost").to_number<int>(), 1);
    EXPECT_THAT(done.err, testing::HasSubstr("lost"));
  } else {
    EXPECT_EQ(faults.at("draft_lost").to_number<int>(), 0);
    EXPECT_EQ(faults.at("score_lost").to_number<int>(), 1);
    EXPECT_GT(done.json.at("drafted_tokens").to_number<int>(), 0);
  }
  EXPECT_TRUE(all_nodes_gone(10s));
}

class KilledMidAnswer : public testing::TestWithParam<Case> {};

TEST_P(KilledMidAnswer, LeavesTheTextAsItIsAndSaysWhatHappened) {
  static const std::string plain = plain_tokens(long_answer());
  RiftProcess rift(long_answer(), true);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  expect_plain_answer(rift, GetParam(), plain);
}

class KilledWhileThePromptIsRead : public testing::TestWithParam<Case> {};

TEST_P(KilledWhileThePromptIsRead, LeavesTheTextAsItIsAndSaysWhatHappened) {
  static const std::string plain = plain_tokens(long_prompt());
  RiftProcess rift(long_prompt(), true);
  ASSERT_TRUE(rift.read_until(prompt_is_being_read, 60s));
  expect_plain_answer(rift, GetParam(), plain);
}

const auto kCases = testing::Values(Case{"draft_node", SIGKILL},
                                    Case{"score_node", SIGKILL},
                                    Case{"draft_node", SIGSTOP},
                                    Case{"score_node", SIGSTOP});

INSTANTIATE_TEST_SUITE_P(Nodes, KilledMidAnswer, kCases);
INSTANTIATE_TEST_SUITE_P(Nodes, KilledWhileThePromptIsRead, kCases);

TEST(Interrupt, EndsEveryProcessAndExitsWith130) {
  RiftProcess rift(long_answer(), false);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  ASSERT_EQ(::kill(rift.pid(), SIGINT), 0);
  const Finished done = rift.finish(20s);
  EXPECT_EQ(done.ended, "exit code 130");
  EXPECT_TRUE(all_nodes_gone(10s));
}

TEST(Interrupt, AKilledRiftLeavesNoNodeBehind) {
  RiftProcess rift(long_answer(), false);
  ASSERT_TRUE(rift.read_until(answer_has_begun, 60s));
  ASSERT_EQ(::kill(rift.pid(), SIGKILL), 0);
  (void)rift.finish(20s);
  EXPECT_TRUE(all_nodes_gone(10s));
}

TEST(Killed, ALostTargetIsAnErrorThatNamesIt) {
  RiftProcess rift(long_answer(), false);
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
