// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_parser.h"

#include "common/error.h"
#include "model/gguf_types.h"
#include "model/utf8.h"

#include <bit>
#include <cstring>
#include <limits>

namespace rift::model {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint64_t kMinStringBytes = 8;   // its length field
constexpr std::uint64_t kMinKeyBytes = 13;     // empty name, type, one byte
constexpr std::uint64_t kMinTensorBytes = 32;  // empty name, rank, one dimension, type, offset
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 30;

// Bytes of a value of fixed size; 0 for strings and arrays.
std::uint64_t type_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

// Names may come from a hostile file: long ones are cut in messages.
std::string shown(std::string_view text) {
  constexpr std::size_t kLimit = 80;
  return text.size() <= kLimit ? std::string(text) : std::string(text.substr(0, kLimit)) + "...";
}

}  // namespace

GgufParser::GgufParser(std::span<const std::byte> bytes, std::string name) : bytes_(bytes) {
  file_.name_ = std::move(name);
  file_.file_bytes_ = bytes.size();
}

GgufFile GgufParser::parse() {
  read_header();
  read_metadata();
  read_alignment();
  read_tensor_table();
  place_tensors();
  return std::move(file_);
}

std::span<const std::byte> GgufParser::take(std::uint64_t count, std::string_view what) {
  if (count > left()) {
    throw fail(Errc::kCorrupt,
               "{}: {} needs {} bytes at offset {}, but the file ends {} bytes later (truncated or "
               "damaged; fetch it again)",
               file_.name_,
               what,
               count,
               at_,
               left());
  }
  const auto part = bytes_.subspan(at_, count);
  at_ += count;
  return part;
}

template <typename T>
T GgufParser::read(std::string_view what) {
  T value;
  std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
  return value;
}

std::string_view GgufParser::read_string(std::string_view what) {
  const std::uint64_t length = read<std::uint64_t>(what);
  const auto part = take(length, what);
  const std::string_view text(reinterpret_cast<const char*>(part.data()), part.size());
  if (const std::size_t bad = first_invalid_utf8(text); bad != text.size()) {
    throw fail(Errc::kCorrupt,
               "{}: {} is not valid UTF-8 at byte {} of {}",
               file_.name_,
               what,
               bad,
               text.size());
  }
  return text;
}

void GgufParser::read_header() {
  const auto magic = take(std::min<std::uint64_t>(4, left()), "the magic number");
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), magic.size()) != kMagic) {
    throw fail(Errc::kCorrupt, "{}: not a GGUF file (it does not start with GGUF)", file_.name_);
  }
  file_.version_ = read<std::uint32_t>("the version");
  if ((file_.version_ & 0xFFFFU) == 0 && file_.version_ != 0) {
    throw fail(Errc::kUnsupported,
               "{}: big-endian GGUF (version field 0x{:08x}); convert it to little-endian",
               file_.name_,
               file_.version_);
  }
  if (file_.version_ != 2 && file_.version_ != 3) {
    throw fail(Errc::kUnsupported,
               "{}: GGUF version {}; versions 2 and 3 can be read, convert the model again",
               file_.name_,
               file_.version_);
  }
  tensor_count_ = read<std::uint64_t>("the number of tensors");
  key_count_ = read<std::uint64_t>("the number of metadata keys");
  if (key_count_ > left() / kMinKeyBytes) {
    throw fail(Errc::kCorrupt,
               "{}: {} metadata keys cannot fit into {} bytes",
               file_.name_,
               key_count_,
               left());
  }
  if (tensor_count_ > left() / kMinTensorBytes) {
    throw fail(Errc::kCorrupt,
               "{}: {} tensors cannot fit into {} bytes",
               file_.name_,
               tensor_count_,
               left());
  }
}

GgufType GgufParser::read_type(std::string_view key) {
  const std::uint32_t number = read<std::uint32_t>("a value type");
  if (number > static_cast<std::uint32_t>(GgufType::kF64)) {
    throw fail(Errc::kCorrupt, "{}: key '{}' has value type {}", file_.name_, shown(key), number);
  }
  return static_cast<GgufType>(number);
}

GgufValue GgufParser::read_value(std::string_view key) {
  const GgufType type = read_type(key);
  const std::string what = fmt::format("the value of key '{}'", shown(key));
  switch (type) {
    case GgufType::kArray:
      return read_array(key);
    case GgufType::kString:
      return {type, false, std::vector{read_string(what)}};
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kU16:
    case GgufType::kI16:
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
    case GgufType::kBool:
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      break;
  }
  return {type, false, 1, take(type_bytes(type), what)};
}

GgufValue GgufParser::read_array(std::string_view key) {
  const GgufType type = read_type(key);
  if (type == GgufType::kArray) {
    throw fail(Errc::kUnsupported,
               "{}: key '{}' is an array of arrays (nested arrays are not read)",
               file_.name_,
               shown(key));
  }
  const std::string what = fmt::format("the array of key '{}'", shown(key));
  const std::uint64_t count = read<std::uint64_t>(what);
  const std::uint64_t each = type == GgufType::kString ? kMinStringBytes : type_bytes(type);
  if (count > left() / each) {
    throw fail(Errc::kCorrupt,
               "{}: {} elements of {} cannot fit into {} bytes",
               file_.name_,
               count,
               what,
               left());
  }
  if (type != GgufType::kString) {
    return {type, true, count, take(count * each, what)};
  }
  const std::string element = fmt::format("a string of key '{}'", shown(key));
  std::vector<std::string_view> strings;
  strings.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    strings.push_back(read_string(element));
  }
  return {type, true, std::move(strings)};
}

