// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"
#include "common/types.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace rift::kernels {

/// A weight matrix [rows, cols]. As it lies in its file: row-major, each row row_bytes(dtype, cols)
/// long. Or packed by pack(). Does not own; the bytes need no alignment.
struct WeightView {
  DType dtype = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;
  int panel_rows = 0;  // rows per panel when packed, 0 otherwise
};

/// Bytes that pack() needs for w: those of its rows, rounded up to whole panels. 0: this machine's
/// kernels read such weights best as they lie in the file.
[[nodiscard]] std::size_t packed_bytes(const WeightView& w);
/// Writes w, as it lies in its file, to out [packed_bytes(w)] in the order that this machine's
/// kernels read; the view of it. Every operation gives the same bits for both.
/// Thread: the pool's owner.
WeightView pack(const WeightView& w, std::byte* out, ThreadPool& pool);

enum class MatmulMode {
  kExact,      // weights dequantised to f32, products and sums in f32
  kQuantized,  // activations rounded to 8 bits where the weights are quantised
};

/// Rows of activations made ready once for several matmuls. Grows only in reserve().
/// Thread: the owner's, one at a time.
class Activations {
 public:
  Activations();
  ~Activations();
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  void reserve(std::int64_t max_rows, std::int64_t max_cols);
  /// x [T, cols] f32. Keeps a reference to x: x lives and stays as it is until the last matmul.
  /// In kQuantized mode also rounds to 8 bits, per block of a row, so that a row's bytes depend on
  /// that row alone.
  void prepare(MatView<const float> x, MatmulMode mode, ThreadPool& pool);
  [[nodiscard]] std::size_t bytes() const;

  struct Impl;
  [[nodiscard]] const Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// y[t, n] = sum over c of x[t, c] w[n, c]; y [T, w.rows] f32, overwritten. cols of x and w agree.
/// Batch-invariant: y[t, :] is bit-identical for any T, any position of the row in the batch and
/// any number of threads; the order of the sum depends on cols and dtype only.
/// Allocates nothing. Thread: the pool's owner.
void matmul(const Activations& x, const WeightView& w, MatView<float> y, ThreadPool& pool);

/// Row `row` of w as f32: out [w.cols]. Exact.
void dequantize_row(const WeightView& w, std::int64_t row, float* out);

}  // namespace rift::kernels
