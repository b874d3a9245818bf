// SPDX-License-Identifier: Apache-2.0
#include "kernels/key_scores.h"

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace rift::kernels {
namespace {

std::size_t cast(std::int64_t value) { return static_cast<std::size_t>(value); }

/// Calls body(base, count, transposed [D, kKeyChunk]) for every chunk of keys.
template <typename Body>
void for_each_chunk(const KeyPlane& plane, const Body& body) {
  RIFT_CHECK(plane.head_dim % 8 == 0, "head dimension {}", plane.head_dim);
  const AttentionOps& ops = *cpu_ops().attention;
  const std::size_t key_bytes = row_bytes(plane.dtype, plane.head_dim);
  const auto* first = static_cast<const std::byte*>(plane.keys);
  std::vector<float> transposed(cast(plane.head_dim) * kKeyChunk);
  const std::byte* keys[kKeyChunk];
  for (std::int32_t base = 0; base < plane.count; base += kKeyChunk) {
    const int count = std::min(kKeyChunk, plane.count - base);
    for (int i = 0; i < count; ++i) {
      keys[i] = first + cast(base + i) * key_bytes;
    }
    ops.transpose_keys(plane.dtype, keys, count, plane.head_dim, transposed.data());
    body(base, count, static_cast<const float*>(transposed.data()));
  }
}

/// Lengths of the pairs of a chunk: [D / 2, kKeyChunk].
void pair_lengths(const float* keys, int head_dim, RopePairs pairs, float* out) {
  const int half = head_dim / 2;
  for (int f = 0; f < half; ++f) {
    const float* a =
        keys + static_cast<std::ptrdiff_t>(pairs == RopePairs::kHalf ? f : 2 * f) * kKeyChunk;
    const float* b =
        a + static_cast<std::ptrdiff_t>(pairs == RopePairs::kHalf ? half : 1) * kKeyChunk;
    for (int j = 0; j < kKeyChunk; ++j) {
      out[f * kKeyChunk + j] = std::sqrt(a[j] * a[j] + b[j] * b[j]);
    }
  }
}

}  // namespace

void quadratic_scores(const KeyPlane& plane,
                      std::span<const float> linear,
                      std::span<const float> matrix,
                      std::span<float> out) {
  const int dim = plane.head_dim;
  RIFT_CHECK(linear.size() == cast(dim) && matrix.size() == cast(dim) * cast(dim) &&
                 out.size() == cast(plane.count),
             "linear [{}], matrix [{}], out [{}]",
             linear.size(),
             matrix.size(),
             out.size());
  const AttentionOps& ops = *cpu_ops().attention;
  std::vector<float> products(cast(dim) * kKeyChunk);
  float sums[kKeyChunk];
  for_each_chunk(plane, [&](std::int32_t base, int count, const float* keys) {
    ops.dot_keys(linear.data(), dim, 1, dim, keys, 1.0F, sums, kKeyChunk);
    ops.dot_keys(matrix.data(), dim, dim, dim, keys, 1.0F, products.data(), kKeyChunk);
    for (int d = 0; d < dim; ++d) {
      for (int j = 0; j < kKeyChunk; ++j) {
        sums[j] += keys[d * kKeyChunk + j] * products[cast(d) * kKeyChunk + cast(j)];
      }
    }
    std::copy_n(sums, count, out.begin() + base);
  });
}

void pair_scores(const KeyPlane& plane,
                 RopePairs pairs,
                 MatView<const float> linear,
                 MatView<const float> norm,
                 MatView<float> out) {
  const int dim = plane.head_dim;
  RIFT_CHECK(linear.cols == dim && norm.cols == dim / 2 && out.cols == plane.count &&
                 linear.rows == norm.rows && linear.rows == out.rows,
             "linear [{}, {}], norm [{}, {}], out [{}, {}]",
             linear.rows,
             linear.cols,
             norm.rows,
             norm.cols,
             out.rows,
             out.cols);
  const AttentionOps& ops = *cpu_ops().attention;
  const int rows = static_cast<int>(linear.rows);
  std::vector<float> lengths(cast(dim / 2) * kKeyChunk);
  std::vector<float> first(cast(rows) * kKeyChunk);
  std::vector<float> second(first.size());
  for_each_chunk(plane, [&](std::int32_t base, int count, const float* keys) {
    pair_lengths(keys, dim, pairs, lengths.data());
    ops.dot_keys(linear.data, linear.stride, rows, dim, keys, 1.0F, first.data(), kKeyChunk);
    ops.dot_keys(
        norm.data, norm.stride, rows, dim / 2, lengths.data(), 1.0F, second.data(), kKeyChunk);
    for (int i = 0; i < rows; ++i) {
      for (int j = 0; j < count; ++j) {
        const std::size_t at = cast(i) * kKeyChunk + cast(j);
        out.row(i)[base + j] = first[at] + second[at];
      }
    }
  });
}

void squared_norms(const KeyPlane& plane, std::span<float> out) {
  RIFT_CHECK(out.size() == cast(plane.count), "out [{}] for {}", out.size(), plane.count);
  auto* const load_as = cpu_ops().elementwise->load_as;
  const std::size_t bytes = row_bytes(plane.dtype, plane.head_dim);
  std::vector<float> x(cast(plane.head_dim));
  for (std::size_t j = 0; j < out.size(); ++j) {
    load_as(plane.dtype,
            static_cast<const std::byte*>(plane.keys) + j * bytes,
            x.data(),
            plane.head_dim);
    double sum = 0.0;
    for (const float value : x) {
      sum += static_cast<double>(value) * static_cast<double>(value);
    }
    out[j] = static_cast<float>(sum);
  }
}

}  // namespace rift::kernels
