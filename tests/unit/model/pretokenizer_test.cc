// SPDX-License-Identifier: Apache-2.0
#include "model/pretokenizer.h"

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rift::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string_view> split(std::string_view name, std::string_view text) {
  return PreTokenizer(find_pretokenizer(name)->patterns).split(text);
}

TEST(PreTokenizer, CutsCodeAsQwen2Does) {
  EXPECT_THAT(split("qwen2", "if x1 >= 10:\n\n    it's"),
              ElementsAre("if", " x", "1", " >=", " ", "1", "0", ":\n\n", "   ", " it", "'s"));
}

TEST(PreTokenizer, GroupsUpToThreeDigitsAsLlama3Does) {
  EXPECT_THAT(split("llama-bpe", "12345"), ElementsAre("123", "45"));
}

TEST(PreTokenizer, CutsDigitsBeforeWordsAsSmolLmDoes) {
  // The space before a digit stays alone, since the digits were cut out first.
  EXPECT_THAT(split("smollm", "a 12 b"), ElementsAre("a", " ", "1", "2", " b"));
  EXPECT_THAT(split("gpt-2", "a 12 b"), ElementsAre("a", " 12", " b"));
}

TEST(PreTokenizer, GivesBytesThatAreNotUtf8TheirOwnPiece) {
  EXPECT_THAT(split("gpt-2",
                    "ab\xFF\xFE"
                    "cd\xE2\x82"),
              ElementsAre("ab", "\xFF\xFE", "cd", "\xE2\x82"));
  EXPECT_THAT(split("gpt-2", ""), IsEmpty());
}

TEST(PreTokenizer, AllKnownPatternsKeepEveryByte) {
  const std::string text = "x\r\n  y\t\u4e16\u754c 12,\u00a0don't\u2003\n\n!?";
  std::size_t begin = 0;
  const std::string names = known_pretokenizers() + ", ";
  for (std::size_t end; (end = names.find(", ", begin)) != names.npos; begin = end + 2) {
    std::string joined;
    for (const auto piece : split(names.substr(begin, end - begin), text)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text) << names.substr(begin, end - begin);
  }
}

TEST(PreTokenizer, StopsAPatternThatBacktracksWithoutEnd) {
  const PreTokenizer slow({R"((a+)+$)"});
  EXPECT_THROW((void)slow.split(std::string(40, 'a') + "b"), Error);
}

TEST(PreTokenizer, DoesNotKnowOtherNames) { EXPECT_EQ(find_pretokenizer("QWEN2"), nullptr); }

}  // namespace
}  // namespace rift::model
