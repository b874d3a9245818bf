// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/panels.h"
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
  std::vector<std::int32_t> total;
  std::vector<float> sum32;
  std::vector<float> sum16;

  /// Rows from `row`, columns from `column` on.
  [[nodiscard]] QuantRows rows(std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * x.cols + column;
    return {q.data() + at,
            scale.data() + at / kGroup,
            total.data() + at / kGroup,
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

/// Rows of weights [first, first + R * count) as `count` panels. Packed: R rows that follow each
/// other. As they lie in the file: panel i takes row i of each of R equal parts, so that a thread
/// reads R long streams, since rows are too short for the processor to fetch ahead.
struct Panels {
  std::int64_t first;
  std::int64_t count;
  int packed_rows;  // R, or 0

  [[nodiscard]] std::int64_t row(std::int64_t panel, int lane) const {
    return packed_rows > 0 ? first + panel * packed_rows + lane : first + lane * count + panel;
  }
};

/// Hands out the quants of one panel, a chunk of columns at a time.
class PanelReader {
 public:
  PanelReader(const Task& task, const Panels& panels, std::int64_t panel) : task_(task) {
    if (panels.packed_rows > 0) {
      packed_ = task.w.data + static_cast<std::size_t>(panels.row(panel, 0)) * task.row_bytes;
      return;
    }
    // Rows past the end repeat the last; their results are dropped.
    for (int lane = 0; lane < task.ops.panel_rows; ++lane) {
      const std::int64_t row = std::min(panels.row(panel, lane), task.w.rows - 1);
      rows_[lane] = task.w.data + static_cast<std::size_t>(row) * task.row_bytes;
    }
  }

  void next_quants(int columns, QuantPanel* out) {
    if (packed_ != nullptr) {
      task_.ops.unpack_panel(task_.w.dtype, packed_, columns, out);
    } else {
      task_.ops.unpack_quant(task_.w.dtype, rows_, columns, out);
    }
    advance(columns);
  }

  void next_floats(int columns, FloatPanel* out) {
    if (packed_ != nullptr) {
      QuantPanel quants;
      task_.ops.unpack_panel(task_.w.dtype, packed_, columns, &quants);
      task_.ops.widen_panel(task_.w.dtype, &quants, columns, out);
    } else {
      task_.ops.unpack_float(task_.w.dtype, rows_, columns, out);
    }
    advance(columns);
  }

 private:
  [[nodiscard]] std::size_t chunk_bytes(int columns) const {
    return rift::row_bytes(task_.w.dtype, columns) * static_cast<std::size_t>(task_.ops.panel_rows);
  }

  void advance(int columns) {
    if (packed_ != nullptr) {
      packed_ += chunk_bytes(columns);
      return;
    }
    const std::size_t bytes = rift::row_bytes(task_.w.dtype, columns);
    for (int lane = 0; lane < task_.ops.panel_rows; ++lane) {
      rows_[lane] += bytes;
    }
  }

  const Task& task_;
  const std::byte* packed_ = nullptr;
  const std::byte* rows_[kMaxPanelRows] = {};
};

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

/// y[t0 .. t0 + rows, panel] from 8-bit activations.
void quant_tile(
    const Task& task, const Panels& panels, std::int64_t panel, std::int64_t t0, int rows) {
  QuantPanel unpacked;
  const int width = task.ops.panel_rows;
  float acc[kRowTile * kMaxPanelRows];
  std::fill_n(acc, rows * width, 0.0F);
  PanelReader reader(task, panels, panel);
  for (std::int64_t c = 0; c < task.w.cols; c += kQuantChunk) {
    const int columns = static_cast<int>(std::min<std::int64_t>(kQuantChunk, task.w.cols - c));
    reader.next_quants(columns, &unpacked);
    const QuantRows x = task.x.rows(t0, c);
    task.ops.dot_quant(task.w.dtype, &unpacked, columns, &x, rows, acc);
  }
  store(task, panels, panel, t0, rows, acc);
}

/// y[t, panel] from 8-bit activations and packed weights.
void quant_row(const Task& task, const Panels& panels, std::int64_t panel, std::int64_t t) {
  float acc[kMaxPanelRows] = {};
  const QuantRows x = task.x.rows(t, 0);
  const std::byte* data =
      task.w.data + static_cast<std::size_t>(panels.row(panel, 0)) * task.row_bytes;
  task.ops.dot_panel(task.w.dtype, data, static_cast<int>(task.w.cols), &x, acc);
  store(task, panels, panel, t, 1, acc);
}

/// y[t0 .. t0 + rows, panel] in f32.
void float_tile(
    const Task& task, const Panels& panels, std::int64_t panel, std::int64_t t0, int rows) {
  FloatPanel unpacked;
  const int width = task.ops.panel_rows;
  float acc[kRowTile * 2 * kMaxPanelRows];
  std::fill_n(acc, rows * 2 * width, 0.0F);
  PanelReader reader(task, panels, panel);
  for (std::int64_t c = 0; c < task.w.cols; c += kFloatChunk) {
    const int columns = static_cast<int>(std::min<std::int64_t>(kFloatChunk, task.w.cols - c));
    reader.next_floats(columns, &unpacked);
    const float* x = task.x.x.row(t0) + c;
    task.ops.dot_float(&unpacked, columns, x, task.x.x.stride, rows, acc);
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
  grow(impl_->total, count / kGroup);
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
                {a.q.data() + at,
                 a.scale.data() + at / kGroup,
                 a.total.data() + at / kGroup,
                 a.sum32.data() + at / kGroup,
                 a.sum16.data() + at / (kGroup / 2)});
    }
  });
}

