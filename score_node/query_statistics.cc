// SPDX-License-Identifier: Apache-2.0
#include "score_node/query_statistics.h"

#include "common/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rift::score_node {
namespace {

using Second = StatisticsSpec::Second;

std::size_t cast(std::int64_t value) { return static_cast<std::size_t>(value); }

std::size_t second_of(const StatisticsSpec& spec, std::int32_t head_dim) {
  switch (spec.second) {
    case Second::kNone:
      return 0;
    case Second::kProducts:
      return cast(head_dim) * cast(head_dim);
    case Second::kPairLengths:
      return cast(head_dim) / 2;
  }
  RIFT_CHECK(false, "statistics {}", static_cast<int>(spec.second));
}

}  // namespace

QueryStatistics::QueryStatistics(const Shape& shape, const StatisticsSpec& spec)
    : shape_(shape), spec_(spec), second_(second_of(spec, shape.head_dim)) {
  if (!kept()) {
    return;
  }
  const std::size_t heads = cast(shape.layers) * cast(shape.query_heads);
  sums_.resize(heads * (cast(shape.head_dim) + second_));
  ring_.resize(heads * cast(shape.slack) * cast(shape.head_dim));
  folded_.resize(cast(shape.layers));
  end_.resize(cast(shape.layers));
}

std::uint64_t QueryStatistics::bytes(const Shape& shape, const StatisticsSpec& spec) {
  if (spec.second == Second::kNone) {
    return 0;
  }
  const std::size_t heads = cast(shape.layers) * cast(shape.query_heads);
  return heads * ((cast(shape.head_dim) + second_of(spec, shape.head_dim)) * sizeof(double) +
                  cast(shape.slack) * cast(shape.head_dim) * sizeof(float));
}

std::uint64_t QueryStatistics::bytes() const { return bytes(shape_, spec_); }

const float* QueryStatistics::query(std::int32_t layer, std::int32_t head, Position p) const {
  const std::size_t row = cast(layer) * cast(shape_.slack) + cast(p % shape_.slack);
  return ring_.data() + (row * cast(shape_.query_heads) + cast(head)) * cast(shape_.head_dim);
}

std::size_t QueryStatistics::sum_offset(std::int32_t layer, std::int32_t head) const {
  return (cast(layer) * cast(shape_.query_heads) + cast(head)) * (cast(shape_.head_dim) + second_);
}

void QueryStatistics::add(const float* q, double* sums) const {
  const std::int32_t dim = shape_.head_dim;
  double* second = sums + dim;
  for (std::int32_t a = 0; a < dim; ++a) {
    sums[a] += static_cast<double>(q[a]);
  }
  if (spec_.second == Second::kProducts) {
    for (std::int32_t a = 0; a < dim; ++a) {
      const auto x = static_cast<double>(q[a]);
      for (std::int32_t b = 0; b <= a; ++b) {  // the rest is its mirror image
        second[a * dim + b] += x * static_cast<double>(q[b]);
      }
    }
    return;
  }
  for (std::int32_t f = 0; f < dim / 2; ++f) {
    const std::int32_t a = spec_.interleaved_pairs ? 2 * f : f;
    const std::int32_t b = spec_.interleaved_pairs ? 2 * f + 1 : f + dim / 2;
    second[f] += std::hypot(static_cast<double>(q[a]), static_cast<double>(q[b]));
  }
}

void QueryStatistics::fold_oldest(std::int32_t layer) {
  const Position p = folded_[cast(layer)]++;
  if (p < spec_.skip) {
    return;
  }
  for (std::int32_t head = 0; head < shape_.query_heads; ++head) {
    add(query(layer, head, p), sums_.data() + sum_offset(layer, head));
  }
}

void QueryStatistics::append(std::int32_t layer, Position first, MatView<const float> q) {
  if (!kept()) {
    return;
  }
  RIFT_CHECK(first == end_[cast(layer)],
             "queries from position {}, the statistics end at {}",
             first,
             end_[cast(layer)]);
  for (std::int64_t t = 0; t < q.rows; ++t) {
    const Position p = end_[cast(layer)]++;
    if (p - folded_[cast(layer)] == shape_.slack) {
      fold_oldest(layer);
    }
    const std::size_t row = cast(layer) * cast(shape_.slack) + cast(p % shape_.slack);
    std::copy_n(q.row(t), q.cols, ring_.data() + row * cast(q.cols));
  }
}

Position QueryStatistics::truncate(Position size) {
  if (!kept()) {
    return size;
  }
  const bool exact = std::all_of(
      folded_.begin(), folded_.end(), [size](Position folded) { return folded <= size; });
  if (!exact) {
    std::fill(sums_.begin(), sums_.end(), 0.0);
    std::fill(folded_.begin(), folded_.end(), 0);
  }
  const Position left = exact ? size : 0;
  for (Position& end : end_) {
    end = std::min(end, left);
  }
  return left;
}

void QueryStatistics::means(std::int32_t layer,
                            std::int32_t head,
                            Position n,
                            std::span<double> first,
                            std::span<double> second) const {
  const std::size_t dim = cast(shape_.head_dim);
  RIFT_CHECK(first.size() == dim && second.size() == second_ && n >= folded_[cast(layer)] &&
                 n <= end_[cast(layer)],
             "statistics up to {} of [{}, {}]",
             n,
             folded_[cast(layer)],
             end_[cast(layer)]);
  const auto from = sums_.begin() + static_cast<std::ptrdiff_t>(sum_offset(layer, head));
  std::vector<double> sums(from, from + static_cast<std::ptrdiff_t>(dim + second_));
  for (Position p = std::max(folded_[cast(layer)], spec_.skip); p < n; ++p) {
    add(query(layer, head, p), sums.data());
  }
  const double count = std::max(n - spec_.skip, 1);
  for (double& sum : sums) {
    sum /= count;
  }
  std::copy_n(sums.begin(), dim, first.begin());
  std::copy_n(sums.begin() + static_cast<std::ptrdiff_t>(dim), second_, second.begin());
  if (spec_.second == Second::kProducts) {
    for (std::size_t a = 0; a < dim; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        second[a * dim + b] -= first[a] * first[b];
        second[b * dim + a] = second[a * dim + b];
      }
    }
  }
}

}  // namespace rift::score_node
