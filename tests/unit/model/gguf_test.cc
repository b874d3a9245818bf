// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include "common/error.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/gguf_builder.h"
#include "tests/unit/model/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace rift::model {
namespace {

using ::testing::ElementsAre;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;

void expect_refused(const GgufBuilder& b, Errc code, std::string_view phrase) {
  expect_error(code, phrase, [&] { (void)GgufFile::parse(b.bytes(), "tiny.gguf"); });
}

// One F32 tensor "a" [4] with the value 1, 2, 3, 4.
GgufBuilder one_tensor(std::uint32_t version) {
  GgufBuilder b;
  b.header(1, 0, version).tensor("a", {4}, 0, 0).data(16);
  GgufBuilder values;
  values.put(1.0F).put(2.0F).put(3.0F).put(4.0F);
  return b.overwrite_tail(values.text());
}

TEST(Gguf, ReadsATensorOfVersions2And3) {
  for (const std::uint32_t version : {2U, 3U}) {
    const GgufBuilder b = one_tensor(version);
    const auto file = GgufFile::parse(b.bytes(), "tiny.gguf");
    EXPECT_EQ(file->version(), version);
    ASSERT_EQ(file->tensors().size(), 1U);
    const GgufTensor* tensor = file->find_tensor("a");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, DType::kF32);
    EXPECT_THAT(tensor->dims, ElementsAre(4, 1, 1, 1));
    EXPECT_EQ(tensor->bytes, 16U);
    float third = 0;
    std::memcpy(&third, tensor->data + 8, 4);
    EXPECT_EQ(third, 3.0F);
    EXPECT_EQ(file->find_tensor("b"), nullptr);
  }
}

TEST(Gguf, ReadsEveryTypeOfValue) {
  GgufBuilder b;
  b.header(0, 12);
  b.key("u8", 0).put<std::uint8_t>(200);
  b.key("i8", 1).put<std::int8_t>(-100);
  b.key("u16", 2).put<std::uint16_t>(60000);
  b.key("i16", 3).put<std::int16_t>(-30000);
  b.key("u32", 4).put<std::uint32_t>(4000000000U);
  b.key("i32", 5).put<std::int32_t>(-2000000000);
  b.key("f32", 6).put(0.5F);
  b.key("bool", 7).put<std::uint8_t>(1);
  b.key("string", 8).string("h\xc3\xa9");
  b.key("u64", 10).put<std::uint64_t>(1ULL << 40);
  b.key("i64", 11).put<std::int64_t>(-(1LL << 40));
  b.key("f64", 12).put(0.25);
  const auto file = GgufFile::parse(b.bytes(), "tiny.gguf");
  EXPECT_EQ(file->integer("u8"), 200);
  EXPECT_EQ(file->integer("i8"), -100);
  EXPECT_EQ(file->integer("u16"), 60000);
  EXPECT_EQ(file->integer("i16"), -30000);
  EXPECT_EQ(file->integer("u32"), 4000000000LL);
  EXPECT_EQ(file->integer("i32"), -2000000000);
  EXPECT_EQ(file->number("f32"), 0.5);
  EXPECT_EQ(file->boolean("bool"), true);
  EXPECT_EQ(file->string("string"), "h\xc3\xa9");
  EXPECT_EQ(file->integer("u64"), 1LL << 40);
  EXPECT_EQ(file->integer("i64"), -(1LL << 40));
  EXPECT_EQ(file->number("f64"), 0.25);
  EXPECT_EQ(file->number("i8"), -100.0);
  EXPECT_EQ(file->integer("absent"), std::nullopt);
  EXPECT_EQ(file->metadata()[8].first, "string");
}

TEST(Gguf, ReadsArraysOfNumbersAndStrings) {
  GgufBuilder b;
  b.header(0, 3);
  b.key("types", 9).put<std::uint32_t>(5).put<std::uint64_t>(3);
  b.put<std::int32_t>(1).put<std::int32_t>(-2).put<std::int32_t>(3);
  b.key("tokens", 9).put<std::uint32_t>(8).put<std::uint64_t>(2).string("a").string("");
  b.key("none", 9).put<std::uint32_t>(6).put<std::uint64_t>(0);
  const auto file = GgufFile::parse(b.bytes(), "tiny.gguf");
  const GgufValue* types = file->find("types");
  ASSERT_NE(types, nullptr);
  EXPECT_TRUE(types->is_array());
  EXPECT_EQ(types->size(), 3U);
  EXPECT_EQ(types->integer(1), -2);
  EXPECT_THAT(file->find("tokens")->strings(), ElementsAre("a", ""));
  EXPECT_EQ(file->find("none")->size(), 0U);
}

