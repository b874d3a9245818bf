// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/model/tiny_model.h"

#include "common/check.h"
#include "common/f16.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

namespace rift::model {
namespace {

constexpr std::int32_t kLayers = 2;
constexpr std::int32_t kQueryHeads = 4;
constexpr std::int32_t kKvHeads = 2;
constexpr std::int32_t kHeadDim = 64;
constexpr std::int32_t kHidden = 256;
constexpr std::int32_t kFeedForward = 512;
constexpr std::int32_t kVocab = 301;

using Storage = std::vector<std::vector<std::byte>>;

class Generator {
 public:
  Generator(std::uint32_t seed, DType dtype) : random_(seed), dtype_(dtype) {}

  std::vector<float> vector(std::int64_t size, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> out(static_cast<std::size_t>(size));
    std::generate(out.begin(), out.end(), [&] { return normal(random_); });
    return out;
  }

  kernels::WeightView matrix(std::int64_t rows, std::int64_t cols) {
    const std::size_t bytes = row_bytes(dtype_, cols) * static_cast<std::size_t>(rows);
    std::vector<std::byte>& data = storage_->emplace_back(bytes);
    if (dtype_ == DType::kF32) {
      const std::vector<float> values = vector(rows * cols, 0.0F, 0.05F);
      std::memcpy(data.data(), values.data(), bytes);
    } else {
      fill_blocks(data);
    }
    return {dtype_, rows, cols, data.data()};
  }

  [[nodiscard]] std::shared_ptr<const void> storage() const { return storage_; }

 private:
  // Random codes; the scales, at their places in GGUF's blocks, keep weights below about 0.1.
  void fill_blocks(std::vector<std::byte>& data) {
    std::uniform_int_distribution<int> byte(0, 255);
    std::generate(data.begin(), data.end(), [&] { return static_cast<std::byte>(byte(random_)); });
    const std::size_t size = block_bytes(dtype_);
    for (std::size_t at = 0; at < data.size(); at += size) {
      switch (dtype_) {
        case DType::kQ8_0:
          put_half(&data[at], 8e-4F);
          break;
        case DType::kQ4_K:
          put_half(&data[at], 1e-4F);
          put_half(&data[at + 2], 7.5e-4F);
          break;
        case DType::kQ6_K:
          put_half(&data[at + size - 2], 2e-5F);
          break;
        default:
          RIFT_CHECK(false, "no tiny model in {}", to_string(dtype_));
      }
    }
  }

  static void put_half(std::byte* to, float value) {
    const std::uint16_t half = f32_to_f16(value);
    std::memcpy(to, &half, sizeof(half));
  }

  std::mt19937 random_;
  DType dtype_;
  std::shared_ptr<Storage> storage_ = std::make_shared<Storage>();
};

ModelConfig tiny_config(const TinyModelOptions& options) {
  ModelConfig config;
  config.name = "tiny";
  config.layers = kLayers;
  config.query_heads = kQueryHeads;
  config.kv_heads = kKvHeads;
  config.head_dim = kHeadDim;
  config.hidden = kHidden;
  config.feed_forward = kFeedForward;
  config.vocab = kVocab;
  config.context_train = 1024;
  config.attention_scale = 1.0F / std::sqrt(static_cast<float>(kHeadDim));
  config.qkv_bias = options.qkv_bias;
  config.qk_norm = options.qk_norm;
  config.rope_layout = options.rope_layout;
  for (std::int32_t i = 0; i < kHeadDim / 2; ++i) {
    config.rope_frequencies.push_back(
        static_cast<float>(std::pow(10000.0, -2.0 * i / static_cast<double>(kHeadDim))));
  }
  return config;
}

}  // namespace

std::shared_ptr<const Weights> tiny_model(const TinyModelOptions& options) {
  Generator make(options.seed, options.dtype);
  constexpr std::int64_t kQ = kQueryHeads * kHeadDim;
  constexpr std::int64_t kKv = kKvHeads * kHeadDim;
  auto weights = std::make_shared<Weights>();
  weights->config = tiny_config(options);
  weights->embedding = make.matrix(kVocab, kHidden);
  for (std::int32_t i = 0; i < kLayers; ++i) {
    LayerWeights& layer = weights->layers.emplace_back();
    layer.attention_norm = make.vector(kHidden, 1.0F, 0.1F);
    layer.q = make.matrix(kQ, kHidden);
    layer.k = make.matrix(kKv, kHidden);
    layer.v = make.matrix(kKv, kHidden);
    if (options.qkv_bias) {
      layer.q_bias = make.vector(kQ, 0.0F, 0.5F);
      layer.k_bias = make.vector(kKv, 0.0F, 0.5F);
      layer.v_bias = make.vector(kKv, 0.0F, 0.5F);
    }
    if (options.qk_norm) {
      layer.q_norm = make.vector(kHeadDim, 1.0F, 0.1F);
      layer.k_norm = make.vector(kHeadDim, 1.0F, 0.1F);
    }
    layer.o = make.matrix(kHidden, kQ);
    layer.feed_forward_norm = make.vector(kHidden, 1.0F, 0.1F);
    layer.gate = make.matrix(kFeedForward, kHidden);
    layer.up = make.matrix(kFeedForward, kHidden);
    layer.down = make.matrix(kHidden, kFeedForward);
  }
  weights->output_norm = make.vector(kHidden, 1.0F, 0.1F);
  weights->output = make.matrix(kVocab, kHidden);
  weights->storage = make.storage();
  return weights;
}

std::vector<TokenId> random_tokens(std::size_t count, std::int32_t vocab) {
  std::mt19937 random(7);
  std::uniform_int_distribution<TokenId> id(0, vocab - 1);
  std::vector<TokenId> tokens(count);
  std::generate(tokens.begin(), tokens.end(), [&] { return id(random); });
  return tokens;
}

std::vector<float> forward_in_passes(Runner& runner,
                                     KvCache& cache,
                                     std::span<const TokenId> tokens,
                                     std::size_t width) {
  const std::int64_t vocab = runner.config().vocab;
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(vocab));
  for (std::size_t at = 0; at < tokens.size(); at += width) {
    const auto pass = tokens.subspan(at, std::min(width, tokens.size() - at));
    std::vector<Position> positions(pass.size());
    std::iota(positions.begin(), positions.end(), cache.size());
    std::vector<std::int32_t> rows(pass.size());
    std::iota(rows.begin(), rows.end(), 0);
    float* out = logits.data() + at * static_cast<std::size_t>(vocab);
    runner.forward(
        pass, positions, cache, rows, {out, static_cast<std::int64_t>(pass.size()), vocab});
  }
  return logits;
}

}  // namespace rift::model
