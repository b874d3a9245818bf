// SPDX-License-Identifier: Apache-2.0
#include "model/safetensors.h"

#include "common/error.h"
#include "model/json_file.h"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace rift::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the format's own reader
constexpr std::size_t kMaxIndexBytes = 64 << 20;
constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct TypeInfo {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};

constexpr auto kTypes = std::to_array<TypeInfo>({
    {"F32", 4, DType::kF32},
    {"F16", 2, DType::kF16},
    {"BF16", 2, DType::kBF16},
    {"F64", 8, {}},
    {"I64", 8, {}},
    {"U64", 8, {}},
    {"I32", 4, {}},
    {"U32", 4, {}},
    {"I16", 2, {}},
    {"U16", 2, {}},
    {"I8", 1, {}},
    {"U8", 1, {}},
    {"BOOL", 1, {}},
    {"F8_E4M3", 1, {}},
    {"F8_E5M2", 1, {}},
    {"F8_E8M0", 1, {}},
});

std::optional<std::uint64_t> as_count(const json::value& value) {
  if (value.is_int64() && value.get_int64() >= 0) {
    return static_cast<std::uint64_t>(value.get_int64());
  }
  return std::nullopt;  // beyond 2^63 - 1, negative, or not an integer
}

// One header entry, with its range in the data.
struct Entry {
  Safetensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class EntryReader {
 public:
  EntryReader(std::string_view file, std::string_view tensor) : file_(file), tensor_(tensor) {}

  Entry read(const json::value& value) const {
    const json::object* object = value.if_object();
    if (object == nullptr) {
      throw bad("is not an object");
    }
    Entry entry;
    entry.tensor.name = tensor_;
    read_shape(*object, entry.tensor);
    read_range(*object, entry);
    read_type(*object, entry.tensor);
    return entry;
  }

 private:
  [[nodiscard]] Error bad(std::string_view what) const {
    return fail(Errc::kCorrupt, "{}: tensor '{}' {}", file_, tensor_.substr(0, 80), what);
  }

  void read_shape(const json::object& object, Safetensor& tensor) const {
    const json::value* shape = object.if_contains("shape");
    if (shape == nullptr || !shape->is_array()) {
      throw bad("has no shape");
    }
    std::int64_t elements = 1;
    for (const json::value& dim : shape->get_array()) {
      const auto count = as_count(dim);
      if (!count) {
        throw bad("has a dimension that is not a count below 2^63");
      }
      const auto extent = static_cast<std::int64_t>(*count);
      if (__builtin_mul_overflow(elements, extent, &elements)) {
        throw bad(fmt::format("has dimensions that overflow ({})", extent));
      }
      tensor.shape.push_back(extent);
    }
  }

  void read_range(const json::object& object, Entry& entry) const {
    const json::value* range = object.if_contains("data_offsets");
    if (range == nullptr || !range->is_array() || range->get_array().size() != 2) {
      throw bad("has no data_offsets [begin, end]");
    }
    const auto begin = as_count(range->get_array()[0]);
    const auto end = as_count(range->get_array()[1]);
    if (!begin || !end || *end < *begin) {
      throw bad("has data_offsets that are not ascending counts below 2^63");
    }
    entry.begin = *begin;
    entry.end = *end;
    entry.tensor.bytes = *end - *begin;
  }

  void read_type(const json::object& object, Safetensor& tensor) const {
    const json::value* type = object.if_contains("dtype");
    if (type == nullptr || !type->is_string()) {
      throw bad("has no dtype");
    }
    tensor.dtype_name = std::string(std::string_view(type->get_string()).substr(0, 32));
    const auto* info = std::ranges::find(kTypes, tensor.dtype_name, &TypeInfo::name);
    if (info == kTypes.end()) {
      return;  // listed; an error only where the tensor is needed
    }
    tensor.dtype = info->dtype;
    std::uint64_t expected = 0;
    if (__builtin_mul_overflow(
            static_cast<std::uint64_t>(tensor.elements()), info->bytes, &expected) ||
        expected != tensor.bytes) {
      throw bad(fmt::format("has a size mismatch: shape and dtype {} do not make {} bytes",
                            tensor.dtype_name,
                            tensor.bytes));
    }
  }

  std::string_view file_;
  std::string_view tensor_;
};

json::value read_header(std::span<const std::byte> bytes, const std::string& file) {
  std::uint64_t length = 0;
  if (bytes.size() < kLengthBytes) {
    throw fail(
        Errc::kCorrupt, "{}: {} bytes are too few for a safetensors file", file, bytes.size());
  }
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes || length > bytes.size() - kLengthBytes) {
    throw fail(Errc::kCorrupt,
               "{}: the header of {} bytes does not fit into the file of {} (limit {}): truncated, "
               "damaged, or not a safetensors file",
               file,
               length,
               bytes.size(),
               kMaxHeaderBytes);
  }
  const char* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  return parse_json({text, static_cast<std::size_t>(length)}, file);
}