TEST(Gguf, NamesAKeyOfAnotherKind) {
  GgufBuilder b;
  b.header(0, 1).key_string("general.alignment", "32");
  expect_refused(b, Errc::kCorrupt, "'general.alignment' is of type string, expected an integer");
}

TEST(Gguf, RefusesAFileThatIsNotGguf) {
  expect_refused(GgufBuilder().raw("PK\x03\x04____"), Errc::kCorrupt, "not a GGUF file");
  expect_refused(GgufBuilder(), Errc::kCorrupt, "not a GGUF file");
  expect_refused(GgufBuilder().raw("GG"), Errc::kCorrupt, "not a GGUF file");
}

TEST(Gguf, RefusesVersion1AndUnknownVersionsAndBigEndian) {
  expect_refused(GgufBuilder().header(0, 0, 1), Errc::kUnsupported, "GGUF version 1;");
  expect_refused(GgufBuilder().header(0, 0, 4), Errc::kUnsupported, "GGUF version 4;");
  expect_refused(GgufBuilder().header(0, 0, 0x03000000), Errc::kUnsupported, "big-endian");
}

TEST(Gguf, RefusesCountsThatCannotFit) {
  expect_refused(
      GgufBuilder().header(kHuge, 0), Errc::kCorrupt, "9223372036854775808 tensors cannot fit");
  expect_refused(GgufBuilder().header(0, kHuge),
                 Errc::kCorrupt,
                 "9223372036854775808 metadata keys cannot fit");
}

TEST(Gguf, RefusesStringsLongerThanTheFile) {
  GgufBuilder key;
  key.header(0, 1).put(kHuge).raw("a key that goes on");
  expect_refused(key, Errc::kCorrupt, "a metadata key needs 9223372036854775808 bytes");
  GgufBuilder value;
  value.header(0, 1).key("k", 8).put<std::uint64_t>(~0ULL).raw("text");
  expect_refused(value, Errc::kCorrupt, "the value of key 'k' needs 18446744073709551615 bytes");
}

TEST(Gguf, RefusesArraysThatCannotFit) {
  for (const std::uint32_t type : {0U, 8U, 12U}) {
    GgufBuilder b;
    b.header(0, 1).key("k", 9).put(type).put(kHuge).raw("0123456789");
    expect_refused(b, Errc::kCorrupt, "9223372036854775808 elements of the array of key 'k'");
  }
}

TEST(Gguf, RefusesNestedArrays) {
  GgufBuilder b;
  b.header(0, 1).key("k", 9).put<std::uint32_t>(9).put<std::uint64_t>(1);
  b.put<std::uint32_t>(9).put<std::uint64_t>(1);
  expect_refused(b, Errc::kUnsupported, "'k' is an array of arrays");
}

TEST(Gguf, RefusesUnknownValueTypes) {
  GgufBuilder b;
  b.header(0, 1).key("k", 13).put<std::uint64_t>(0);
  expect_refused(b, Errc::kCorrupt, "'k' has value type 13");
}

TEST(Gguf, RefusesBadUtf8InKeysAndVocabulary) {
  GgufBuilder key;
  key.header(0, 1).key_u32("general.\xff", 1);
  expect_refused(key, Errc::kCorrupt, "a metadata key is not valid UTF-8 at byte 8");
  GgufBuilder vocab;
  vocab.header(0, 1).key("tokenizer.ggml.tokens", 9).put<std::uint32_t>(8).put<std::uint64_t>(2);
  vocab.string("fine").string("\xc0\x80");  // an overlong form
  expect_refused(vocab, Errc::kCorrupt, "'tokenizer.ggml.tokens' is not valid UTF-8 at byte 0");
}