void GgufParser::read_metadata() {
  for (std::uint64_t i = 0; i < key_count_; ++i) {
    const std::string_view key = read_string("a metadata key");
    if (!file_.metadata_index_.emplace(key, file_.metadata_.size()).second) {
      throw fail(Errc::kCorrupt, "{}: duplicate metadata key '{}'", file_.name_, shown(key));
    }
    file_.metadata_.emplace_back(key, read_value(key));
  }
}

void GgufParser::read_alignment() {
  const auto stated = file_.integer("general.alignment");
  if (!stated) {
    return;
  }
  if (*stated <= 0 || !std::has_single_bit(static_cast<std::uint64_t>(*stated)) ||
      static_cast<std::uint64_t>(*stated) > kMaxAlignment) {
    throw fail(Errc::kCorrupt,
               "{}: general.alignment is {}, not a power of two up to {}",
               file_.name_,
               *stated,
               kMaxAlignment);
  }
  file_.alignment_ = static_cast<std::uint64_t>(*stated);
}

void GgufParser::read_tensor_table() {
  for (std::uint64_t i = 0; i < tensor_count_; ++i) {
    GgufTensor tensor = read_tensor();
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      throw fail(Errc::kCorrupt, "{}: duplicate tensor '{}'", file_.name_, shown(tensor.name));
    }
    file_.tensors_.push_back(std::move(tensor));
  }
}

GgufTensor GgufParser::read_tensor() {
  GgufTensor tensor;
  tensor.name = read_string("a tensor name");
  tensor.rank = read<std::uint32_t>("a tensor's number of dimensions");
  read_dimensions(tensor);
  set_type(tensor, read<std::uint32_t>("a tensor type"));
  offsets_.push_back(read<std::uint64_t>("a tensor offset"));
  return tensor;
}

void GgufParser::read_dimensions(GgufTensor& tensor) {
  if (tensor.rank < 1 || tensor.rank > tensor.dims.size()) {
    throw fail(Errc::kCorrupt,
               "{}: tensor '{}' has {} dimensions (1 to {} can be)",
               file_.name_,
               shown(tensor.name),
               tensor.rank,
               tensor.dims.size());
  }
  std::int64_t elements = 1;
  for (std::uint32_t d = 0; d < tensor.rank; ++d) {
    const std::uint64_t dim = read<std::uint64_t>("a tensor dimension");
    if (dim == 0) {
      throw fail(Errc::kCorrupt,
                 "{}: dimension {} of tensor '{}' is zero",
                 file_.name_,
                 d,
                 shown(tensor.name));
    }
    if (dim > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
        __builtin_mul_overflow(elements, static_cast<std::int64_t>(dim), &elements)) {
      throw fail(Errc::kCorrupt,
                 "{}: dimensions of tensor '{}' overflow (dimension {} is {})",
                 file_.name_,
                 shown(tensor.name),
                 d,
                 dim);
    }
    tensor.dims.at(d) = static_cast<std::int64_t>(dim);
  }
}

void GgufParser::set_type(GgufTensor& tensor, std::uint32_t number) {
  tensor.type_number = number;
  const GgufTensorType* type = find_gguf_tensor_type(number);
  if (type == nullptr) {
    tensor.type_name = fmt::format("type {}", number);
    return;
  }
  tensor.type_name = type->name;
  tensor.dtype = type->dtype;
  if (tensor.dims[0] % type->block_elements != 0) {
    throw fail(Errc::kCorrupt,
               "{}: rows of tensor '{}' have {} elements, not a multiple of the {} of a {} block",
               file_.name_,
               shown(tensor.name),
               tensor.dims[0],
               type->block_elements,
               type->name);
  }
  const auto blocks = static_cast<std::uint64_t>(tensor.elements() / type->block_elements);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(blocks, type->block_bytes, &bytes)) {
    throw fail(
        Errc::kCorrupt, "{}: size of tensor '{}' overflows", file_.name_, shown(tensor.name));
  }
  tensor.bytes = bytes;
}

void GgufParser::place_tensors() {
  const std::uint64_t begin = (at_ + file_.alignment_ - 1) / file_.alignment_ * file_.alignment_;
  const std::uint64_t size = begin <= bytes_.size() ? bytes_.size() - begin : 0;
  for (std::size_t i = 0; i < offsets_.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    const std::uint64_t offset = offsets_[i];
    if (offset % file_.alignment_ != 0) {
      throw fail(Errc::kCorrupt,
                 "{}: offset {} of tensor '{}' is not a multiple of the alignment {}",
                 file_.name_,
                 offset,
                 shown(tensor.name),
                 file_.alignment_);
    }
    const std::uint64_t bytes = tensor.bytes.value_or(1);
    if (offset > size || bytes > size - offset) {
      throw fail(Errc::kCorrupt,
                 "{}: tensor '{}' ({} bytes at {} of the data) ends past the file, whose data has "
                 "{} bytes (truncated or damaged; fetch it again)",
                 file_.name_,
                 shown(tensor.name),
                 bytes,
                 offset,
                 size);
    }
    tensor.data = bytes_.data() + begin + offset;
  }
}

}  // namespace rift::model
