// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer.h"

#include "common/error.h"
#include "model/bpe_tokenizer.h"
#include "model/gguf.h"
#include "tests/unit/model/gguf_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace rift::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// UTF-8 of a code point below U+0800.
std::string utf8(unsigned code_point) {
  if (code_point < 0x80) {
    return {static_cast<char>(code_point)};
  }
  return {static_cast<char>(0xC0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3F))};
}

// The 256 single-byte tokens, byte b with id b, written out from GPT-2's definition: printable
// Latin-1 bytes are themselves, the others U+0100 and up.
std::vector<std::string> byte_texts() {
  std::vector<std::string> texts;
  unsigned next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const bool printable = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
    texts.push_back(utf8(printable ? b : next++));
  }
  return texts;
}

constexpr TokenId kAb = 256;
constexpr TokenId kAbc = 257;
constexpr TokenId kBc = 258;
constexpr TokenId kSpaceA = 259;
constexpr TokenId kEnd = 260;       // control
constexpr TokenId kCall = 261;      // user-defined
constexpr TokenId kCallLong = 262;  // user-defined, starts with the one above

TokenizerData data() {
  TokenizerData d;
  d.source = "test";
  for (std::string& text : byte_texts()) {
    d.tokens.push_back({std::move(text), TokenKind::kText});
  }
  d.tokens.push_back({"ab", TokenKind::kText});
  d.tokens.push_back({"abc", TokenKind::kText});
  d.tokens.push_back({"bc", TokenKind::kText});
  d.tokens.push_back({"\u0120a", TokenKind::kText});
  d.tokens.push_back({"<|im_end|>", TokenKind::kControl});
  d.tokens.push_back({"<call>", TokenKind::kUserDefined});
  d.tokens.push_back({"<call>s", TokenKind::kUserDefined});
  d.merges = {"b c", "a b", "ab c", "\u0120 a"};
  use_pretokenizer(d, "gpt-2");
  return d;
}

TEST(Tokenizer, MergesInTheOrderOfLearning) {
  const BpeTokenizer t(data());
  // "b c" was learned first, so "abc" stays a + bc although "ab c" exists.
  EXPECT_THAT(t.encode("abc", false), ElementsAre('a', kBc));
  EXPECT_THAT(t.encode("ab", false), ElementsAre(kAb));
  EXPECT_THAT(t.encode("abab abc", false), ElementsAre(kAb, kAb, kSpaceA, kBc));
  EXPECT_THAT(t.encode("", false), IsEmpty());
}

TEST(Tokenizer, TakesAPieceWholeWhereMergesAreIgnored) {
  TokenizerData d = data();
  d.ignore_merges = true;
  const BpeTokenizer t(std::move(d));
  EXPECT_THAT(t.encode("abc", false), ElementsAre(kAbc));
  EXPECT_THAT(t.encode("abca", false), ElementsAre('a', kBc, 'a'));
}

TEST(Tokenizer, MergesEqualPairsFromTheLeft) {
  TokenizerData d = data();
  d.tokens.push_back({"aa", TokenKind::kText});
  d.merges = {"a a"};
  const BpeTokenizer t(std::move(d));
  EXPECT_THAT(t.encode("aaaaa", false), ElementsAre(263, 263, 'a'));
}

TEST(Tokenizer, KeepsControlTokensInPlainTextPlain) {
  const BpeTokenizer t(data());
  EXPECT_THAT(t.encode("a<|im_end|>", true), ElementsAre('a', kEnd));
  const auto plain = t.encode("a<|im_end|>", false);
  EXPECT_EQ(plain.size(), 11U);
  EXPECT_EQ(t.decode(plain), "a<|im_end|>");
}

TEST(Tokenizer, FindsUserDefinedTokensInAnyText) {
  const BpeTokenizer t(data());
  EXPECT_THAT(t.encode("b<call>b", false), ElementsAre('b', kCall, 'b'));
  EXPECT_THAT(t.encode("<<call>s", true), ElementsAre('<', kCallLong));
  EXPECT_EQ(t.decode(std::vector<TokenId>{kCallLong}), "<call>s");
}

