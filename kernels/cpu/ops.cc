// SPDX-License-Identifier: Apache-2.0
#include "kernels/ops.h"

#include "common/check.h"
#include "kernels/cpu/cpu_ops.h"

namespace rift::kernels {
namespace {

std::int64_t length(std::span<const float> x) { return static_cast<std::int64_t>(x.size()); }

}  // namespace

void rms_norm(std::span<const float> x, std::span<const float> weight, float eps, float* out) {
  RIFT_DCHECK(x.size() == weight.size(), "{} values, {} weights", x.size(), weight.size());
  cpu_ops().elementwise->rms_norm(x.data(), weight.data(), length(x), eps, out);
}

void rope_half(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  cpu_ops().elementwise->rope_half(x, heads, head_dim, cos, sin);
}

void rope_interleaved(
    float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin) {
  cpu_ops().elementwise->rope_interleaved(x, heads, head_dim, cos, sin);
}

void silu_multiply(std::span<const float> gate, std::span<const float> up, float* out) {
  RIFT_DCHECK(gate.size() == up.size(), "{} and {} values", gate.size(), up.size());
  cpu_ops().elementwise->silu_multiply(gate.data(), up.data(), length(gate), out);
}

void add(std::span<float> x, std::span<const float> y) {
  RIFT_DCHECK(x.size() == y.size(), "{} and {} values", x.size(), y.size());
  cpu_ops().elementwise->add(x.data(), y.data(), length(y));
}

void store_as(DType dtype, const float* from, void* to, std::int64_t n) {
  RIFT_DCHECK(block_elements(dtype) == 1, "{}", to_string(dtype));
  cpu_ops().elementwise->store_as(dtype, from, to, n);
}

void load_as(DType dtype, const void* from, float* to, std::int64_t n) {
  RIFT_DCHECK(block_elements(dtype) == 1, "{}", to_string(dtype));
  cpu_ops().elementwise->load_as(dtype, from, to, n);
}

}  // namespace rift::kernels
