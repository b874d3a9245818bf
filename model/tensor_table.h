// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"
#include "kernels/matmul.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

class GgufFile;
class Safetensors;

/// A tensor of any file format. shape outermost first.
struct TensorEntry {
  std::string type_name;
  std::optional<DType> dtype;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

/// The tensors of a checkpoint by name, handed out once each and against an expected shape, so that
/// what nobody asked for can be named. Views: the file stays open. Thread: one at a time.
class TensorTable {
 public:
  explicit TensorTable(const GgufFile& file);
  explicit TensorTable(const Safetensors& file);

  [[nodiscard]] bool contains(std::string_view name) const;
  /// A [rows, cols] matrix in the file's dtype. Errors (thrown): kCorrupt (absent, another shape),
  /// kUnsupported (a dtype that cannot be computed with).
  kernels::WeightView matrix(std::string_view name, std::int64_t rows, std::int64_t cols);
  /// A vector as f32; stored as F32, F16 or BF16. Errors (thrown): as matrix().
  std::vector<float> vector(std::string_view name, std::int64_t size);
  /// Marks a tensor as known but not read by a forward pass; one that is absent is fine.
  void ignore(std::string_view name);

  /// Names never asked for, ascending.
  [[nodiscard]] std::vector<std::string> unused() const;
  /// Bytes of all tensors handed out.
  [[nodiscard]] std::uint64_t used_bytes() const { return used_bytes_; }
  /// sha256 hex over `header` and, of every tensor in order of names, its name, dtype, shape and
  /// the first and last 4 KiB of its data.
  [[nodiscard]] std::string fingerprint(std::string_view header) const;

 private:
  struct Slot {
    TensorEntry entry;
    bool used = false;
  };
  const TensorEntry& take(std::string_view name, std::span<const std::int64_t> shape);

  std::string file_;
  std::map<std::string, Slot, std::less<>> slots_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace rift::model
