// SPDX-License-Identifier: Apache-2.0
// `rift eval` and `rift calibrate` as a user starts them, on the published pair.
#include "tests/golden/golden_json.h"
#include "tests/integration/rift_process.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rift::test {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using ::testing::HasSubstr;

class EvalCommand : public ::testing::Test {
 protected:
  EvalCommand() {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "answers");
  }
  ~EvalCommand() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const json::value& value) const {
    std::ofstream(folder_ / name) << json::serialize(value);
  }
  [[nodiscard]] std::string text_of(const std::string& name) const {
    return testing::read_bytes(folder_ / name);
  }
  /// The first `count` ids of a recorded prompt or response.
  static json::array recorded(const std::string& name, const char* what, std::size_t count) {
    const json::value all = testing::golden_json("replay/" + name + ".json");
    const json::array& ids = all.at(what).as_array();
    return json::array(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
  }

  fs::path folder_ = fs::temp_directory_path() / "rift_eval_command_test";
};

TEST_F(EvalCommand, FullKvGivesTheAcceptedLengthOfRun) {
  const json::array prompt = recorded("rewrite_queue", "prompt", 300);
  write("prompt.json", prompt);
  const Finished run = run_rift({"run",
                                 "-m",
                                 large_model(),
                                 "-md",
                                 small_model(),
                                 "--tokens",
                                 file("prompt.json"),
                                 "-n",
                                 "48",
                                 "--ignore-eos",
                                 "--policy",
                                 "full",
                                 "--draft-len",
                                 "5"},
                                true);
  ASSERT_EQ(run.ended, "exit code 0") << run.err;
  write("answers/one.json",
        json::object{
            {"name", "one <b>"}, {"prompt", prompt}, {"response", run.json.at("output_tokens")}});
  const std::vector<std::string> arguments = {"eval",
                                              "-md",
                                              small_model(),
                                              "--replay",
                                              file("answers"),
                                              "--policy",
                                              "full,swa,streaming-llm,rift-dyn",
                                              "--budget",
                                              "32,64",
                                              "--delta",
                                              "8",
                                              "--draft-len",
                                              "5",
                                              "--state",
                                              file("state.jsonl"),
                                              "--csv",
                                              file("rows.csv"),
                                              "--html",
                                              file("report.html")};
  const Finished eval = run_rift(arguments, true);
  ASSERT_EQ(eval.ended, "exit code 0") << eval.err;
  const json::array& rows = eval.json.at("rows").as_array();
  ASSERT_EQ(rows.size(), 7U);
  const json::object& full = rows[0].as_object();
  EXPECT_EQ(full.at("policy").as_string(), "full");
  EXPECT_EQ(full.at("steps").to_number<int>(), run.json.at("steps").to_number<int>());
  EXPECT_DOUBLE_EQ(full.at("accepted_length_pooled").to_number<double>(),
                   run.json.at("accepted_length_pooled").to_number<double>());
  EXPECT_NEAR(full.at("mass_retained").to_number<double>(), 1.0, 1e-4);
  for (const json::value& row : rows) {
    const double length = row.at("accepted_length_pooled").to_number<double>();
    EXPECT_GE(length, 1.0);
    EXPECT_LE(length, 6.0);
  }
  EXPECT_GT(rows[6].at("refreshes_per_1k_tokens").to_number<double>(), 0.0);
  EXPECT_THAT(text_of("report.html"), HasSubstr("one &lt;b&gt;"));
  EXPECT_THAT(text_of("rows.csv"), HasSubstr("streaming-llm"));
  // Once more, from the state file: the same figures.
  const Finished again = run_rift(arguments, true);
  EXPECT_EQ(json::serialize(again.json.at("rows")), json::serialize(rows)) << again.err;
}

TEST_F(EvalCommand, CalibratesAPolicyThatRunTakes) {
  // Ids that mean nothing: thresholds come out of whatever the draft says about them.
  const std::string model = test::model("SmolLM2-135M-Instruct.Q4_1.gguf");
  for (std::int64_t i = 0; i < 3; ++i) {
    json::array prompt;
    json::array response;
    for (std::int64_t k = 0; k < 120; ++k) {
      prompt.emplace_back(1000 + (k * k * (i + 3)) % 4001);
      response.emplace_back(1000 + (k * (i + 7)) % 61);
    }
    response.resize(80);
    write("answers/" + std::to_string(i) + ".json",
          json::object{{"name", std::to_string(i)}, {"prompt", prompt}, {"response", response}});
  }
  const Finished calibrated = run_rift({"calibrate",
                                        "-md",
                                        model,
                                        "--replay",
                                        file("answers"),
                                        "--budget",
                                        "48",
                                        "--block",
                                        "8",
                                        "--draft-len",
                                        "3",
                                        "--delta",
                                        "8,16,32",
                                        "--stride",
                                        "4",
                                        "--min-age",
                                        "8",
                                        "--max-age",
                                        "48",
                                        "-o",
                                        file("policy.toml")},
                                       true);
  ASSERT_EQ(calibrated.ended, "exit code 0") << calibrated.err;
  const json::object& confirmed = calibrated.json.at("confirmation").as_object();
  EXPECT_EQ(confirmed.at("fixed").as_array().size(), 4U);
  EXPECT_GE(calibrated.json.at("candidates").as_array().size(), 20U);
  EXPECT_THAT(text_of("policy.toml"), HasSubstr("min_age = 8"));
  const std::vector<std::string> run = {"run",
                                        "-m",
                                        model,
                                        "-md",
                                        model,
                                        "-p",
                                        "Count to twenty in words.",
                                        "-n",
                                        "40",
                                        "--policy",
                                        "rift-ada",
                                        "--budget",
                                        "48"};
  std::vector<std::string> with_file = run;
  with_file.insert(with_file.end(), {"--policy-file", file("policy.toml"), "--block", "8"});
  const Finished answered = run_rift(with_file, true);
  EXPECT_EQ(answered.ended, "exit code 0") << answered.err;
  EXPECT_EQ(answered.json.at("policy").at("name").as_string(), "rift-ada");
  const Finished refused = run_rift(run, false);
  EXPECT_EQ(refused.ended, "exit code 1");
  EXPECT_THAT(refused.err, HasSubstr("--policy-file"));
}

TEST_F(EvalCommand, SaysWhatInputIsMissingOrWrong) {
  const auto error_of = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval", "-md", small_model()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished run = run_rift(arguments, false);
    EXPECT_NE(run.ended, "exit code 0");
    return run.err;
  };
  EXPECT_THAT(error_of({}), HasSubstr("--replay"));
  EXPECT_THAT(error_of({"--replay", file("none")}), HasSubstr("none"));
  write("answers/bad.json", json::object{{"prompt", {1, 2}}, {"response", {999999}}});
  EXPECT_THAT(error_of({"--replay", file("answers")}), HasSubstr("999999"));
  write("answers/bad.json", json::object{{"prompt", {1, 2}}, {"response", {3, 4, 5}}});
  EXPECT_THAT(error_of({"--replay", file("answers"), "--temp", "0.5"}), HasSubstr("temperature"));
  EXPECT_THAT(error_of({"--replay", file("answers"), "--policy", "rift-ada"}),
              HasSubstr("--policy-file"));
  EXPECT_THAT(error_of({"--prompts", file("set.jsonl")}), HasSubstr("--model"));
}

}  // namespace
}  // namespace rift::test
