// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/rift_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace rift::test {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

std::string scratch(const std::string& name, const std::string& bytes) {
  const auto path = std::filesystem::temp_directory_path() / ("rift_bad_" + name);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

std::string head_of(const std::string& path, std::size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string out(bytes, '\0');
  file.read(out.data(), static_cast<std::streamsize>(bytes));
  return out;
}

void expect_refused(const std::vector<std::string>& arguments,
                    const std::string& exit_code,
                    const std::string& phrase) {
  const Finished done = run_rift(arguments, false, 60s);
  EXPECT_EQ(done.ended, exit_code) << phrase << "\n" << done.err;
  EXPECT_THAT(done.out + done.err, HasSubstr(phrase));
  EXPECT_TRUE(all_nodes_gone(10s));
}

std::vector<std::string> run_with(const std::string& target,
                                  const std::string& draft,
                                  std::vector<std::string> more) {
  std::vector<std::string> out{"run", "-m", target, "-md", draft, "-n", "4"};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

TEST(BadInput, WrongUsageExitsWith2) {
  const std::string m = small_model();
  expect_refused({"run"}, "exit code 2", "--model");
  expect_refused({"unknown"}, "exit code 2", "unknown");
  expect_refused({}, "exit code 2", "subcommand");
  expect_refused(run_with(m, m, {}), "exit code 2", "a prompt");
  expect_refused(run_with(m, m, {"-p", "x", "--policy", "best"}), "exit code 2", "--policy");
  expect_refused(run_with(m, m, {"-p", "x", "--budget", "0"}), "exit code 2", "--budget");
  expect_refused(run_with(m, m, {"-p", "x", "--cpus", "0-"}), "exit code 2", "list of CPUs");
  expect_refused(
      run_with(m, m, {"-p", "x", "--draft-cpus", "8000"}), "exit code 2", "CPU 8000 is not there");
  expect_refused(run_with(m, m, {"-p", "x", "--temp", "-1"}), "exit code 2", "--temp");
  expect_refused(run_with(m, m, {"-p", "x", "--temp", "nan"}), "exit code 2", "--temp");
  expect_refused(run_with(m, m, {"-p", "x", "--presence-penalty", "inf"}),
                 "exit code 2",
                 "--presence-penalty");
  expect_refused(
      run_with(m, m, {"-p", "x", "--penalty-window", "-2"}), "exit code 2", "--penalty-window");
  expect_refused(
      run_with(m, m, {"-p", "x", "--draft-memory", "-5"}), "exit code 2", "--draft-memory");
  expect_refused(run_with(m, m, {"-p", "x", "--logit-bias", "5"}), "exit code 2", "ID=VALUE");
}

TEST(BadInput, FilesThatAreMissingOrBrokenExitWith1) {
  const std::string m = small_model();
  expect_refused(run_with("/nonexistent.gguf", m, {"-p", "x"}), "exit code 1", "/nonexistent.gguf");
  expect_refused(run_with(m, "/nonexistent.gguf", {"-p", "x"}), "exit code 1", "/nonexistent.gguf");
  expect_refused(run_with(m, m, {"-f", "/nonexistent.txt"}), "exit code 1", "/nonexistent.txt");
  const std::string folder = std::filesystem::temp_directory_path();
  expect_refused(run_with(m, m, {"-f", folder}), "exit code 1", "cannot read " + folder);
  // Before anything is loaded, so also before the missing model is noticed.
  expect_refused(run_with("/nonexistent.gguf", m, {"-p", "x", "--json", "/nonexistent/run.json"}),
                 "exit code 1",
                 "cannot write /nonexistent/run.json");
  const std::string truncated = scratch("truncated.gguf", head_of(m, 3'000'000));
  expect_refused(run_with(truncated, m, {"-p", "x"}), "exit code 1", truncated);
  const std::string garbage = scratch("garbage.gguf", std::string(4096, 'x'));
  expect_refused(run_with(garbage, m, {"-p", "x"}), "exit code 1", garbage);
  const std::string empty = scratch("empty.gguf", "");
  expect_refused(run_with(m, empty, {"-p", "x"}), "exit code 1", empty);
}

TEST(BadInput, PromptsThatCannotBeAnsweredExitWith1) {
  const std::string m = small_model();
  expect_refused(run_with(m, m, {"-p", ""}), "exit code 1", "prompt is empty");
  expect_refused(
      run_with(m, m, {"-p", "one two three", "--ctx", "8"}), "exit code 1", "raise --ctx");
  const std::string ids = scratch("ids.json", "[1, 2, 99999999]");
  expect_refused(run_with(m, m, {"--tokens", ids}), "exit code 1", "99999999");
  const std::string text = scratch("text.json", "{\"a\": ");
  expect_refused(run_with(m, m, {"--tokens", text}), "exit code 1", text);
  const std::string none = scratch("none.json", "[]");
  expect_refused(run_with(m, m, {"--tokens", none}), "exit code 1", "prompt is empty");
}

TEST(BadInput, ADraftWithAnotherTokenizerIsRefusedNamingTheFirstDifferingToken) {
  const std::string other = model("SmolLM2-135M-Instruct.Q4_1.gguf");
  expect_refused(run_with(small_model(), other, {"-p", "x"}), "exit code 1", "token 0");
}

TEST(BadInput, AnArenaThatIsTooSmallSaysWhatItWouldNeed) {
  const Finished done = run_rift(
      run_with(small_model(), small_model(), {"-p", "x", "--draft-memory", "475mb"}), false, 60s);
  EXPECT_THAT(done.out + done.err, HasSubstr("budget"));
  EXPECT_TRUE(all_nodes_gone(10s));
}

}  // namespace
}  // namespace rift::test