TEST(Gguf, RefusesDuplicateKeysAndTensors) {
  GgufBuilder keys;
  keys.header(0, 2).key_u32("k", 1).key_u32("k", 2);
  expect_refused(keys, Errc::kCorrupt, "duplicate metadata key 'k'");
  GgufBuilder tensors;
  tensors.header(2, 0).tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).data(64);
  expect_refused(tensors, Errc::kCorrupt, "duplicate tensor 'a'");
}

TEST(Gguf, RefusesAlignmentsThatAreNoPowerOfTwo) {
  for (const std::uint32_t alignment : {0U, 3U, 24U, 0x80000000U}) {
    GgufBuilder b;
    b.header(0, 1).key_u32("general.alignment", alignment);
    expect_refused(b, Errc::kCorrupt, "not a power of two");
  }
}

TEST(Gguf, HonoursAnotherAlignment) {
  GgufBuilder b;
  b.header(1, 1).key_u32("general.alignment", 128).tensor("a", {2}, 0, 0).data(8, 128);
  GgufBuilder value;
  value.put(7.0F).put(8.0F);
  b.overwrite_tail(value.text());
  const auto file = GgufFile::parse(b.bytes(), "tiny.gguf");
  float first = 0;
  std::memcpy(&first, file->tensors()[0].data, 4);
  EXPECT_EQ(first, 7.0F);
}

TEST(Gguf, RefusesZeroAndOverflowingDimensions) {
  GgufBuilder zero;
  zero.header(1, 0).tensor("a", {4, 0}, 0, 0).data(16);
  expect_refused(zero, Errc::kCorrupt, "dimension 1 of tensor 'a' is zero");
  GgufBuilder product;
  product.header(1, 0).tensor("a", {1ULL << 32, 1ULL << 32}, 0, 0).data(16);
  expect_refused(product, Errc::kCorrupt, "dimensions of tensor 'a' overflow");
  GgufBuilder negative;
  negative.header(1, 0).tensor("a", {kHuge}, 0, 0).data(16);
  expect_refused(negative, Errc::kCorrupt, "dimensions of tensor 'a' overflow");
  GgufBuilder bytes;
  bytes.header(1, 0).tensor("a", {1ULL << 62}, 0, 0).data(16);
  expect_refused(bytes, Errc::kCorrupt, "size of tensor 'a' overflows");
}

TEST(Gguf, RefusesTooManyOrNoDimensions) {
  GgufBuilder many;
  many.header(1, 0).tensor("a", {1, 1, 1, 1, 1}, 0, 0).data(16);
  expect_refused(many, Errc::kCorrupt, "tensor 'a' has 5 dimensions");
  GgufBuilder none;
  none.header(1, 0).tensor("a", {}, 0, 0).data(32);
  expect_refused(none, Errc::kCorrupt, "tensor 'a' has 0 dimensions");
}

TEST(Gguf, RefusesRowsThatAreNoWholeBlocks) {
  GgufBuilder b;
  b.header(1, 0).tensor("a", {100, 2}, 12, 0).data(1000);
  expect_refused(b, Errc::kCorrupt, "not a multiple of the 256 of a Q4_K block");
}

TEST(Gguf, RefusesTensorsPastTheEnd) {
  GgufBuilder size;
  size.header(1, 0).tensor("a", {5}, 0, 0).data(16);
  expect_refused(size, Errc::kCorrupt, "tensor 'a' (20 bytes at 0 of the data) ends past the file");
  GgufBuilder offset;
  offset.header(1, 0).tensor("a", {4}, 0, ~0ULL - 31).data(16);
  expect_refused(offset, Errc::kCorrupt, "ends past the file");
  GgufBuilder no_data;
  no_data.header(1, 0).tensor("a", {4}, 0, 0);
  expect_refused(no_data, Errc::kCorrupt, "ends past the file");
}

TEST(Gguf, RefusesUnalignedOffsets) {
  GgufBuilder b;
  b.header(1, 0).tensor("a", {4}, 0, 8).data(64);
  expect_refused(b, Errc::kCorrupt, "offset 8 of tensor 'a' is not a multiple of the alignment 32");
}

