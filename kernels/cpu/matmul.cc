// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/quant_blocks.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace rift::kernels {
namespace {

// Rows of activations that share one unpacking of a panel. Their bytes should stay in the second
// level cache while a thread works through its panels.
constexpr int kRowTile = 64;
constexpr std::int64_t kGroup = 32;
}  // namespace

struct Activations::Impl {
  MatView<const float> x;
  bool rounded = false;
  std::vector<std::int8_t> q;
  std::vector<float> scale;
  std::vector<float> sum32;
  std::vector<float> sum16;

  /// Rows from `row`, columns from `column` on.
  [[nodiscard]] QuantRows rows(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * x.cols + column;
    return {q.data() + at,
            scale.data() + at / kGroup,
            sum32.data() + at / kGroup,
            sum16.data() + at / (kGroup / 2),
            x.cols};
  }
};

namespace {

struct Task {
  const Activations::Impl& x;
  const WeightView& w;
  MatView<float> y;
  const MatmulOps& ops;
  std::size_t row_bytes;
};

/// Rows of weights [first, first + R * count) as `count` panels. Panel i takes row i of each of R
/// equal parts, so that a thread reads R long streams: rows that follow each other are each too
/// short for the processor to fetch ahead.
struct Panels {
  std::int64_t first;
  std::int64_t count;

  [[nodiscard]] std::int64_t row(std::int64_t panel, int lane) const {
    return first + lane * count + panel;
  }
};

/// Where the panel's rows start; those past the end repeat the last, and their results are dropped.
void find_rows(const Task& task, const Panels& panels, std::int64_t panel, const std::byte** rows) {
  for (int lane = 0; lane < task.ops.panel_rows; ++lane) {
    const std::int64_t row = std::min(panels.row(panel, lane), task.w.rows - 1);
    rows[lane] = task.w.data + static_cast<std::size_t>(row) * task.row_bytes;
  }
}

/// Results of a panel, acc [rows, R], to y.
void store(const Task& task,
           const Panels& panels,
           std::int64_t panel,
           std::int64_t t0,
           int rows,
           const float* acc) {
  const int width = task.ops.panel_rows;
  for (int lane = 0; lane < width; ++lane) {
    const std::int64_t row = panels.row(panel, lane);
    for (int t = 0; row < task.w.rows && t < rows; ++t) {
      task.y.row(t0 + t)[row] = acc[t * width + lane];
    }
  }
}

void advance(const std::byte** rows, int count, std::size_t bytes) {
  for (int i = 0; i < count; ++i) {
    rows[i] += bytes;
  }
}

/// y[t0 .. t0 + rows, panel] from 8-bit activations.
void quant_tile(
    const Task& task, const Panels& panels, std::int64_t panel, std::int64_t t0, int rows) {
  QuantPanel unpacked;
  const int width = task.ops.panel_rows;
  float acc[kRowTile * kMaxPanelRows];
  std::fill_n(acc, rows * width, 0.0F);
  const std::byte* from[kMaxPanelRows];
  find_rows(task, panels, panel, from);
  for (std::int64_t c = 0; c < task.w.cols; c += kQuantChunk) {
    const int columns = static_cast<int>(std::min<std::int64_t>(kQuantChunk, task.w.cols - c));
    task.ops.unpack_quant(task.w.dtype, from, columns, &unpacked);
    const QuantRows x = task.x.rows(t0, c);
    task.ops.dot_quant(task.w.dtype, &unpacked, columns, &x, rows, acc);
    advance(from, width, rift::row_bytes(task.w.dtype, columns));
  }
  store(task, panels, panel, t0, rows, acc);
}

/// y[t0 .. t0 + rows, panel] in f32.
void float_tile(
    const Task& task, const Panels& panels, std::int64_t panel, std::int64_t t0, int rows) {
  FloatPanel unpacked;
  const int width = task.ops.panel_rows;
  float acc[kRowTile * 2 * kMaxPanelRows];
  std::fill_n(acc, rows * 2 * width, 0.0F);
  const std::byte* from[kMaxPanelRows];
  find_rows(task, panels, panel, from);
  for (std::int64_t c = 0; c < task.w.cols; c += kFloatChunk) {
    const int columns = static_cast<int>(std::min<std::int64_t>(kFloatChunk, task.w.cols - c));
    task.ops.unpack_float(task.w.dtype, from, columns, &unpacked);
    const float* x = task.x.x.row(t0) + c;
    task.ops.dot_float(&unpacked, columns, x, task.x.x.stride, rows, acc);
    advance(from, width, rift::row_bytes(task.w.dtype, columns));
  }
  // The two halves of every sum, moved together in place.
  for (int t = 0; t < rows; ++t) {
    for (int lane = 0; lane < width; ++lane) {
      acc[t * width + lane] = acc[2 * t * width + lane] + acc[(2 * t + 1) * width + lane];
    }
  }
  store(task, panels, panel, t0, rows, acc);
}

}  // namespace

