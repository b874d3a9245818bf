// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstddef>
#include <cstdint>

/// What an instruction set must provide. The loops over threads, tiles and runs are shared
/// (matmul.cc, attention.cc); these are the bodies. Plain pointers only: the files that implement
/// them are compiled with their own flags and must not instantiate a shared inline function, whose
/// one surviving copy could then hold instructions that the machine lacks.
namespace rift::kernels {

inline constexpr int kMaxPanelRows = 16;
inline constexpr int kQuantChunk = 256;  // columns of a QuantPanel; a multiple of every block
inline constexpr int kFloatChunk = 256;  // columns of a FloatPanel; likewise
inline constexpr int kKeyChunk = 32;     // keys worked through at a time

/// A group of activations all below this is rounded to zeros: 127 / x could overflow.
inline constexpr float kLeastLargest = 1e-30F;

/// R = panel_rows rows of quantised weights, kQuantChunk columns at most, unpacked to bytes:
/// w [columns / 4, R, 4], scale and offset [columns / group, R]; weight = scale * w + offset.
struct QuantPanel {
  alignas(64) std::uint8_t w[kQuantChunk * kMaxPanelRows];
  alignas(64) float scale[kQuantChunk / 16 * kMaxPanelRows];
  alignas(64) float offset[kQuantChunk / 16 * kMaxPanelRows];
};

/// Activations rounded to 8 bits in groups of 32 columns: x ~ scale * q, |q| <= 127. Row t starts
/// `*_stride` elements after row t - 1.
struct QuantRows {
  const std::int8_t* q = nullptr;       // [T, columns]
  const float* scale = nullptr;         // [T, columns / 32]
  const std::int32_t* total = nullptr;  // [T, columns / 32]: sum of q
  const float* sum32 = nullptr;         // [T, columns / 32]: sum of scale * q
  const float* sum16 = nullptr;         // [T, columns / 16]
  std::int64_t stride = 0;              // of q; the others' is stride / 32 and stride / 16
};

/// One such row, to be written.
struct RoundedRow {
  std::int8_t* q;
  float* scale;
  std::int32_t* total;
  float* sum32;
  float* sum16;
};

/// R rows of weights in f32, transposed: w [columns, R].
struct FloatPanel {
  alignas(64) float w[kFloatChunk * kMaxPanelRows];
};

struct MatmulOps {
  int panel_rows = 0;  // R, rows of weights worked on side by side

  /// One row of n = 32 m activations.
  void (*round_row)(const float* x, std::int64_t n, const RoundedRow& out);

  /// `columns` elements of R rows; rows [R] point at whole blocks.
  void (*unpack_quant)(DType type, const std::byte* const* rows, int columns, QuantPanel* panel);
  /// acc [T, R] += x w^T. Integer sums within a group are exact; groups are added in order.
  void (*dot_quant)(
      DType type, const QuantPanel* panel, int columns, const QuantRows* x, int rows, float* acc);

  /// `columns` elements of R rows of any type; rows of quantised ones [R] point at whole blocks.
  void (*unpack_float)(DType type, const std::byte* const* rows, int columns, FloatPanel* panel);
  /// acc [T, 2, R] += x w^T, even columns into acc[t][0], odd ones into acc[t][1], in order.
  void (*dot_float)(const FloatPanel* panel,
                    int columns,
                    const float* x,
                    std::int64_t x_stride,
                    int rows,
                    float* acc);

  /// Null, all three, where packing does not pay: then no weights are packed (panels.h).
  /// As unpack_quant, from `data`, whole blocks of a packed panel.
  void (*unpack_panel)(DType type, const std::byte* data, int columns, QuantPanel* panel) = nullptr;
  /// acc [R] += x w^T for one row x from packed blocks; the bits of dot_quant on what unpack_panel
  /// gives.
  void (*dot_panel)(
      DType type, const std::byte* data, int columns, const QuantRows* x, float* acc) = nullptr;
  /// Unpacked quants in f32, with one rounding.
  void (*widen_panel)(DType type, QuantPanel* quants, int columns, FloatPanel* panel) = nullptr;
};

struct AttentionOps {
  /// Keys [count <= kKeyChunk] of D elements each to f32 and transposed: out [D, kKeyChunk]; lanes
  /// from count on hold anything.
  void (*transpose_keys)(
      DType type, const std::byte* const* keys, int count, int head_dim, float* out);
  /// logits [n, kKeyChunk at logit_stride] = scale * q k^T for n queries, q_stride floats apart.
  void (*dot_keys)(const float* q,
                   std::int64_t q_stride,
                   int n,
                   int head_dim,
                   const float* keys,
                   float scale,
                   float* logits,
                   std::int64_t logit_stride);
  /// One step of online softmax for n queries of one row: logits [n, kKeyChunk] (overwritten) of
  /// `count` keys, running maxima and sums [n], out [n, D].
  void (*fold_values)(DType type,
                      const std::byte* const* values,
                      int count,
                      int head_dim,
                      int n,
                      float* logits,
                      float* maxima,
                      float* sums,
                      float* out);
  /// x [n] *= factor.
  void (*multiply)(float* x, std::int64_t n, float factor);
  /// out[j] += softmax(logits [n])[j] * factor; logits are overwritten.
  void (*add_softmax)(float* logits, std::int64_t n, float factor, float* out);
};

struct ElementwiseOps {
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float eps, float* out);
  void (*rope_half)(
      float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin);
  void (*rope_interleaved)(
      float* x, std::int64_t heads, std::int64_t head_dim, const float* cos, const float* sin);
  void (*silu_multiply)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*add)(float* x, const float* y, std::int64_t n);
  void (*store_as)(DType type, const float* from, void* to, std::int64_t n);
  void (*load_as)(DType type, const void* from, float* to, std::int64_t n);
};

struct CpuOps {
  const char* name = nullptr;
  const MatmulOps* matmul = nullptr;
  const AttentionOps* attention = nullptr;
  const ElementwiseOps* elementwise = nullptr;
};

extern const MatmulOps kMatmulScalar;
extern const AttentionOps kAttentionScalar;
extern const ElementwiseOps kElementwiseScalar;
extern const MatmulOps kMatmulAvx2;
extern const AttentionOps kAttentionAvx2;
extern const ElementwiseOps kElementwiseAvx2;
extern const MatmulOps kMatmulAvx512;
extern const AttentionOps kAttentionAvx512;

/// The table for a value of RIFT_CPU_TARGET; null or empty asks for the best of this machine.
/// Throws kInvalidArgument if it is unknown or does not run here.
[[nodiscard]] const CpuOps& choose_cpu_ops(const char* wanted);
/// The table in use.
[[nodiscard]] const CpuOps& cpu_ops();
/// The table of a target, null where this machine or build lacks it.
[[nodiscard]] const CpuOps* find_cpu_ops(const char* name);
/// Swaps the table, for tests that run every target in one process. Thread: none may compute.
void set_cpu_ops_for_test(const CpuOps& ops);

}  // namespace rift::kernels
