// SPDX-License-Identifier: Apache-2.0
#include "eval/prompt_builder.h"

#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/temporary_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

namespace rift::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A module with one class of two methods and two functions, told apart by `name`.
std::string module_text(const std::string& name) {
  std::string text = "# " + name + "\nimport os\n\nclass " + name + "Class:\n";
  for (const char* method : {"first", "second"}) {
    text += fmt::format("    def {}(self, value):\n", method);
    for (int i = 0; i < 5; ++i) {
      text += fmt::format("        self.{}_{} = value + {}\n", name, i, i);
    }
  }
  for (const char* function : {"load", "store"}) {
    text += fmt::format("\n\ndef {}_{}(path):\n", name, function);
    for (int i = 0; i < 12; ++i) {
      text += fmt::format("    step_{} = os.path.join(path, '{}')\n", i, name);
    }
  }
  return text;
}

std::string document_text() {
  std::string text = "Title of it\n\n";
  for (int i = 0; i < 30; ++i) {
    text += fmt::format(
        "Paragraph {} says that rule {} holds in all of the cases that it names\n"
        "and in those that follow from them, as far as they are known.\n\n",
        i,
        i);
  }
  return text;
}

class PromptBuilder : public ::testing::Test {
 protected:
  void write_file(const fs::path& name, std::string_view text) {
    fs::create_directories((folder_.path() / name).parent_path());
    std::ofstream(folder_.path() / name, std::ios::binary) << text;
  }
  void write_sources() {
    for (int i = 0; i < 10; ++i) {
      write_file(fmt::format("m{}.py", i), module_text(fmt::format("m{}", i)));
    }
    write_file("rules.txt", document_text());
  }
  [[nodiscard]] std::vector<SourceText> sources() const {
    return find_sources(std::vector<fs::path>{folder_.path()});
  }

  TemporaryFolder folder_;
};

// Words and other characters, as a tokenizer might.
std::int32_t count_words(std::string_view text) {
  std::int32_t count = 20;  // of a template
  bool in_word = false;
  for (const char c : text) {
    const bool word = std::isalnum(static_cast<unsigned char>(c)) != 0;
    count += (word && !in_word) || (!word && c != ' ') ? 1 : 0;
    in_word = word;
  }
  return count;
}

TEST_F(PromptBuilder, MakesPromptsOfTheLengthWithoutGoingOver) {
  write_sources();
  const auto built =
      build_prompts(sources(), {.tokens = {1000, 1500}, .count = 4, .seed = 3}, count_words);
  ASSERT_EQ(built.size(), 8U);
  std::set<std::string> ids;
  for (const BuiltPrompt& b : built) {
    const std::int32_t wanted = b.prompt.id.find("-1000-") != std::string::npos ? 1000 : 1500;
    EXPECT_EQ(b.tokens, count_words(b.prompt.text));
    EXPECT_LE(b.tokens, wanted) << b.prompt.id;
    EXPECT_GE(b.tokens, wanted - 4) << b.prompt.id;
    ids.insert(b.prompt.id);
  }
  EXPECT_EQ(ids.size(), 8U);
}

TEST_F(PromptBuilder, AsksAtTheEndAboutWhatStandsAtTheBeginning) {
  write_sources();
  const auto all = sources();
  const auto built = build_prompts(all, {.tokens = {1200}, .count = 4, .seed = 5}, count_words);
  std::vector<std::string> categories;
  for (const BuiltPrompt& b : built) {
    categories.push_back(b.prompt.category);
  }
  EXPECT_THAT(
      categories,
      ElementsAre("rewrite-class", "explain-functions", "find-definition", "quote-section"));
  const Quotation& first = built[0].quotations.at(0);
  const SourceText& source = all[first.source];
  const std::string name = source.lines.at(0).substr(2);
  EXPECT_THAT(built[0].prompt.text,
              StartsWith("Here are source files of a Python project.\n\n### " + name +
                         ".py, from line 4\n```python\nclass " + name + "Class:\n"));
  EXPECT_THAT(built[0].prompt.text, HasSubstr("self." + name + "_4 = value + 4\n\n\ndef"));
  EXPECT_THAT(built[0].prompt.text, HasSubstr("Rewrite the whole class " + name + "Class from"));
  EXPECT_THAT(built[0].prompt.text, EndsWith("Answer with one Python code block.\n"));
  EXPECT_THAT(built[3].prompt.text, StartsWith("Here are documents.\n\n### rules.txt"));
}

TEST_F(PromptBuilder, TheQuotationsGiveTheQuotedTextAgain) {
  write_sources();
  const auto all = sources();
  for (const BuiltPrompt& b :
       build_prompts(all, {.tokens = {1100}, .count = 3, .seed = 9}, count_words)) {
    for (const Quotation& q : b.quotations) {
      std::string text;
      for (std::size_t i = q.lines.first; i < q.lines.end; ++i) {
        text += all[q.source].lines.at(i) + "\n";
      }
      if (q.cut_bytes > 0) {
        text += all[q.source].lines.at(q.lines.end).substr(0, q.cut_bytes) + "\n";
      }
      EXPECT_THAT(b.prompt.text, HasSubstr(text + "```\n"));
    }
  }
}

