// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/working_set_layout.h"
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
  KvCache(const ModelConfig& config, DType dtype, std::int32_t capacity);
  ~KvCache() override;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override;

  [[nodiscard]] const KvGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::int32_t capacity() const { return capacity_; }
  /// Positions stored: 0 .. size() - 1. Grows in attend() of the last layer.
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
  ModelConfig config_;
  KvGeometry geometry_;
  std::int32_t capacity_;
  std::int32_t size_ = 0;
  std::byte* data_ = nullptr;  // one mapping, owned
  std::size_t mapped_bytes_ = 0;
  std::vector<std::int32_t> visible_;
};

}  // namespace rift::model