TEST(Gguf, ListsTensorsOfTypesThatCannotBeComputedWith) {
  GgufBuilder b;
  b.header(2, 0).tensor("iq", {256}, 16, 0).tensor("new", {4}, 77, 96).data(128);
  const auto file = GgufFile::parse(b.bytes(), "tiny.gguf");
  EXPECT_EQ(file->find_tensor("iq")->type_name, "IQ2_XXS");
  EXPECT_EQ(file->find_tensor("iq")->dtype, std::nullopt);
  EXPECT_EQ(file->find_tensor("iq")->bytes, 66U);
  EXPECT_EQ(file->find_tensor("new")->type_name, "type 77");
  EXPECT_EQ(file->find_tensor("new")->bytes, std::nullopt);
}

TEST(Gguf, RefusesEveryTruncationOfAFile) {
  const GgufBuilder whole = tiny_model("llama", tiny_llama_tensors());
  ASSERT_NO_THROW((void)GgufFile::parse(whole.bytes(), "tiny.gguf"));
  for (std::size_t size = 0; size < whole.bytes().size(); ++size) {
    EXPECT_THROW((void)GgufFile::parse(whole.bytes().first(size), "tiny.gguf"), Error) << size;
  }
}

GgufBuilder split_part(std::uint16_t number, std::uint16_t count, std::string_view tensor) {
  GgufBuilder b;
  b.header(1, 3).key_u16("split.no", number).key_u16("split.count", count);
  b.key("split.tensors.count", 5).put<std::int32_t>(2);
  b.tensor(tensor, {4}, 0, 0).data(16);
  return b;
}

TEST(SplitGguf, OpensAllPartsFromTheFirst) {
  const TemporaryFolder folder;
  split_part(0, 2, "a").save(folder.path() / "m-00001-of-00002.gguf");
  split_part(1, 2, "b").save(folder.path() / "m-00002-of-00002.gguf");
  const auto file = GgufFile::open(folder.path() / "m-00001-of-00002.gguf");
  ASSERT_EQ(file->tensors().size(), 2U);
  EXPECT_NE(file->find_tensor("b"), nullptr);
}

TEST(SplitGguf, NamesAMissingPart) {
  const TemporaryFolder folder;
  split_part(0, 2, "a").save(folder.path() / "m-00001-of-00002.gguf");
  expect_error(Errc::kNotFound, "m-00002-of-00002.gguf", [&] {
    (void)GgufFile::open(folder.path() / "m-00001-of-00002.gguf");
  });
}

TEST(SplitGguf, AsksForTheFirstPart) {
  const TemporaryFolder folder;
  split_part(1, 2, "b").save(folder.path() / "m-00002-of-00002.gguf");
  expect_error(Errc::kInvalidArgument, "open the first, m-00001-of-00002.gguf", [&] {
    (void)GgufFile::open(folder.path() / "m-00002-of-00002.gguf");
  });
}

TEST(SplitGguf, RefusesPartsThatDoNotBelongTogether) {
  const TemporaryFolder folder;
  split_part(0, 2, "a").save(folder.path() / "m-00001-of-00002.gguf");
  split_part(0, 3, "b").save(folder.path() / "m-00002-of-00002.gguf");
  expect_error(Errc::kMismatch, "belongs to another set", [&] {
    (void)GgufFile::open(folder.path() / "m-00001-of-00002.gguf");
  });
  split_part(1, 2, "a").save(folder.path() / "m-00002-of-00002.gguf");
  expect_error(Errc::kCorrupt, "duplicate tensor 'a'", [&] {
    (void)GgufFile::open(folder.path() / "m-00001-of-00002.gguf");
  });
  split_part(0, 2, "a").save(folder.path() / "renamed.gguf");
  expect_error(Errc::kMismatch, "original names", [&] {
    (void)GgufFile::open(folder.path() / "renamed.gguf");
  });
}

TEST(Gguf, IsNotFoundWhereThereIsNoFileAndRefusesAFolder) {
  expect_error(Errc::kNotFound, "/nowhere", [] { (void)GgufFile::open("/nowhere/a.gguf"); });
  expect_error(Errc::kIo, "not a regular file", [] { (void)GgufFile::open("/tmp"); });
}

}  // namespace
}  // namespace rift::model
