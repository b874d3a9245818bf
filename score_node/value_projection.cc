// SPDX-License-Identifier: Apache-2.0
#include "score_node/value_projection.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>

namespace rift::score_node {
namespace {

// Rows of W_o at a time: bounds the scratch, and is small enough to stay near the processor.
constexpr std::int64_t kRows = 256;

std::size_t cast(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

ValueProjection::ValueProjection(const ProjectionShape& shape) : shape_(shape) {
  for (std::int32_t head = 0; head < shape.kv_heads; ++head) {
    activations_.push_back(std::make_unique<kernels::Activations>());
  }
}

void ValueProjection::load_rows(const kernels::WeightView& o,
                                std::int64_t begin,
                                std::int64_t end,
                                ThreadPool& pool) {
  const std::int64_t dim = shape_.head_dim;
  const auto body = [&](std::int64_t first, std::int64_t last) {
    std::vector<float> row(cast(o.cols));
    for (std::int64_t c = first; c < last; ++c) {
      kernels::dequantize_row(o, begin + c, row.data());
      for (std::int64_t h = 0; h < shape_.query_heads; ++h) {
        std::copy_n(row.data() + h * dim, dim, weights_.data() + (h * (end - begin) + c) * dim);
      }
    }
  };
  pool.parallel_for(end - begin, 16, std::cref(body));
}

void ValueProjection::norms(const kernels::WeightView& o,
                            MatView<const float> values,
                            MatView<float> norms,
                            ThreadPool& pool) {
  const std::int64_t dim = shape_.head_dim;
  const std::int64_t tokens = values.rows;
  const std::int64_t group = shape_.query_heads / shape_.kv_heads;
  RIFT_CHECK(o.rows == shape_.hidden && o.cols == shape_.query_heads * dim &&
                 values.cols == shape_.kv_heads * dim && norms.rows == shape_.kv_heads &&
                 norms.cols == tokens,
             "o [{}, {}], values [{}, {}], norms [{}, {}]",
             o.rows,
             o.cols,
             values.rows,
             values.cols,
             norms.rows,
             norms.cols);
  if (tokens > reserved_rows_) {
    reserved_rows_ = tokens;
    for (auto& activations : activations_) {
      activations->reserve(tokens, dim);
    }
  }
  weights_.resize(std::max(weights_.size(), cast(kRows * o.cols)));
  products_.resize(std::max(products_.size(), cast(tokens * kRows)));
  for (std::int64_t g = 0; g < shape_.kv_heads; ++g) {
    activations_[cast(g)]->prepare(
        {values.data + g * dim, tokens, dim, values.stride}, kernels::MatmulMode::kExact, pool);
    std::fill_n(norms.row(g), tokens, 0.0F);
  }
  for (std::int64_t begin = 0; begin < o.rows; begin += kRows) {
    const std::int64_t rows = std::min(kRows, o.rows - begin);
    load_rows(o, begin, begin + rows, pool);
    for (std::int64_t h = 0; h < shape_.query_heads; ++h) {
      const MatView<float> y(products_.data(), tokens, rows);
      const auto* weights = reinterpret_cast<const std::byte*>(weights_.data() + h * rows * dim);
      kernels::matmul(*activations_[cast(h / group)], {DType::kF32, rows, dim, weights}, y, pool);
      float* const out = norms.row(h / group);
      const auto body = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t t = first; t < last; ++t) {
          double sum = 0.0;
          for (const float x : y.row_span(t)) {
            sum += static_cast<double>(std::abs(x));
          }
          out[t] += static_cast<float>(sum / static_cast<double>(group));
        }
      };
      pool.parallel_for(tokens, 16, std::cref(body));
    }
  }
}

}  // namespace rift::score_node
