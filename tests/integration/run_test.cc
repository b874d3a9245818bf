// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "tests/integration/rift_process.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>

#include <filesystem>
#include <fstream>

namespace rift::test {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

std::string prompt_file(int items) {
  const auto path =
      std::filesystem::temp_directory_path() / ("rift_prompt_" + std::to_string(items) + ".txt");
  std::ofstream file(path, std::ios::trunc);
  file << "Here is a Python list.\n";
  for (int i = 0; i < items; ++i) {
    file << "items.append(Item(name='part " << i << "', weight=" << (i * 37) % 101 << "))\n";
  }
  file << "Write a Python function that sums the weights of the items above.\n";
  return path;
}

std::vector<std::string> run_arguments(const std::string& target, const std::string& prompt) {
  return {"run",
          "-m",
          target,
          "-md",
          small_model(),
          "-f",
          prompt,
          "-n",
          "40",
          "--ignore-eos",
          "--budget",
          "128",
          "--delta",
          "8",
          "--draft-len",
          "4"};
}

std::vector<std::string> with(std::vector<std::string> base, std::vector<std::string> more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

std::string tokens_of(const Finished& run) {
  return boost::json::serialize(run.json.at("output_tokens"));
}

// The real pair, three processes, one prompt: the slice that everything else stands on.
TEST(Run, ThreeProcessesGiveTheTokensOfPlainDecodingAndStreamRefreshes) {
  const auto arguments = run_arguments(large_model(), prompt_file(40));
  const Finished plain = run_rift(with(arguments, {"--no-draft"}), true);
  ASSERT_EQ(plain.ended, "exit code 0") << plain.err;
  const Finished drafted = run_rift(with(arguments, {"--cpus", "0"}), true);
  ASSERT_EQ(drafted.ended, "exit code 0") << drafted.err;
  const auto& seconds = drafted.json.at("seconds").as_object();
  EXPECT_GT(seconds.at("first_token").as_double(), seconds.at("load").as_double());
  for (const char* node : {"target", "draft", "score"}) {
    EXPECT_GT(seconds.at("load_stages").at(node).at("open").as_double(), 0.0) << node;
  }
  EXPECT_EQ(tokens_of(drafted), tokens_of(plain));
  EXPECT_GT(drafted.json.at("accepted_length_pooled").as_double(), 1.2);
  EXPECT_EQ(plain.json.at("accepted_length_pooled").as_double(), 1.0);
  const auto& refresh = drafted.json.at("refresh").as_object();
  EXPECT_GE(refresh.at("count").to_number<int>(), 2);
  EXPECT_GT(refresh.at("first_working_set_bytes").to_number<int>(), 0);
  EXPECT_GT(refresh.at("stage_seconds").at("score").at("p50").as_double(), 0.0);
  EXPECT_EQ(drafted.json.at("transport").at("name"), "ucx");
  EXPECT_EQ(drafted.json.at("faults").at("draft_lost").to_number<int>(), 0);
  EXPECT_TRUE(all_nodes_gone(10s));
}

TEST(Run, TheDraftNodeHoldsTheSameBytesForAShortAndALongPrompt) {
  const auto memory = [](int items) {
    const Finished run = run_rift(run_arguments(small_model(), prompt_file(items)), true);
    EXPECT_EQ(run.ended, "exit code 0") << run.err;
    EXPECT_GT(run.json.at("prompt_tokens").to_number<int>(), items * 10);
    return run.json.at("memory_bytes").as_object();
  };
  const auto small = memory(20);
  const auto large = memory(80);
  for (const char* key : {"arena", "working_set", "staging", "scratch"}) {
    EXPECT_GT(small.at(key).to_number<std::int64_t>(), 0) << key;
    EXPECT_EQ(small.at(key), large.at(key)) << key;
  }
  EXPECT_LT(small.at("score_history").to_number<std::int64_t>(),
            large.at("score_history").to_number<std::int64_t>());
}

TEST(Run, OneProcessGivesTheSameTokensAsThree) {
  const auto arguments = run_arguments(small_model(), prompt_file(20));
  const Finished three = run_rift(arguments, true);
  const Finished one = run_rift(with(arguments, {"--transport", "inproc"}), true);
  ASSERT_EQ(three.ended, "exit code 0") << three.err;
  ASSERT_EQ(one.ended, "exit code 0") << one.err;
  EXPECT_EQ(tokens_of(one), tokens_of(three));
  EXPECT_GT(one.json.at("refresh").at("count").to_number<int>(), 0);
}

TEST(Run, SamplingWithASeedIsRepeatable) {
  const auto arguments =
      with(run_arguments(small_model(), prompt_file(20)), {"--temp", "0.8", "--seed", "11"});
  const Finished a = run_rift(arguments, true);
  const Finished b = run_rift(arguments, true);
  ASSERT_EQ(a.ended, "exit code 0") << a.err;
  EXPECT_GT(a.json.at("accepted_length_pooled").as_double(), 1.0);
  EXPECT_EQ(a.json.at("output_tokens").as_array().size(), 40U);
  EXPECT_EQ(b.ended, "exit code 0") << b.err;
}

TEST(Run, WritesATraceThatPerfettoReads) {
  const auto trace = std::filesystem::temp_directory_path() / "rift_run_trace.json";
  std::filesystem::remove(trace);
  const Finished run = run_rift(
      with(run_arguments(small_model(), prompt_file(20)), {"--trace", trace.string()}), false);
  ASSERT_EQ(run.ended, "exit code 0") << run.err;
  std::ifstream file(trace);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const boost::json::value parsed = boost::json::parse(text);
  std::vector<std::string> names;
  for (const auto& event : parsed.at("traceEvents").as_array()) {
    names.emplace_back(event.at("name").as_string());
  }
  EXPECT_THAT(names, testing::IsSupersetOf({"prefill", "verify", "round", "score", "put"}));
}

TEST(Bench, TheModelsPassesHaveTheKeysThatScriptsRelyOn) {
  const Finished done = run_rift({"bench",
                                  "model",
                                  "-m",
                                  small_model(),
                                  "--prefill",
                                  "24",
                                  "--depth",
                                  "0,50",
                                  "--widths",
                                  "3",
                                  "--verify-depth",
                                  "50",
                                  "--score-depth",
                                  "80",
                                  "--rounds",
                                  "2",
                                  "--seconds",
                                  "0"},
                                 true);
  ASSERT_EQ(done.ended, "exit code 0") << done.err;
  struct Expected {
    const char* test;
    int tokens, depth, width;
  };
  constexpr Expected kExpected[] = {{"decode", 1, 0, 1},
                                    {"decode", 1, 50, 1},
                                    {"verify", 3, 50, 3},
                                    {"score", 80, 80, 64},
                                    {"prefill", 24, 0, 24}};
  const auto& rows = done.json.at("rows").as_array();
  ASSERT_EQ(rows.size(), std::size(kExpected));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const boost::json::object& row = rows[i].as_object();
    EXPECT_EQ(row.at("test").as_string(), kExpected[i].test);
    EXPECT_EQ(row.at("tokens").to_number<int>(), kExpected[i].tokens) << i;
    EXPECT_EQ(row.at("depth").to_number<int>(), kExpected[i].depth) << i;
    EXPECT_EQ(row.at("width").to_number<int>(), kExpected[i].width) << i;
    EXPECT_EQ(row.at("model").as_string(), small_model());
    for (const char* key : {"tokens_per_second", "gbytes_per_second", "limit_ratio"}) {
      EXPECT_GT(row.at(key).to_number<double>(), 0.0) << i << " " << key;
    }
  }
  EXPECT_GT(done.json.at("limits").at("read_gbytes_per_second").to_number<double>(), 0.0);
}

TEST(Bench, OneGroupOfKernels) {
  const Finished done = run_rift({"bench", "kernels", "--op", "elementwise"}, true);
  ASSERT_EQ(done.ended, "exit code 0") << done.err;
  const auto& rows = done.json.at("rows").as_array();
  EXPECT_EQ(rows.size(), 7U);
  for (const boost::json::value& row : rows) {
    EXPECT_GT(row.at("read_ratio").to_number<double>(), 0.0);
  }
  EXPECT_EQ(run_rift({"bench", "kernels", "--op", "nothing"}, false).ended, "exit code 2");
}

}  // namespace
}  // namespace rift::test
