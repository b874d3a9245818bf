// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include "common/error.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/temporary_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

namespace rift::model {
namespace {

using ::testing::ElementsAre;

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(reinterpret_cast<const char*>(&length), 8);
  return text + header + std::string(data_bytes, '\x01');
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

void expect_refused(const std::string& header, std::size_t data_bytes, std::string_view phrase) {
  const std::string text = file_of(header, data_bytes);
  expect_error(Errc::kCorrupt, phrase, [&] {
    (void)Safetensors::parse(bytes_of(text), "tiny.safetensors");
  });
}

void save(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

constexpr auto* kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";

TEST(SafetensorsFile, ListsTensorsInTheOrderOfTheirData) {
  const std::string text = file_of(kTwo, 12);
  const auto file = Safetensors::parse(bytes_of(text), "tiny.safetensors");
  ASSERT_EQ(file->tensors().size(), 2U);
  EXPECT_EQ(file->tensors()[0].name, "a");
  const Safetensor* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, DType::kF32);
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  EXPECT_EQ(b->bytes, 8U);
  EXPECT_EQ(b->data, bytes_of(text).data() + text.size() - 8);
  EXPECT_EQ(file->find("c"), nullptr);
}

TEST(SafetensorsFile, ListsTypesThatCannotBeComputedWith) {
  const std::string text = file_of(R"({"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                                   R"("b":{"dtype":"NEW","shape":[3],"data_offsets":[8,10]}})",
                                   10);
  const auto file = Safetensors::parse(bytes_of(text), "tiny.safetensors");
  EXPECT_EQ(file->find("a")->dtype, std::nullopt);
  EXPECT_EQ(file->find("a")->dtype_name, "I64");
  EXPECT_EQ(file->find("b")->dtype_name, "NEW");
}

TEST(SafetensorsFile, RefusesHeadersThatDoNotFit) {
  for (const std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{9}}) {
    const std::string text = std::string(reinterpret_cast<const char*>(&length), 8) + "{}      ";
    expect_error(Errc::kCorrupt, "does not fit into the file", [&] {
      (void)Safetensors::parse(bytes_of(text), "tiny.safetensors");
    });
  }
  expect_error(Errc::kCorrupt, "too few", [] {
    (void)Safetensors::parse(bytes_of("short"), "tiny.safetensors");
  });
}

TEST(SafetensorsFile, SaysWhereTheJsonIsWrong) {
  expect_refused("{\n \"a\": !}", 0, "not valid JSON at line 2");
  expect_refused("{\"a\":", 0, "ends too early");
  expect_refused("", 0, "ends too early");
  expect_refused("{} x", 0, "text after the end");
  expect_refused("[]", 0, "not a JSON object");
  expect_refused(std::string(100, '[') + std::string(100, ']'), 0, "not valid JSON");
}

TEST(SafetensorsFile, RefusesEntriesThatLackAField) {
  expect_refused(R"({"a":1})", 0, "tensor 'a' is not an object");
  expect_refused(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "has no shape");
  expect_refused(R"({"a":{"dtype":"F32","shape":[1]}})", 4, "has no data_offsets");
  expect_refused(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "has no dtype");
}

TEST(SafetensorsFile, RefusesDimensionsThatAreNoCountsOrOverflow) {
  const auto with_shape = [](const std::string& shape) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,4]}})";
  };
  expect_refused(with_shape("[-1]"), 4, "not a count below 2^63");
  expect_refused(with_shape("[1.5]"), 4, "not a count below 2^63");
  expect_refused(with_shape("[9223372036854775808]"), 4, "not a count below 2^63");
  expect_refused(with_shape("[4294967296,4294967296]"), 4, "overflow");
  expect_refused(with_shape("[0]"), 4, "size mismatch");
  expect_refused(with_shape("[4611686018427387904]"), 4, "size mismatch");
}

TEST(SafetensorsFile, RefusesRangesThatAreWrong) {
  const auto pair = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  expect_refused(pair("[0,4]", "[3,7]"), 7, "overlaps");
  expect_refused(pair("[0,4]", "[0,4]"), 4, "overlaps");
  expect_refused(pair("[0,4]", "[5,9]"), 9, "leaves a hole");
  expect_refused(pair("[0,4]", "[4,8]"), 7, "ends past the file");
  expect_refused(pair("[0,4]", "[4,8]"), 9, "a hole at the end");
  expect_refused(pair("[4,0]", "[4,8]"), 8, "not ascending");
  expect_refused(pair("[0,4]", "[-4,0]"), 8, "not ascending");
  expect_refused(pair("[0,4]", "[4,18446744073709551615]"), 8, "not ascending counts below 2^63");
  expect_refused(pair("[0,3]", "[3,7]"), 7, "size mismatch");
}

TEST(SafetensorsFile, RefusesATensorThatIsThereTwice) {
  // The reader keeps the last of two equal keys; the first one's data is then a hole.
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                 R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                 8,
                 "leaves a hole");
}

TEST(SafetensorsFile, RefusesEveryTruncation) {
  const std::string text = file_of(kTwo, 12);
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW((void)Safetensors::parse(bytes_of(text).first(size), "tiny"), Error) << size;
  }
}

constexpr auto* kA = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
constexpr auto* kB = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";

TEST(SafetensorsIndex, OpensAllItsFiles) {
  const TemporaryFolder folder;
  save(folder.path() / "1.safetensors", file_of(kA, 4));
  save(folder.path() / "2.safetensors", file_of(kB, 2));
  save(folder.path() / "model.safetensors.index.json",
       R"({"metadata":{},"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  const auto file = Safetensors::open(folder.path());
  EXPECT_EQ(file->tensors().size(), 2U);
  EXPECT_NE(file->find("b"), nullptr);
}

TEST(SafetensorsIndex, RefusesFilesOutsideItsFolder) {
  const TemporaryFolder folder;
  for (const std::string name : {"../x.safetensors", "/etc/passwd", "", "a/b"}) {
    save(folder.path() / "model.safetensors.index.json",
         R"({"weight_map":{"a":")" + name + R"("}})");
    expect_error(
        Errc::kCorrupt, "not a plain file name", [&] { (void)Safetensors::open(folder.path()); });
  }
}

TEST(SafetensorsIndex, NamesAMissingFileATensorThatIsNowhereAndADuplicate) {
  const TemporaryFolder folder;
  const auto index = folder.path() / "model.safetensors.index.json";
  save(folder.path() / "1.safetensors", file_of(kA, 4));
  save(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  expect_error(Errc::kNotFound, "2.safetensors", [&] { (void)Safetensors::open(folder.path()); });
  save(index, R"({"weight_map":{"a":"1.safetensors","c":"1.safetensors"}})");
  expect_error(Errc::kCorrupt, "tensor 'c' is listed but in none", [&] {
    (void)Safetensors::open(folder.path());
  });
  save(folder.path() / "2.safetensors", file_of(kA, 4));
  save(index, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  expect_error(
      Errc::kCorrupt, "duplicate tensor 'a'", [&] { (void)Safetensors::open(folder.path()); });
  save(index, R"({"metadata":{}})");
  expect_error(Errc::kCorrupt, "no weight_map", [&] { (void)Safetensors::open(folder.path()); });
}

}  // namespace
}  // namespace rift::model
