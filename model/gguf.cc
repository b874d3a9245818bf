// SPDX-License-Identifier: Apache-2.0
#include "model/gguf.h"

#include "common/error.h"
#include "model/gguf_parser.h"

#include <charconv>
#include <cstring>
#include <limits>

namespace rift::model {
namespace {

constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitNumber = "split.no";
constexpr std::string_view kSplitTensors = "split.tensors.count";

template <typename T>
T load(std::span<const std::byte> bytes, std::uint64_t i) {
  RIFT_CHECK((i + 1) * sizeof(T) <= bytes.size(), "element {}", i);
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// Place of a file in its set, from a name that ends in -00001-of-00003.gguf.
struct SplitName {
  std::string stem;
  int number = 0;
  int count = 0;
};

std::optional<int> five_digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != 5 || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::optional<SplitName> parse_split_name(const std::string& file) {
  constexpr std::string_view kPattern = "-00001-of-00001.gguf";
  if (file.size() < kPattern.size()) {
    return std::nullopt;
  }
  const std::string_view tail = std::string_view(file).substr(file.size() - kPattern.size());
  const auto number = five_digits(tail.substr(1, 5));
  const auto count = five_digits(tail.substr(10, 5));
  if (tail[0] != '-' || tail.substr(6, 4) != "-of-" || tail.substr(15) != ".gguf" || !number ||
      !count) {
    return std::nullopt;
  }
  return SplitName{file.substr(0, file.size() - kPattern.size()), *number, *count};
}

// How many files the set of `first` has; checks that `first` is its first one.
int split_count(const GgufFile& first, const std::filesystem::path& path) {
  const std::int64_t count = first.integer(kSplitCount).value_or(1);
  if (count <= 1) {
    return 1;
  }
  const std::int64_t number = first.integer(kSplitNumber).value_or(0);
  const auto name = parse_split_name(path.filename().string());
  if (!name || name->count != count || name->number != number + 1) {
    throw fail(Errc::kMismatch,
               "{}: part {} of {} by its metadata, but not named ...-{:05}-of-{:05}.gguf; give the "
               "files of a set their original names",
               path.string(),
               number + 1,
               count,
               number + 1,
               count);
  }
  if (number != 0) {
    throw fail(Errc::kInvalidArgument,
               "{}: part {} of {}; open the first, {}-00001-of-{:05}.gguf",
               path.string(),
               number + 1,
               count,
               name->stem,
               count);
  }
  return static_cast<int>(count);
}

}  // namespace

std::string_view to_string(GgufType type) {
  switch (type) {
    case GgufType::kU8:
      return "u8";
    case GgufType::kI8:
      return "i8";
    case GgufType::kU16:
      return "u16";
    case GgufType::kI16:
      return "i16";
    case GgufType::kU32:
      return "u32";
    case GgufType::kI32:
      return "i32";
    case GgufType::kF32:
      return "f32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kU64:
      return "u64";
    case GgufType::kI64:
      return "i64";
    case GgufType::kF64:
      return "f64";
  }
  return "unknown";
}

std::optional<std::int64_t> GgufValue::integer(std::uint64_t i) const {
  RIFT_CHECK(i < count_, "element {} of {}", i, count_);
  switch (type_) {
    case GgufType::kU8:
    case GgufType::kBool:
      return load<std::uint8_t>(bytes_, i);
    case GgufType::kI8:
      return load<std::int8_t>(bytes_, i);
    case GgufType::kU16:
      return load<std::uint16_t>(bytes_, i);
    case GgufType::kI16:
      return load<std::int16_t>(bytes_, i);
    case GgufType::kU32:
      return load<std::uint32_t>(bytes_, i);
    case GgufType::kI32:
      return load<std::int32_t>(bytes_, i);
    case GgufType::kI64:
      return load<std::int64_t>(bytes_, i);
    case GgufType::kU64: {
      const auto value = load<std::uint64_t>(bytes_, i);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return std::nullopt;
      }
      return static_cast<std::int64_t>(value);
    }
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kString:
    case GgufType::kArray:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> GgufValue::number(std::uint64_t i) const {
  RIFT_CHECK(i < count_, "element {} of {}", i, count_);
  if (type_ == GgufType::kF32) {
    return static_cast<double>(load<float>(bytes_, i));
  }
  if (type_ == GgufType::kF64) {
    return load<double>(bytes_, i);
  }
  if (type_ == GgufType::kU64) {
    return static_cast<double>(load<std::uint64_t>(bytes_, i));
  }
  const auto value = type_ == GgufType::kBool ? std::nullopt : integer(i);
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

std::optional<bool> GgufValue::boolean(std::uint64_t i) const {
  RIFT_CHECK(i < count_, "element {} of {}", i, count_);
  if (type_ != GgufType::kBool) {
    return std::nullopt;
  }
  return load<std::uint8_t>(bytes_, i) != 0;
}

std::optional<std::string_view> GgufValue::string(std::uint64_t i) const {
  RIFT_CHECK(i < count_, "element {} of {}", i, count_);
  return type_ == GgufType::kString ? std::optional(strings_[i]) : std::nullopt;
}

std::shared_ptr<const GgufFile> GgufFile::parse(std::span<const std::byte> bytes,
                                                std::string name) {
  return std::make_shared<const GgufFile>(GgufParser(bytes, std::move(name)).parse());
}

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
  MappedFile mapping(path);
  GgufFile file = GgufParser(mapping.bytes(), path.string()).parse();
  file.mappings_.push_back(std::move(mapping));
  const int count = split_count(file, path);
  for (int i = 1; i < count; ++i) {
    const std::string stem = parse_split_name(path.filename().string())->stem;
    const auto part_path =
        path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", stem, i + 1, count);
    MappedFile part_mapping(part_path);
    GgufFile part = GgufParser(part_mapping.bytes(), part_path.string()).parse();
    part.mappings_.push_back(std::move(part_mapping));
    if (part.integer(kSplitCount) != count || part.integer(kSplitNumber) != i) {
      throw fail(Errc::kMismatch,
                 "{}: its metadata does not say part {} of {}; it belongs to another set",
                 part_path.string(),
                 i + 1,
                 count);
    }
    file.append_part(std::move(part));
  }
  const auto stated = file.integer(kSplitTensors);
  if (count > 1 && stated && *stated != static_cast<std::int64_t>(file.tensors_.size())) {
    throw fail(Errc::kMismatch,
               "{}: the set has {} tensors, its metadata says {}",
               path.string(),
               file.tensors_.size(),
               *stated);
  }
  return std::make_shared<const GgufFile>(std::move(file));
}

void GgufFile::append_part(GgufFile part) {
  for (GgufTensor& tensor : part.tensors_) {
    if (!tensor_index_.emplace(tensor.name, tensors_.size()).second) {
      throw fail(Errc::kCorrupt,
                 "{}: duplicate tensor '{}', it is in an earlier part too",
                 part.name_,
                 tensor.name);
    }
    tensors_.push_back(std::move(tensor));
  }
  file_bytes_ += part.file_bytes_;
  std::ranges::move(part.mappings_, std::back_inserter(mappings_));
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = metadata_index_.find(key);
  return found == metadata_index_.end() ? nullptr : &metadata_[found->second].second;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

namespace {

// The single value of `key` as `get` sees it.
template <typename Get>
auto single(const GgufFile& file, std::string_view key, std::string_view kind, const Get& get)
    -> decltype(get(std::declval<const GgufValue&>())) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) {
    return std::nullopt;
  }
  const auto result = value->is_array() ? std::nullopt : get(*value);
  if (!result) {
    throw fail(Errc::kCorrupt,
               "{}: key '{}' is of type {}{}, expected {}",
               file.name(),
               key,
               to_string(value->type()),
               value->is_array() ? " array" : "",
               kind);
  }
  return result;
}

}  // namespace

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  return single(*this, key, "an integer", [](const GgufValue& v) { return v.integer(); });
}
std::optional<double> GgufFile::number(std::string_view key) const {
  return single(*this, key, "a number", [](const GgufValue& v) { return v.number(); });
}
std::optional<bool> GgufFile::boolean(std::string_view key) const {
  return single(*this, key, "a bool", [](const GgufValue& v) { return v.boolean(); });
}
std::optional<std::string_view> GgufFile::string(std::string_view key) const {
  return single(*this, key, "a string", [](const GgufValue& v) { return v.string(); });
}

}  // namespace rift::model
