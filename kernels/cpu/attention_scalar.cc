// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/quant_blocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rift::kernels {
namespace {

// Elements converted at a time.
constexpr int kStep = 8;

void transpose_keys(DType type, const std::byte* const* keys, int count, int head_dim, float* out) {
  const std::size_t step_bytes = kStep * block_bytes(type);
  std::fill_n(out, static_cast<std::ptrdiff_t>(head_dim) * kKeyChunk, 0.0F);
  for (int j = 0; j < count; ++j) {
    for (int d = 0; d < head_dim; d += kStep) {
      float key[kStep];
      dequantize(type, keys[j] + static_cast<std::size_t>(d / kStep) * step_bytes, kStep, key);
      for (int i = 0; i < kStep; ++i) {
        out[(d + i) * kKeyChunk + j] = key[i];
      }
    }
  }
}

void dot_keys(const float* q,
              std::int64_t q_stride,
              int n,
              int head_dim,
              const float* keys,
              float scale,
              float* logits,
              std::int64_t logit_stride) {
  for (int i = 0; i < n; ++i) {
    const float* query = q + i * q_stride;
    float* out = logits + i * logit_stride;
    for (int j = 0; j < kKeyChunk; ++j) {
      float sum = 0.0F;
      for (int d = 0; d < head_dim; ++d) {
        sum += query[d] * keys[d * kKeyChunk + j];
      }
      out[j] = scale * sum;
    }
  }
}

/// Turns logits into weights relative to the running maximum; returns by how much what was summed
/// so far shrinks.
float update_softmax(float* logits, int count, float& maximum, float& sum) {
  const float before = maximum;
  maximum = std::max(before, *std::max_element(logits, logits + count));
  float added = 0.0F;
  for (int j = 0; j < count; ++j) {
    logits[j] = std::exp(logits[j] - maximum);
    added += logits[j];
  }
  const float shrink = before == maximum ? 1.0F : std::exp(before - maximum);
  sum = sum * shrink + added;
  return shrink;
}

void fold_values(DType type,
                 const std::byte* const* values,
                 int count,
                 int head_dim,
                 int n,
                 float* logits,
                 float* maxima,
                 float* sums,
                 float* out) {
  const std::size_t step_bytes = kStep * block_bytes(type);
  for (int i = 0; i < n; ++i) {
    float* weights = logits + i * kKeyChunk;
    float* result = out + static_cast<std::ptrdiff_t>(i) * head_dim;
    const float shrink = update_softmax(weights, count, maxima[i], sums[i]);
    for (int d = 0; d < head_dim; d += kStep) {
      for (int e = 0; e < kStep; ++e) {
        result[d + e] *= shrink;
      }
      for (int j = 0; j < count; ++j) {
        float value[kStep];
        dequantize(
            type, values[j] + static_cast<std::size_t>(d / kStep) * step_bytes, kStep, value);
        for (int e = 0; e < kStep; ++e) {
          result[d + e] += weights[j] * value[e];
        }
      }
    }
  }
}

void multiply(float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] *= factor;
  }
}

void add_softmax(float* logits, std::int64_t n, float factor, float* out) {
  const float maximum = *std::max_element(logits, logits + n);
  float sum = 0.0F;
  for (std::int64_t j = 0; j < n; ++j) {
    logits[j] = std::exp(logits[j] - maximum);
    sum += logits[j];
  }
  const float share = factor / sum;
  for (std::int64_t j = 0; j < n; ++j) {
    out[j] += logits[j] * share;
  }
}

}  // namespace

const AttentionOps kAttentionScalar = {
    transpose_keys, dot_keys, fold_values, multiply, add_softmax};

}  // namespace rift::kernels