Activations::Activations() : impl_(std::make_unique<Impl>()) {}
Activations::~Activations() = default;

void Activations::reserve(std::int64_t max_rows, std::int64_t max_cols) {
  const auto count = static_cast<std::size_t>(max_rows * max_cols);
  const auto grow = [](auto& buffer, std::size_t size) {
    if (buffer.size() < size) {
      buffer.resize(size);
    }
  };
  grow(impl_->q, count);
  grow(impl_->scale, count / kGroup);
  grow(impl_->sum32, count / kGroup);
  grow(impl_->sum16, count / (kGroup / 2));
}

void Activations::prepare(MatView<const float> x, MatmulMode mode, ThreadPool& pool) {
  Impl& a = *impl_;
  a.x = x;
  // Only weights in blocks of 32 columns have a use for rounded rows.
  a.rounded = mode == MatmulMode::kQuantized && x.cols % kGroup == 0;
  if (!a.rounded) {
    return;
  }
  const std::int64_t count = x.rows * x.cols;
  RIFT_CHECK(count <= static_cast<std::int64_t>(a.q.size()),
             "activations [{}, {}] exceed the {} elements reserved",
             x.rows,
             x.cols,
             a.q.size());
  auto* const round_row = cpu_ops().matmul->round_row;
  pool.parallel_for(x.rows, 4, [&a, round_row](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t at = t * a.x.cols;
      round_row(a.x.row(t),
                a.x.cols,
                a.q.data() + at,
                a.scale.data() + at / kGroup,
                a.sum32.data() + at / kGroup,
                a.sum16.data() + at / (kGroup / 2));
    }
  });
}

std::size_t Activations::bytes() const {
  return impl_->q.size() +
         (impl_->scale.size() + impl_->sum32.size() + impl_->sum16.size()) * sizeof(float);
}

void matmul(const Activations& x, const WeightView& w, MatView<float> y, ThreadPool& pool) {
  const Activations::Impl& a = x.impl();
  RIFT_CHECK(a.x.cols == w.cols && y.rows == a.x.rows && y.cols == w.rows,
             "x [{}, {}], w [{}, {}], y [{}, {}]",
             a.x.rows,
             a.x.cols,
             w.rows,
             w.cols,
             y.rows,
             y.cols);
  const Task task{a, w, y, *cpu_ops().matmul, row_bytes(w.dtype, w.cols)};
  const bool quantized = a.rounded && block_elements(w.dtype) > 1;
  const std::int64_t width = task.ops.panel_rows;
  const std::int64_t panels = (w.rows + width - 1) / width;
  const auto body = [&task, quantized, width](std::int64_t begin, std::int64_t end) {
    const Panels range{begin * width, end - begin};
    for (std::int64_t t = 0; t < task.y.rows; t += kRowTile) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kRowTile, task.y.rows - t));
      for (std::int64_t panel = 0; panel < range.count; ++panel) {
        quantized ? quant_tile(task, range, panel, t, rows)
                  : float_tile(task, range, panel, t, rows);
      }
    }
  };
  pool.parallel_for(panels, 1, std::cref(body));
}

void dequantize_row(const WeightView& w, std::int64_t row, float* out) {
  RIFT_CHECK(row >= 0 && row < w.rows, "row {} of {}", row, w.rows);
  dequantize(
      w.dtype, w.data + static_cast<std::size_t>(row) * row_bytes(w.dtype, w.cols), w.cols, out);
}

}  // namespace rift::kernels