TEST(Tokenizer, NamesControlTokensAndHidesTheirBytes) {
  const BpeTokenizer t(data());
  EXPECT_EQ(t.piece(kEnd), "");
  EXPECT_EQ(t.control_name(kEnd), "<|im_end|>");
  EXPECT_EQ(t.control_id("<|im_end|>"), kEnd);
  EXPECT_EQ(t.control_id("<call>"), std::nullopt);
  EXPECT_EQ(t.control_name(kCall), "");
  EXPECT_TRUE(t.is_end_of_generation(kEnd));
  EXPECT_FALSE(t.is_end_of_generation(kCall));
  EXPECT_EQ(t.piece(-1), "");
  EXPECT_EQ(t.piece(100000), "");
}

TEST(Tokenizer, GivesBackAnyBytes) {
  const BpeTokenizer t(data());
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::string text(random() % 60, '\0');
    for (char& c : text) {
      c = static_cast<char>(random());
    }
    EXPECT_EQ(t.decode(t.encode(text, false)), text) << "round " << round;
  }
  for (const std::string& text :
       {std::string("\xC3"), std::string("a\xE2\x82"), std::string("\0", 1)}) {
    EXPECT_EQ(t.decode(t.encode(text, false)), text);
  }
}

TEST(Tokenizer, LeavesOutBytesThatTheVocabularyLacks) {
  TokenizerData d = data();
  d.tokens[0xFF] = {"", TokenKind::kUnused};
  const BpeTokenizer t(std::move(d));
  EXPECT_THAT(t.encode("\xFF"
                       "a\xFF",
                       false),
              ElementsAre('a'));
  EXPECT_THAT(t.encode("\xFF", false), IsEmpty());
}

// A quadratic algorithm would need hours for these; the bound is far above what is needed, so that
// a busy machine passes.
TEST(Tokenizer, EncodesAMegabyteWithoutSpacesInSeconds) {
  const BpeTokenizer t(data());
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& unit :
       {std::string("ab"), std::string(" "), std::string("\xFF"), std::string("<")}) {
    std::string text;
    while (text.size() < (1U << 20) / unit.size()) {
      text += unit;
    }
    EXPECT_EQ(t.decode(t.encode(text, true)), text);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Tokenizer, HashLeavesOutThePaddingAtTheEnd) {
  TokenizerData padded = data();
  padded.tokens.push_back({"[PAD263]", TokenKind::kUnused});
  const BpeTokenizer a(data());
  const BpeTokenizer b(std::move(padded));
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_EQ(first_difference(a, b), std::nullopt);
  EXPECT_EQ(a.hash().size(), 64U);
}

TEST(Tokenizer, FirstDifferenceNamesTheTokenAndBothTexts) {
  TokenizerData other = data();
  other.tokens[kBc].text = "bd";
  other.merges = {};
  const BpeTokenizer a(data());
  const BpeTokenizer b(std::move(other));
  EXPECT_NE(a.hash(), b.hash());
  EXPECT_EQ(first_difference(a, b), "token 258 is 'bc' in one and 'bd' in the other");

  TokenizerData kinds = data();
  kinds.tokens[kEnd].kind = TokenKind::kUserDefined;
  const BpeTokenizer c(std::move(kinds));
  EXPECT_NE(a.hash(), c.hash());
  EXPECT_EQ(first_difference(a, c),
            "token 260 is the control token '<|im_end|>' in one and '<|im_end|>' in the other");
}

TEST(Tokenizer, RefusesAMergeOfUnknownTokens) {
  for (const char* merge : {"a zz", "a", "", "a ", "b a", "\u4e16 a"}) {
    TokenizerData d = data();
    d.merges.push_back(merge);
    try {
      const BpeTokenizer t(std::move(d));
      FAIL() << merge;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kCorrupt) << merge;
      EXPECT_THAT(error.message(), HasSubstr("merge 4")) << merge;
    }
  }
}

// ---- from GGUF metadata ----

struct GgufFields {
  std::string model = "gpt2";
  std::string pre = "gpt-2";
  std::vector<std::int32_t> kinds = std::vector<std::int32_t>(258, 1);
  std::uint32_t eos = 257;
};