std::size_t Activations::bytes() const {
  return impl_->q.size() +
         (impl_->scale.size() + impl_->sum32.size() + impl_->sum16.size()) * sizeof(float) +
         impl_->total.size() * sizeof(std::int32_t);
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
  RIFT_CHECK(w.panel_rows == 0 || w.panel_rows == task.ops.panel_rows,
             "weights packed for panels of {} rows, {} are used here",
             w.panel_rows,
             task.ops.panel_rows);
  const bool quantized = a.rounded && block_elements(w.dtype) > 1;
  const std::int64_t width = task.ops.panel_rows;
  const std::int64_t panels = (w.rows + width - 1) / width;
  const auto body = [&task, quantized, width](std::int64_t begin, std::int64_t end) {
    const Panels range{begin * width, end - begin, task.w.panel_rows};
    for (std::int64_t t = 0; t < task.y.rows; t += kRowTile) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kRowTile, task.y.rows - t));
      for (std::int64_t panel = 0; panel < range.count; ++panel) {
        if (!quantized) {
          float_tile(task, range, panel, t, rows);
        } else if (rows == 1 && range.packed_rows > 0) {
          quant_row(task, range, panel, t);
        } else {
          quant_tile(task, range, panel, t, rows);
        }
      }
    }
  };
  pool.parallel_for(panels, 1, std::cref(body));
}

std::size_t packed_bytes(const WeightView& w) {
  const MatmulOps& ops = *cpu_ops().matmul;
  if (ops.unpack_panel == nullptr || block_elements(w.dtype) == 1) {
    return 0;
  }
  const std::int64_t panels = (w.rows + ops.panel_rows - 1) / ops.panel_rows;
  return static_cast<std::size_t>(panels * ops.panel_rows) * row_bytes(w.dtype, w.cols);
}

WeightView pack(const WeightView& w, std::byte* out, ThreadPool& pool) {
  RIFT_CHECK(w.panel_rows == 0 && packed_bytes(w) > 0, "{} is not packed", to_string(w.dtype));
  const int width = cpu_ops().matmul->panel_rows;
  const std::size_t bytes = row_bytes(w.dtype, w.cols);
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    const std::byte* rows[kMaxPanelRows];
    for (std::int64_t panel = begin; panel < end; ++panel) {
      for (int lane = 0; lane < width; ++lane) {
        const std::int64_t row = std::min(panel * width + lane, w.rows - 1);
        rows[lane] = w.data + static_cast<std::size_t>(row) * bytes;
      }
      pack_panel(
          w.dtype, rows, width, w.cols, out + static_cast<std::size_t>(panel * width) * bytes);
    }
  };
  pool.parallel_for((w.rows + width - 1) / width, 1, std::cref(body));
  return {w.dtype, w.rows, w.cols, out, width};
}

void dequantize_row(const WeightView& w, std::int64_t row, float* out) {
  RIFT_CHECK(row >= 0 && row < w.rows, "row {} of {}", row, w.rows);
  const std::size_t bytes = row_bytes(w.dtype, w.cols);
  if (w.panel_rows == 0) {
    dequantize(w.dtype, w.data + static_cast<std::size_t>(row) * bytes, w.cols, out);
    return;
  }
  const int lane = static_cast<int>(row % w.panel_rows);
  const std::byte* panel = w.data + static_cast<std::size_t>(row - lane) * bytes;
  const std::int64_t block = block_elements(w.dtype);
  std::byte one[kMaxBlockBytes];
  for (std::int64_t c = 0; c < w.cols; c += block) {
    unpack_row(w.dtype, panel, w.panel_rows, lane, block, one);
    dequantize(w.dtype, one, block, out + c);
    panel += static_cast<std::size_t>(w.panel_rows) * block_bytes(w.dtype);
  }
}

}  // namespace rift::kernels
