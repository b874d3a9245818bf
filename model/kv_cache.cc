// SPDX-License-Identifier: Apache-2.0
#include "model/kv_cache.h"

#include "common/check.h"
#include "common/error.h"
#include "kernels/ops.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <functional>

namespace rift::model {
namespace {

// Floats per range below which handing work to another thread costs more than the conversion.
constexpr std::int64_t kFloatsPerRange = 16384;
// Below it the first position of every head would bring in memory for many.
constexpr std::size_t kHugePage = 2U << 20U;

KvGeometry geometry_of(const ModelConfig& config, DType dtype) {
  if (dtype != DType::kF16 && dtype != DType::kBF16 && dtype != DType::kF32) {
    throw fail(Errc::kInvalidArgument,
               "KV cache of type {}: keys and values are kept as f16, bf16 or f32",
               to_string(dtype));
  }
  return {config.layers, config.kv_heads, config.head_dim, dtype};
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, DType dtype, std::int32_t capacity)
    : config_(config), geometry_(geometry_of(config, dtype)), capacity_(capacity) {
  if (capacity < 1) {
    throw fail(Errc::kInvalidArgument, "KV cache for {} positions: at least 1", capacity);
  }
  const auto heads = static_cast<std::size_t>(geometry_.kv_heads);
  runs_.resize(heads);
  first_run_.resize(heads + 1);
  for (std::size_t g = 0; g <= heads; ++g) {
    first_run_[g] = static_cast<std::int32_t>(g);
  }
  mapped_bytes_ = geometry_.bytes_per_position() * static_cast<std::size_t>(capacity);
  void* mapping = mmap(nullptr,
                       mapped_bytes_,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                       -1,
                       0);
  if (mapping == MAP_FAILED) {
    throw fail(Errc::kResourceExhausted,
               "KV cache of {} positions x {} bytes = {} bytes cannot be reserved ({}); ask for a "
               "shorter context",
               capacity,
               geometry_.bytes_per_position(),
               mapped_bytes_,
               std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(mapping);
  if (static_cast<std::size_t>(capacity) * geometry_.vector_bytes() >= kHugePage) {
    ::madvise(mapping, mapped_bytes_, MADV_HUGEPAGE);  // advice: small pages are only slower
  }
  visible_.reserve(static_cast<std::size_t>(capacity));
}

KvCache::~KvCache() { munmap(data_, mapped_bytes_); }

// Keys of all (layer, head), then values: [2][L][G][capacity, D].
std::size_t KvCache::plane_offset(std::int32_t layer, std::int32_t head, bool value) const {
  RIFT_DCHECK(layer >= 0 && layer < geometry_.layers, "layer {}", layer);
  RIFT_DCHECK(head >= 0 && head < geometry_.kv_heads, "head {}", head);
  const std::int64_t plane =
      ((value ? geometry_.layers : 0) + static_cast<std::int64_t>(layer)) * geometry_.kv_heads +
      head;
  return static_cast<std::size_t>(plane) * static_cast<std::size_t>(capacity_) *
         geometry_.vector_bytes();
}

const std::byte* KvCache::keys(std::int32_t layer, std::int32_t head) const {
  return data_ + plane_offset(layer, head, false);
}

const std::byte* KvCache::values(std::int32_t layer, std::int32_t head) const {
  return data_ + plane_offset(layer, head, true);
}

std::uint64_t KvCache::bytes() const {
  return geometry_.bytes_per_position() * static_cast<std::uint64_t>(size_);
}

void KvCache::truncate(std::int32_t size) {
  RIFT_CHECK(size >= 0 && size <= size_, "truncate to {} of {}", size, size_);
  size_ = size;
}

void KvCache::store(std::int32_t layer,
                    MatView<const float> k,
                    MatView<const float> v,
                    ThreadPool& pool) {
  if (k.rows > capacity_ - size_) {
    throw fail(Errc::kResourceExhausted,
               "{} tokens after {} do not fit a context of {}; start with a larger --ctx",
               k.rows,
               size_,
               capacity_);
  }
  const std::int64_t dim = geometry_.head_dim;
  const std::size_t vector_bytes = geometry_.vector_bytes();
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::size_t at = static_cast<std::size_t>(size_ + t) * vector_bytes;
      for (std::int32_t g = 0; g < geometry_.kv_heads; ++g) {
        std::byte* key = data_ + plane_offset(layer, g, false) + at;
        std::byte* value = data_ + plane_offset(layer, g, true) + at;
        kernels::store_as(geometry_.dtype, k.row(t) + g * dim, key, dim);
        kernels::store_as(geometry_.dtype, v.row(t) + g * dim, value, dim);
      }
    }
  };
  const std::int64_t grain = std::max<std::int64_t>(1, kFloatsPerRange / (2 * k.cols));
  pool.parallel_for(k.rows, grain, std::ref(body));
}

void KvCache::grow(std::int32_t layer, std::int64_t rows) {
  if (layer == geometry_.layers - 1) {
    size_ += static_cast<std::int32_t>(rows);
  }
}

void KvCache::append(std::int32_t layer,
                     MatView<const float> k,
                     MatView<const float> v,
                     ThreadPool& pool) {
  RIFT_CHECK(k.rows == v.rows, "{} keys, {} values", k.rows, v.rows);
  store(layer, k, v, pool);
  grow(layer, k.rows);
}

void KvCache::attend(std::int32_t layer,
                     std::span<const Position> positions,
                     MatView<const float> q,
                     MatView<const float> k,
                     MatView<const float> v,
                     MatView<float> out,
                     ThreadPool& pool) {
  const auto rows = static_cast<std::int32_t>(positions.size());
  RIFT_CHECK(rows >= 1 && k.rows == rows && v.rows == rows && q.rows == rows, "{} rows", rows);
  RIFT_CHECK(positions.front() == size_, "position {} after {}", positions.front(), size_);
  RIFT_CHECK(positions.back() == size_ + rows - 1, "gap in {} positions", rows);
  store(layer, k, v, pool);

  visible_.clear();
  for (std::int32_t t = 0; t < rows; ++t) {
    visible_.push_back(size_ + t + 1);
  }
  for (std::int32_t g = 0; g < geometry_.kv_heads; ++g) {
    runs_[static_cast<std::size_t>(g)] = {keys(layer, g), values(layer, g), size_ + rows};
  }
  kernels::attend({.q = q,
                   .query_heads = config_.query_heads,
                   .kv_heads = geometry_.kv_heads,
                   .head_dim = geometry_.head_dim,
                   .scale = config_.attention_scale,
                   .dtype = geometry_.dtype,
                   .runs = runs_,
                   .first = first_run_,
                   .visible = visible_,
                   .out = out},
                  pool);
  grow(layer, rows);
}

}  // namespace rift::model