// Numbers of the file format's value types.
constexpr std::uint32_t kI32 = 5;
constexpr std::uint32_t kString = 8;
constexpr std::uint32_t kArray = 9;

TokenizerData from_gguf(const GgufFields& fields, const std::optional<std::string>& pre = {}) {
  auto texts = byte_texts();
  texts.push_back("ab");
  texts.push_back("[PAD257]");
  GgufBuilder file;
  file.header(0, fields.pre.empty() ? 7 : 8).key_string("tokenizer.ggml.model", fields.model);
  if (!fields.pre.empty()) {
    file.key_string("tokenizer.ggml.pre", fields.pre);
  }
  file.key("tokenizer.ggml.tokens", kArray).put(kString).put<std::uint64_t>(texts.size());
  for (const std::string& text : texts) {
    file.string(text);
  }
  file.key("tokenizer.ggml.token_type", kArray).put(kI32).put<std::uint64_t>(fields.kinds.size());
  for (const std::int32_t kind : fields.kinds) {
    file.put(kind);
  }
  file.key("tokenizer.ggml.merges", kArray).put(kString).put<std::uint64_t>(1).string("a b");
  file.key_u32("tokenizer.ggml.eos_token_id", fields.eos);
  file.key_u32("tokenizer.ggml.bos_token_id", 1);
  file.key_string("tokenizer.chat_template", "{{ x }}");
  const auto parsed = GgufFile::parse(file.bytes(), "test.gguf");
  return read_tokenizer(*parsed, pre);
}

void expect_error(Errc code, const std::string& part, const std::function<void()>& action) {
  try {
    action();
    FAIL() << "no error; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    EXPECT_THAT(error.message(), HasSubstr(part));
  }
}

TEST(TokenizerGguf, ReadsTheMetadata) {
  const BpeTokenizer t(from_gguf({}));
  EXPECT_EQ(t.size(), 258);
  EXPECT_THAT(t.encode("ab", false), ElementsAre(256));
  EXPECT_TRUE(t.is_end_of_generation(257));
  EXPECT_EQ(t.bos(), 1);
  EXPECT_FALSE(t.adds_bos());
  EXPECT_EQ(t.chat_template(), "{{ x }}");
}

TEST(TokenizerGguf, TakesUserDefinedPaddingAsPadding) {
  GgufFields fields;
  fields.kinds[257] = 4;
  EXPECT_EQ(from_gguf(fields).tokens[257].kind, TokenKind::kUnused);
}

TEST(TokenizerGguf, RefusesWhatItDoesNotKnowAndNamesTheOverride) {
  GgufFields fields;
  fields.pre = "mystery";
  expect_error(Errc::kUnsupported, "'mystery'", [&] { from_gguf(fields); });
  expect_error(Errc::kUnsupported, "qwen2", [&] { from_gguf(fields); });
  expect_error(Errc::kUnsupported, "--pre", [&] { from_gguf(fields); });
  EXPECT_NO_THROW(from_gguf(fields, "qwen2"));
  expect_error(Errc::kUnsupported, "'nonsense'", [&] { from_gguf(fields, "nonsense"); });
  fields.pre = "";
  expect_error(Errc::kUnsupported, "--pre", [&] { from_gguf(fields); });
  fields = {};
  fields.model = "llama";
  expect_error(Errc::kUnsupported, "'llama'", [&] { from_gguf(fields); });
}

TEST(TokenizerGguf, RefusesWhatDoesNotFitTogether) {
  GgufFields fields;
  fields.kinds.pop_back();
  expect_error(Errc::kCorrupt, "257 entries for 258 tokens", [&] { from_gguf(fields); });
  fields = {};
  fields.eos = 258;
  expect_error(Errc::kCorrupt, "eos_token_id is 258", [&] { from_gguf(fields); });
}

// ---- from tokenizer.json ----

