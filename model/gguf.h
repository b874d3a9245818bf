// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "model/mapped_file.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rift::model {

/// Type of a metadata value, numbered as in the file.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// "u32", "string", ...
[[nodiscard]] std::string_view to_string(GgufType type);

/// One metadata value, or an array of values of one type: a view into the file's bytes.
/// Value type; lives as long as the GgufFile.
class GgufValue {
 public:
  GgufValue(GgufType type, bool array, std::uint64_t count, std::span<const std::byte> bytes)
      : type_(type), array_(array), count_(count), bytes_(bytes) {}
  GgufValue(GgufType type, bool array, std::vector<std::string_view> strings)
      : type_(type), array_(array), count_(strings.size()), strings_(std::move(strings)) {}

  /// Type of the value, or of the array's elements.
  [[nodiscard]] GgufType type() const { return type_; }
  [[nodiscard]] bool is_array() const { return array_; }
  /// Elements of the array; 1 for a single value.
  [[nodiscard]] std::uint64_t size() const { return count_; }

  /// Element i < size() as an integer: integer and bool types whose value fits; nothing otherwise.
  [[nodiscard]] std::optional<std::int64_t> integer(std::uint64_t i = 0) const;
  /// Element i < size() as a number: all integer and float types; nothing otherwise.
  [[nodiscard]] std::optional<double> number(std::uint64_t i = 0) const;
  [[nodiscard]] std::optional<bool> boolean(std::uint64_t i = 0) const;
  [[nodiscard]] std::optional<std::string_view> string(std::uint64_t i = 0) const;
  /// All strings of a string array; empty for other types. Well-formed UTF-8.
  [[nodiscard]] std::span<const std::string_view> strings() const { return strings_; }

 private:
  GgufType type_;
  bool array_;
  std::uint64_t count_;
  std::span<const std::byte> bytes_;
  std::vector<std::string_view> strings_;
};

/// One entry of the tensor table. dims as in the file, fastest-varying first: a weight matrix has
/// dims[0] = cols and dims[1] = rows; unused dims are 1.
struct GgufTensor {
  std::string_view name;
  std::uint32_t rank = 0;
  std::array<std::int64_t, 4> dims{1, 1, 1, 1};
  std::uint32_t type_number = 0;       // as in the file
  std::string type_name;               // "Q4_K"; "type 77" where the number is unknown
  std::optional<DType> dtype;          // empty: cannot be computed with
  const std::byte* data = nullptr;     // into the mapping, any alignment
  std::optional<std::uint64_t> bytes;  // empty where the type's size is unknown

  [[nodiscard]] std::int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
};

/// A GGUF file, version 2 or 3, little-endian, or all parts of a split one. Everything is checked
/// against the file's size before it is used; memory taken is proportional to the file's header.
/// Immutable. Thread: any.
class GgufFile {
 public:
  /// path: a whole file, or the first of a split set (`-00001-of-0000N.gguf`; the others are beside
  /// it). Errors (thrown): kNotFound, kIo, kCorrupt, kUnsupported (version 1, big-endian, nested
  /// arrays), kMismatch (parts that do not belong together).
  [[nodiscard]] static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
  /// One file held in memory; `bytes` outlive the result. Other parts of a split set are not looked
  /// for. `name` is used in messages. Errors as open().
  [[nodiscard]] static std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes,
                                                             std::string name);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::uint32_t version() const { return version_; }
  [[nodiscard]] std::uint64_t alignment() const { return alignment_; }
  /// Bytes of all parts.
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }

  /// Keys in file order; those of the first part.
  [[nodiscard]] std::span<const std::pair<std::string_view, GgufValue>> metadata() const {
    return metadata_;
  }
  /// nullptr where the key is absent.
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  /// Value of `key`, nothing where it is absent. Errors (thrown): kCorrupt where the value is of
  /// another kind; the message names the key.
  [[nodiscard]] std::optional<std::int64_t> integer(std::string_view key) const;
  [[nodiscard]] std::optional<double> number(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> string(std::string_view key) const;

  /// All parts' tensors, in file order.
  [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }
  [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  void append_part(GgufFile part);

  std::string name_;
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::unordered_map<std::string_view, std::size_t> metadata_index_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;
  std::vector<MappedFile> mappings_;
};

}  // namespace rift::model
