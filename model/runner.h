// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"
#include "common/types.h"
#include "kernels/matmul.h"
#include "model/weights.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace rift::model {

/// Where keys and values live and what a query may see: the one point where a plain cache, the
/// score node's history and the draft's working set differ.
class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  /// Stores k and v of the T new tokens of `layer`, then writes attention's result.
  /// q [T, H D], k [T, G D] after norm, bias and RoPE, v [T, G D], out [T, H D]; f32.
  /// positions [T] ascending.
  virtual void attend(std::int32_t layer,
                      std::span<const Position> positions,
                      MatView<const float> q,
                      MatView<const float> k,
                      MatView<const float> v,
                      MatView<float> out,
                      ThreadPool& pool) = 0;
  /// Queries of the same rows before RoPE (query drift); called before attend where wanted.
  [[nodiscard]] virtual bool wants_raw_queries() const { return false; }
  virtual void raw_queries(std::int32_t /*layer*/, MatView<const float> /*q*/) {}
};

struct RunnerOptions {
  std::int32_t max_batch = 512;      // largest T of one forward call
  std::int32_t max_logit_rows = 64;  // largest number of rows whose logits are asked for at once
  kernels::MatmulMode mode = kernels::MatmulMode::kQuantized;
};

/// The decoder's forward pass with its scratch. All memory is taken in the constructor.
/// Thread: one at a time; `pool` belongs to the caller and outlives the runner.
class Runner {
 public:
  Runner(std::shared_ptr<const Weights> weights, const RunnerOptions& options, ThreadPool& pool);
  ~Runner();
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  [[nodiscard]] const ModelConfig& config() const;
  [[nodiscard]] const Weights& weights() const;

  /// One pass over T <= max_batch tokens at `positions`. logits [R, V] get the rows named by
  /// `logit_rows` (indices into tokens, strictly ascending), R <= max_logit_rows; R may be 0.
  /// Batch-invariant as kernels::matmul and kernels::attend are. Allocates nothing.
  /// Errors (thrown): kInvalidArgument for a token outside the vocabulary, before anything is
  /// stored; what `attention` throws.
  void forward(std::span<const TokenId> tokens,
               std::span<const Position> positions,
               AttentionBackend& attention,
               std::span<const std::int32_t> logit_rows,
               MatView<float> logits);

  /// Called after every layer with the residual stream [T, C] before the final norm; for tests.
  using LayerHook = std::function<void(std::int32_t layer, MatView<const float> residual)>;
  void set_layer_hook(LayerHook hook);

  /// Bytes held besides the weights.
  [[nodiscard]] std::uint64_t scratch_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rift::model