class TokenizerJson : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::shared_ptr<const Tokenizer> open() const {
    return Tokenizer::open(folder_, {});
  }
  static std::string json(const std::string& vocab,
                          const std::string& merges = "[]",
                          const std::string& pre = R"({"type":"ByteLevel"})") {
    return R"({"added_tokens":[{"id":3,"content":"<s>","special":true},)"
           R"({"id":4,"content":"</s>","special":true},{"id":5,"content":"<x>"}],)"
           R"("pre_tokenizer":)" +
           pre + R"(,"post_processor":{"type":"TemplateProcessing","single":)" +
           R"([{"SpecialToken":{"id":"<s>","type_id":0}}]},)" +
           R"("model":{"type":"BPE","vocab":)" + vocab + R"(,"merges":)" + merges + "}}";
  }
  std::filesystem::path folder_;
};

constexpr const char* kVocab = R"({"a":0,"b":1,"ab":2})";

TEST_F(TokenizerJson, ReadsBothFormsOfMerges) {
  for (const char* merges : {R"(["a b"])", R"([["a","b"]])"}) {
    write("tokenizer.json", json(kVocab, merges));
    EXPECT_THAT(open()->encode("aab", false), ElementsAre(0, 2)) << merges;
  }
}

TEST_F(TokenizerJson, ReadsWhatTheFilesBesideItAdd) {
  write("tokenizer.json", json(kVocab));
  write("tokenizer_config.json",
        R"({"bos_token":"<s>","eos_token":{"content":"</s>"},"chat_template":)"
        R"([{"name":"tool_use","template":"no"},{"name":"default","template":"yes"}]})");
  write("generation_config.json", R"({"eos_token_id":[4,5,99]})");
  const auto t = open();
  EXPECT_EQ(t->bos(), 3);
  EXPECT_TRUE(t->adds_bos()) << "the post-processor writes it";
  EXPECT_TRUE(t->is_end_of_generation(4));
  EXPECT_TRUE(t->is_end_of_generation(5));
  EXPECT_FALSE(t->is_end_of_generation(3));
  EXPECT_EQ(t->chat_template(), "yes");
  EXPECT_EQ(t->control_id("<s>"), 3);
  EXPECT_THAT(t->encode("<x>", false), ElementsAre(5));
  write("chat_template.jinja", "separate");
  EXPECT_EQ(open()->chat_template(), "separate");
}

TEST_F(TokenizerJson, RefusesWhatIsNotAByteLevelTokenizer) {
  const auto refused = [&](Errc code, const std::string& part, const std::string& text) {
    write("tokenizer.json", text);
    expect_error(code, part, [&] { (void)open(); });
  };
  refused(Errc::kCorrupt, "JSON", "{");
  refused(Errc::kUnsupported, "tokenizer model", "[]");
  refused(Errc::kUnsupported, "WordPiece", R"({"model":{"type":"WordPiece"}})");
  refused(Errc::kUnsupported, "ByteLevel", json(kVocab, "[]", "null"));
  refused(Errc::kUnsupported, "Metaspace", json(kVocab, "[]", R"({"type":"Metaspace"})"));
  refused(Errc::kUnsupported,
          "does not compile",
          json(kVocab,
               "[]",
               R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Split",)"
               R"("pattern":{"Regex":"("},"behavior":"Isolated"}]})"));
  refused(Errc::kCorrupt, "id 9223372036854775807", json(R"({"a":9223372036854775807})"));
  refused(Errc::kCorrupt, "id -1", json(R"({"a":-1})"));
  refused(Errc::kCorrupt, "two tokens have the id 0", json(R"({"a":0,"b":0})"));
  refused(Errc::kCorrupt, "merge 0", json(kVocab, "[3]"));
  refused(Errc::kCorrupt, "vocab", json("[]"));
}

TEST(TokenizerOpen, NamesAFileThatIsAbsent) {
  expect_error(
      Errc::kNotFound, "no-such.gguf", [] { (void)Tokenizer::open("/tmp/no-such.gguf", {}); });
  expect_error(Errc::kNotFound, "tokenizer.json", [] {
    (void)Tokenizer::open("/tmp/no-such/tokenizer.json", {});
  });
}

}  // namespace
}  // namespace rift::model
