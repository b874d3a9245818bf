// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/working_set_layout.h"
#include "kernels/attention.h"
#include "model/runner.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rift::model {

/// Full history: keys [L][G][capacity, D] and values likewise, in geometry.dtype.
/// Memory is reserved for `capacity` positions at construction and touched as it fills.
/// Thread: one at a time.
class KvCache : public AttentionBackend {
 public:
  /// dtype F16, BF16 or F32; capacity >= 1. Errors (thrown): kInvalidArgument, kResourceExhausted
  /// (the address space does not hold it).
  KvCache(const ModelConfig& config, DType dtype, std::int32_t capacity);
  ~KvCache() override;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// positions: size(), size() + 1, ... Errors (thrown): kResourceExhausted where they do not fit
  /// the capacity; nothing is stored then.
  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override;

  /// Stores k and v [T, G D] of `layer` after size() without attending: history that was computed
  /// elsewhere. Every layer takes the same rows in turn; the last makes size() grow.
  /// Errors (thrown): as attend().
  void append(std::int32_t layer, MatView<const float> k, MatView<const float> v, ThreadPool& pool);

  [[nodiscard]] const KvGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::int32_t capacity() const { return capacity_; }
  /// Positions stored: 0 .. size() - 1. Grows with the last layer.
  [[nodiscard]] std::int32_t size() const { return size_; }
  /// Forgets positions from `size` on.
  void truncate(std::int32_t size);

  /// First key of a head: [capacity, D] contiguous.
  [[nodiscard]] const std::byte* keys(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] const std::byte* values(std::int32_t layer, std::int32_t head) const;
  /// Bytes of the positions stored.
  [[nodiscard]] std::uint64_t bytes() const;

 protected:
  [[nodiscard]] const ModelConfig& config() const { return config_; }

 private:
  [[nodiscard]] std::size_t plane_offset(std::int32_t layer, std::int32_t head, bool value) const;
  void grow(std::int32_t layer, std::int64_t rows);
  void store(std::int32_t layer, MatView<const float> k, MatView<const float> v, ThreadPool& pool);

  ModelConfig config_;
  KvGeometry geometry_;
  std::int32_t capacity_;
  std::int32_t size_ = 0;
  std::byte* data_ = nullptr;  // one mapping, owned
  std::size_t mapped_bytes_ = 0;
  std::vector<std::int32_t> visible_;    // scratch of attend(), [T]
  std::vector<kernels::KvRun> runs_;     // scratch of attend(), [G]
  std::vector<std::int32_t> first_run_;  // [G + 1]
};

}  // namespace rift::model
