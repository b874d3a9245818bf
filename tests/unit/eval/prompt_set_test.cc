// SPDX-License-Identifier: Apache-2.0
#include "eval/prompt_set.h"

#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace rift::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

void write_file(const fs::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

void expect_bad_set(Errc code, std::string_view phrase, std::string_view text) {
  expect_error(code, phrase, [&] { (void)parse_prompt_set(text, "set.jsonl"); });
}

void expect_bad_replay(Errc code, std::string_view phrase, std::string_view text) {
  expect_error(code, phrase, [&] { (void)parse_replay(text, "a/r.json", 100); });
}

TEST(PromptSet, ReadsSpecBenchRows) {
  const auto prompts = parse_prompt_set(
      R"({"question_id": 81, "category": "writing", "turns": ["Compose a post.", "Rewrite it."]})"
      "\r\n\n"
      R"({"question_id": 82.0, "category": "math", "turns": ["1+1?"], "reference": ["2"]})",
      "question.jsonl");
  EXPECT_THAT(
      prompts,
      ElementsAre(Prompt{"81", "writing", "Compose a post."}, Prompt{"82", "math", "1+1?"}));
}

TEST(PromptSet, ReadsSpeedBenchRows) {
  const auto prompts = parse_prompt_set(
      "\xEF\xBB\xBF"
      R"({"question_id":"a1f","category":"coding","sub_category":null,"turns":["Why?"],)"
      R"("source":"x","src_id":"7","difficulty":"easy","multiturn":false})"
      "\n",
      "speed.jsonl");
  EXPECT_THAT(prompts, ElementsAre(Prompt{"a1f", "coding", "Why?"}));
}

TEST(PromptSet, RefusesAPlaceholderNamingLineAndRow) {
  const std::string good = R"({"question_id":"ok","category":"qa","turns":["Why?"]})";
  for (const char* turn :
       {"FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH", "", " \\n "}) {
    const std::string bad =
        std::string(R"({"question_id":"b7","category":"qa","turns":[")") + turn + "\"]}";
    expect_bad_set(Errc::kInvalidArgument, "set.jsonl:2: row b7", good + "\n" + bad + "\n");
  }
}

TEST(PromptSet, NamesTheLineOfARowThatIsNotOne) {
  const std::string good = R"({"question_id":1,"turns":["x"]})"
                           "\n";
  expect_bad_set(Errc::kCorrupt,
                 "set.jsonl:2: the JSON text is empty or ends too early",
                 good + "{\"question_id\":");
  expect_bad_set(Errc::kCorrupt, "set.jsonl:2: not a JSON object", good + "[1]");
  expect_bad_set(Errc::kCorrupt, "set.jsonl:2: no question_id", good + "{}");
  expect_bad_set(Errc::kCorrupt, "set.jsonl:2: no question_id", good + R"({"question_id":[]})");
  expect_bad_set(Errc::kCorrupt, "row 2 has no turns", good + R"({"question_id":2})");
  expect_bad_set(Errc::kCorrupt, "row 2 has no turns", good + R"({"question_id":2,"turns":[]})");
  expect_bad_set(Errc::kCorrupt, "row 2 has no turns", good + R"({"question_id":2,"turns":[7]})");
  expect_bad_set(
      Errc::kCorrupt, "category is not a text", good + R"({"question_id":2,"category":3})");
  expect_bad_set(Errc::kCorrupt, "set.jsonl:2", good + std::string(1000, '['));
  expect_bad_set(Errc::kCorrupt, "set.jsonl:2", good + "\"\xFF\"");
  expect_bad_set(
      Errc::kMismatch, "set.jsonl:3: question_id 1 is that of line 1", good + "\n" + good);
  expect_bad_set(Errc::kInvalidArgument, "no prompt", " \n");
}

TEST(PromptSet, RefusesALineBeyondItsBound) {
  std::string line(kMaxPromptLineBytes + 1, ' ');
  line.front() = '{';
  expect_bad_set(Errc::kOutOfRange, "set.jsonl:1 has 67108865 bytes", line);
}

TEST(PromptSet, WritesWhatItReads) {
  const Prompt prompt{"x\"1", "code", "a\n\"b\"\t\xC3\xA9"};
  const TemporaryFolder folder;
  write_file(folder.path() / "s.jsonl", to_json_line(prompt));
  EXPECT_THAT(read_prompt_set(folder.path() / "s.jsonl"), ElementsAre(prompt));
  expect_error(
      Errc::kNotFound, "none", [&] { (void)read_prompt_set(folder.path() / "none.jsonl"); });
}

TEST(Replay, ReadsARecordedAnswerWithOtherKeys) {
  const Sequence s = parse_replay(
      R"({"name":"q","task":"t","sources":[{"file":"x"}],"prompt":[1,2,99],"response":[0]})",
      "a/r.json",
      100);
  EXPECT_EQ(s.name, "q");
  EXPECT_EQ(s.category, "");
  EXPECT_THAT(s.prompt, ElementsAre(1, 2, 99));
  EXPECT_THAT(s.response, ElementsAre(0));
  EXPECT_EQ(parse_replay(R"({"prompt":[1],"response":[1]})", "a/r.json", 100).name, "r");
}

TEST(Replay, RefusesWhatIsNotOne) {
  expect_bad_replay(Errc::kCorrupt, "a/r.json: the JSON text is empty", "");
  expect_bad_replay(Errc::kCorrupt, "not a JSON object", "[]");
  expect_bad_replay(Errc::kCorrupt, "no prompt", R"({"response":[1]})");
  expect_bad_replay(Errc::kCorrupt, "no response", R"({"prompt":[1],"response":[]})");
  expect_bad_replay(Errc::kCorrupt, "entry 1 of prompt is 1.5E0", R"({"prompt":[1,1.5]})");
  expect_bad_replay(Errc::kCorrupt, "entry 0 of prompt is \"1\"", R"({"prompt":["1"]})");
  expect_bad_replay(
      Errc::kOutOfRange, "entry 0 of response is 100", R"({"prompt":[1],"response":[100]})");
  expect_bad_replay(Errc::kOutOfRange, "is -1", R"({"prompt":[-1]})");
  expect_bad_replay(Errc::kCorrupt, "name is not a text", R"({"name":1})");
}

TEST(Replay, FoldersAreReadInTheOrderOfNames) {
  const TemporaryFolder folder;
  const std::string ids = R"("prompt":[1],"response":[2]})";
  write_file(folder.path() / "b.json", "{" + ids);
  write_file(folder.path() / "a.json", "{" + ids);
  write_file(folder.path() / "a.recipe.json", "{}");
  write_file(folder.path() / "README.md", "text");
  const std::vector<fs::path> paths{folder.path()};
  const auto sequences = read_replays(paths, 10);
  ASSERT_EQ(sequences.size(), 2U);
  EXPECT_EQ(sequences[0].name, "a");
  EXPECT_EQ(sequences[1].name, "b");

  write_file(folder.path() / "c.json", R"({"name":"a",)" + ids);
  expect_error(Errc::kMismatch, "c.json: its name, a, is", [&] { (void)read_replays(paths, 10); });
}

TEST(Replay, AFolderWithoutReplaysAndAMissingFileAreErrors) {
  const TemporaryFolder folder;
  const std::vector<fs::path> empty{folder.path()};
  expect_error(Errc::kNotFound, "holds no replay", [&] { (void)read_replays(empty, 10); });
  const std::vector<fs::path> missing{folder.path() / "x.json"};
  expect_error(Errc::kNotFound, "x.json", [&] { (void)read_replays(missing, 10); });
}

TEST(Replay, RefusesAFileBeyondItsBound) {
  const TemporaryFolder folder;
  write_file(folder.path() / "x.json", "");
  fs::resize_file(folder.path() / "x.json", kMaxReplayBytes + 1);
  const std::vector<fs::path> paths{folder.path() / "x.json"};
  expect_error(Errc::kOutOfRange, "16777217 bytes", [&] { (void)read_replays(paths, 10); });
}

TEST(Replay, WritesWhatItReads) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "s.json";
  write_replay(path, {"n", "c", {1, 2}, {3}});
  const auto sequences = read_replays(std::vector<fs::path>{path}, 10);
  ASSERT_EQ(sequences.size(), 1U);
  EXPECT_EQ(sequences[0].name, "n");
  EXPECT_EQ(sequences[0].category, "c");
  EXPECT_THAT(sequences[0].prompt, ElementsAre(1, 2));
  EXPECT_THAT(sequences[0].response, ElementsAre(3));
  expect_error(Errc::kIo, "cannot write", [&] { write_replay(folder.path() / "no/x.json", {}); });
}

}  // namespace
}  // namespace rift::eval