TEST_F(PromptBuilder, RepeatsForASeedAndDiffersForAnother) {
  write_sources();
  const auto texts = [&](std::uint64_t seed) {
    std::vector<std::string> out;
    for (const BuiltPrompt& b :
         build_prompts(sources(), {.tokens = {1000}, .count = 4, .seed = seed}, count_words)) {
      out.push_back(b.prompt.text);
    }
    return out;
  };
  EXPECT_EQ(texts(1), texts(1));
  EXPECT_NE(texts(1), texts(2));
}

TEST_F(PromptBuilder, SaysWhenTheSourcesHoldTooLittle) {
  write_file("m.py", module_text("m"));
  expect_error(Errc::kResourceExhausted, "fewer than 1000; name folders with more text", [&] {
    (void)build_prompts(sources(), {.tokens = {1000}}, count_words);
  });
  expect_error(Errc::kResourceExhausted, "no further question", [&] {
    (void)build_prompts({}, {.tokens = {1000}}, count_words);
  });
  write_sources();
  expect_error(Errc::kResourceExhausted, "ask for fewer prompts", [&] {
    (void)build_prompts(sources(), {.tokens = {1000}, .count = 500}, count_words);
  });
}

TEST_F(PromptBuilder, RefusesLengthsOutOfRangeAndTwice) {
  for (const std::int32_t tokens : {0, 999, 100'001}) {
    expect_error(Errc::kInvalidArgument, "1000 to 100000 can be built", [&] {
      (void)build_prompts({}, {.tokens = {tokens}}, count_words);
    });
  }
  expect_error(Errc::kInvalidArgument, "asked for twice", [&] {
    (void)build_prompts({}, {.tokens = {1000, 1000}}, count_words);
  });
}

TEST_F(PromptBuilder, CutsOnlyAtCharactersOfUtf8) {
  write_sources();
  std::string line;
  for (int i = 0; i < 30'000; ++i) {
    line += "\xC3\xA9";
  }
  for (int i = 0; i < 10; ++i) {
    write_file(fmt::format("m{}.py", i), module_text(fmt::format("m{}", i)) + "# " + line + "\n");
  }
  const auto bytes = [](std::string_view text) { return static_cast<std::int32_t>(text.size()); };
  for (const BuiltPrompt& b : build_prompts(sources(), {.tokens = {4001}, .count = 3}, bytes)) {
    EXPECT_THAT(parse_prompt_set(to_json_line(b.prompt), "set"), ElementsAre(b.prompt));
    EXPECT_GE(b.tokens, 4001 - 16);
  }
}

TEST_F(PromptBuilder, FindsTextAndLeavesOutTheRest) {
  const std::string text(1200, 'a');
  write_file("b.py", text + "b");
  write_file("a/c.txt", text + "c\r\nlast");
  write_file("copy.txt", text + "b");                     // the same bytes as b.py
  write_file("test/t.py", text + "t");                    // a test
  write_file("short.md", "too short");                    // below 1 kB
  write_file("binary.txt", text + std::string(1, '\0'));  // not text
  write_file("latin1.txt", text + "\xE9");
  write_file("image.png", text + "p");
  write_file("Makefile", text + "m");
  write_file("Licence-2.0", text + "l");
  const auto found = sources();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].file, "Licence-2.0");
  EXPECT_EQ(found[1].file, "a/c.txt");
  EXPECT_FALSE(found[1].python);
  EXPECT_THAT(found[1].lines, ElementsAre(text + "c", "last"));
  EXPECT_EQ(found[2].file, "b.py");
  EXPECT_TRUE(found[2].python);
  expect_error(Errc::kNotFound, "is not a folder", [&] {
    (void)find_sources(std::vector<fs::path>{folder_.path() / "none"});
  });
}

TEST(SourceText, DefinitionsEndWhereTheMarginIsReached) {
  SourceText s;
  s.lines = {"import x",
             "@decorated",
             "def f(a,",
             "      b",
             "):",
             "    return a",
             "",
             "# about the next",
             "class C(B):",
             "    def g(self):",
             "",
             "        pass",
             "x = 1"};
  const auto found = definitions(s);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].name, "f");
  EXPECT_FALSE(found[0].is_class);
  EXPECT_EQ(found[0].lines.first, 2U);
  EXPECT_EQ(found[0].lines.end, 6U);
  EXPECT_EQ(found[1].name, "C");
  EXPECT_TRUE(found[1].is_class);
  EXPECT_EQ(found[1].lines.first, 8U);
  EXPECT_EQ(found[1].lines.end, 12U);
}

TEST(SourceText, ParagraphsAreSeparatedByEmptyLines) {
  SourceText s;
  s.lines = {"", "a", "b", " ", "", "c"};
  const auto found = paragraphs(s);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].first, 1U);
  EXPECT_EQ(found[0].end, 3U);
  EXPECT_EQ(found[1].first, 5U);
  EXPECT_EQ(found[1].end, 6U);
  EXPECT_EQ(byte_count(s, found[0]), 4U);
}

}  // namespace
}  // namespace rift::eval