// Ranges, sorted by begin, must follow each other from 0 to the end of the data.
void check_cover(const std::vector<Entry>& entries, std::uint64_t size, const std::string& file) {
  std::uint64_t at = 0;
  for (const Entry& entry : entries) {
    if (entry.end > size) {
      throw fail(Errc::kCorrupt,
                 "{}: tensor '{}' [{}, {}) ends past the file, whose data has {} bytes (truncated "
                 "or damaged)",
                 file,
                 entry.tensor.name,
                 entry.begin,
                 entry.end,
                 size);
    }
    if (entry.begin != at) {
      throw fail(Errc::kCorrupt,
                 "{}: tensor '{}' starts at {}, {} {}",
                 file,
                 entry.tensor.name,
                 entry.begin,
                 entry.begin < at ? "which overlaps the one before that ends at"
                                  : "which leaves a hole after",
                 at);
    }
    at = entry.end;
  }
  if (at != size) {
    throw fail(Errc::kCorrupt,
               "{}: tensors end at {}, but the data has {} bytes (a hole at the end)",
               file,
               at,
               size);
  }
}

std::set<std::string> files_of_index(const json::object& map, const std::string& index) {
  std::set<std::string> files;
  for (const auto& [tensor, file] : map) {
    const std::string name = file.is_string() ? std::string(file.get_string().c_str()) : "";
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of("/\\") != std::string::npos) {
      throw fail(Errc::kCorrupt,
                 "{}: tensor '{}' is in '{}', which is not a plain file name",
                 index,
                 std::string_view(tensor).substr(0, 80),
                 name.substr(0, 80));
    }
    files.insert(name);
  }
  return files;
}

}  // namespace

std::int64_t Safetensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t dim : shape) {
    product *= dim;
  }
  return product;
}

void Safetensors::add(std::span<const std::byte> bytes, const std::string& file) {
  const json::value header = read_header(bytes, file);
  if (!header.is_object()) {
    throw fail(Errc::kCorrupt, "{}: the header is not a JSON object", file);
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  const auto data = bytes.subspan(kLengthBytes + length);
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.get_object()) {
    if (name != "__metadata__") {
      entries.push_back(EntryReader(file, name).read(value));
    }
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  check_cover(entries, data.size(), file);
  for (Entry& entry : entries) {
    entry.tensor.data = data.data() + entry.begin;
    tensors_.push_back(std::move(entry.tensor));
  }
  file_bytes_ += bytes.size();
}

void Safetensors::add_file(const std::filesystem::path& path) {
  MappedFile mapping(path);
  add(mapping.bytes(), path.string());
  mappings_.push_back(std::move(mapping));
}

void Safetensors::build_index() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!index_.emplace(tensors_[i].name, i).second) {
      throw fail(Errc::kCorrupt, "{}: duplicate tensor '{}'", name_, tensors_[i].name);
    }
  }
}

std::shared_ptr<const Safetensors> Safetensors::parse(std::span<const std::byte> bytes,
                                                      std::string name) {
  auto result = std::shared_ptr<Safetensors>(new Safetensors());
  result->name_ = std::move(name);
  result->add(bytes, result->name_);
  result->build_index();
  return result;
}

std::shared_ptr<const Safetensors> Safetensors::open(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    const bool sharded = std::filesystem::exists(path / kIndexName);
    return open(path / (sharded ? kIndexName : std::string_view("model.safetensors")));
  }
  if (path.extension() == ".json") {
    return open_index(path);
  }
  auto result = std::shared_ptr<Safetensors>(new Safetensors());
  result->name_ = path.string();
  result->add_file(path);
  result->build_index();
  return result;
}

std::shared_ptr<const Safetensors> Safetensors::open_index(const std::filesystem::path& path) {
  const json::value index = read_json(path, kMaxIndexBytes);
  const json::object* object = index.if_object();
  const json::value* map = object != nullptr ? object->if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    throw fail(Errc::kCorrupt, "{}: no weight_map", path.string());
  }
  auto result = std::shared_ptr<Safetensors>(new Safetensors());
  result->name_ = path.string();
  for (const std::string& file : files_of_index(map->get_object(), path.string())) {
    result->add_file(path.parent_path() / file);
  }
  result->build_index();
  for (const auto& [tensor, file] : map->get_object()) {
    if (result->find(tensor) == nullptr) {
      throw fail(Errc::kCorrupt,
                 "{}: tensor '{}' is listed but in none of its files",
                 path.string(),
                 std::string_view(tensor).substr(0, 80));
    }
  }
  return result;
}

const Safetensor* Safetensors::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace rift::model
