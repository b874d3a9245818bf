// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_table.h"

#include "common/error.h"
#include "common/f16.h"
#include "model/gguf.h"
#include "model/safetensors.h"
#include "model/sha256.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace rift::model {
namespace {

constexpr std::size_t kSampleBytes = 4096;

template <typename T>
T load(const std::byte* data, std::size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

TensorTable::TensorTable(const GgufFile& file) : file_(file.name()) {
  for (const GgufTensor& tensor : file.tensors()) {
    TensorEntry entry{tensor.type_name, tensor.dtype, {}, tensor.data, tensor.bytes.value_or(0)};
    for (std::uint32_t d = tensor.rank; d > 0; --d) {
      entry.shape.push_back(tensor.dims.at(d - 1));
    }
    slots_.emplace(tensor.name, Slot{std::move(entry)});
  }
}

TensorTable::TensorTable(const Safetensors& file) : file_(file.name()) {
  for (const Safetensor& tensor : file.tensors()) {
    slots_.emplace(
        tensor.name,
        Slot{{tensor.dtype_name, tensor.dtype, tensor.shape, tensor.data, tensor.bytes}});
  }
}

bool TensorTable::contains(std::string_view name) const { return slots_.contains(name); }

const TensorEntry& TensorTable::take(std::string_view name, std::span<const std::int64_t> shape) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) {
    throw fail(Errc::kCorrupt, "{}: no tensor '{}'", file_, name);
  }
  const TensorEntry& entry = found->second.entry;
  if (!std::ranges::equal(entry.shape, shape)) {
    throw fail(Errc::kCorrupt,
               "{}: tensor '{}' has shape [{}], the configuration makes it [{}]",
               file_,
               name,
               fmt::join(entry.shape, ", "),
               fmt::join(shape, ", "));
  }
  if (!entry.dtype) {
    throw fail(Errc::kUnsupported,
               "{}: tensor '{}' is stored as {}, which cannot be computed with",
               file_,
               name,
               entry.type_name);
  }
  if (!found->second.used) {
    found->second.used = true;
    used_bytes_ += entry.bytes;
  }
  return entry;
}

kernels::WeightView TensorTable::matrix(std::string_view name,
                                        std::int64_t rows,
                                        std::int64_t cols) {
  const TensorEntry& entry = take(name, std::array{rows, cols});
  return {*entry.dtype, rows, cols, entry.data};
}

std::vector<float> TensorTable::vector(std::string_view name, std::int64_t size) {
  const TensorEntry& entry = take(name, std::array{size});
  if (block_elements(*entry.dtype) != 1) {
    throw fail(Errc::kUnsupported,
               "{}: vector '{}' is quantised ({}); expected F32, F16 or BF16",
               file_,
               name,
               entry.type_name);
  }
  std::vector<float> values(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (entry.dtype == DType::kF32) {
      values[i] = load<float>(entry.data, i);
    } else {
      const auto half = load<std::uint16_t>(entry.data, i);
      values[i] = entry.dtype == DType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
  }
  return values;
}

void TensorTable::ignore(std::string_view name) {
  if (const auto found = slots_.find(name); found != slots_.end()) {
    found->second.used = true;
  }
}

std::vector<std::string> TensorTable::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, slot] : slots_) {
    if (!slot.used) {
      names.push_back(name);
    }
  }
  return names;
}

std::string TensorTable::fingerprint(std::string_view header) const {
  Sha256 hash;
  hash.update(header);
  for (const auto& [name, slot] : slots_) {
    const TensorEntry& entry = slot.entry;
    hash.update(fmt::format(
        "{} {} [{}] {}\n", name, entry.type_name, fmt::join(entry.shape, ","), entry.bytes));
    const std::span<const std::byte> data(entry.data, entry.bytes);
    const std::size_t sample = std::min(kSampleBytes, data.size());
    hash.update(data.first(sample));
    hash.update(data.last(sample));
  }
  return hash.hex();
}

}  // namespace rift::model
