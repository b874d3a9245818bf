// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/weights.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rift::model {

/// A random model small enough for unit tests, with matrices in any supported dtype.
struct TinyModelOptions {
  DType dtype = DType::kF32;
  RopeLayout rope_layout = RopeLayout::kHalf;
  bool qkv_bias = false;
  bool qk_norm = false;
  std::uint32_t seed = 1;
};
[[nodiscard]] std::shared_ptr<const Weights> tiny_model(const TinyModelOptions& options);

/// `count` token ids below `vocab`, from a fixed seed.
[[nodiscard]] std::vector<TokenId> random_tokens(std::size_t count, std::int32_t vocab);

/// Appends `tokens` to `cache` in passes of at most `width`; logits of every token, [T, V].
[[nodiscard]] std::vector<float> forward_in_passes(Runner& runner,
                                                   KvCache& cache,
                                                   std::span<const TokenId> tokens,
                                                   std::size_t width);

}  // namespace rift::model
