// SPDX-License-Identifier: Apache-2.0
#include "model/runner.h"

#include "common/error.h"
#include "common/thread_pool.h"
#include "model/kv_cache.h"
#include "tests/unit/model/count_allocations.h"
#include "tests/unit/model/tiny_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

namespace rift::model {
namespace {

using kernels::MatmulMode;

constexpr RunnerOptions kOptions{
    .max_batch = 64, .max_logit_rows = 64, .mode = MatmulMode::kQuantized};
constexpr std::int32_t kContext = 128;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class RunnerOf : public testing::TestWithParam<DType> {
 protected:
  std::shared_ptr<const Weights> weights_ =
      tiny_model({.dtype = GetParam(), .qkv_bias = true, .qk_norm = true});
  std::vector<TokenId> tokens_ = random_tokens(37, weights_->config.vocab);

  std::vector<float> logits(int threads, std::size_t width) {
    ThreadPool pool(threads);
    Runner runner(weights_, kOptions, pool);
    KvCache cache(weights_->config, DType::kF16, kContext);
    return forward_in_passes(runner, cache, tokens_, width);
  }
};

TEST_P(RunnerOf, GivesTheSameBitsForAnyWidthOfPassAndThreadCount) {
  const std::vector<float> one_by_one = logits(1, 1);
  for (const float logit : one_by_one) {
    ASSERT_TRUE(std::isfinite(logit));
  }
  struct Case {
    int threads;
    std::size_t width;
  };
  for (const Case& c :
       {Case{2, 1}, Case{1, 2}, Case{2, 5}, Case{3, 12}, Case{1, 37}, Case{2, 37}}) {
    EXPECT_TRUE(same_bits(logits(c.threads, c.width), one_by_one))
        << c.threads << " threads, width " << c.width;
  }
}

TEST_P(RunnerOf, GivesTheSameBitsAfterRejectedTokensWereUndone) {
  const std::vector<float> expected = logits(1, 37);
  ThreadPool pool(2);
  Runner runner(weights_, kOptions, pool);
  KvCache cache(weights_->config, DType::kF16, kContext);
  std::vector<float> actual = forward_in_passes(runner, cache, std::span(tokens_).first(25), 25);
  for (std::size_t at = 25; at < tokens_.size(); at += 4) {
    const std::vector<TokenId> wrong(12, static_cast<TokenId>(at));
    (void)forward_in_passes(runner, cache, wrong, 12);
    cache.truncate(static_cast<std::int32_t>(at));
    const auto next = std::span(tokens_).subspan(at, std::min<std::size_t>(4, tokens_.size() - at));
    const std::vector<float> some = forward_in_passes(runner, cache, next, 4);
    actual.insert(actual.end(), some.begin(), some.end());
  }
  EXPECT_TRUE(same_bits(actual, expected));
}

INSTANTIATE_TEST_SUITE_P(Weights,
                         RunnerOf,
                         testing::Values(DType::kF32, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K),
                         [](const auto& param_info) {
                           return std::string(to_string(param_info.param));
                         });

class RunnerTest : public testing::Test {
 protected:
  std::shared_ptr<const Weights> weights_ = tiny_model({});
  const ModelConfig& config_ = weights_->config;
  ThreadPool pool_{2};
  Runner runner_{weights_, kOptions, pool_};
  KvCache cache_{config_, DType::kF16, kContext};
  std::vector<TokenId> tokens_ = random_tokens(16, config_.vocab);
  std::vector<Position> positions_{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
};

TEST_F(RunnerTest, ComputesOnlyTheLogitRowsAskedFor) {
  const std::vector<float> all = forward_in_passes(runner_, cache_, tokens_, 16);
  cache_.truncate(0);
  const std::vector<std::int32_t> rows = {2, 3, 11};
  const auto vocab = static_cast<std::size_t>(config_.vocab);
  std::vector<float> some(rows.size() * vocab);
  runner_.forward(tokens_, positions_, cache_, rows, {some.data(), 3, config_.vocab});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(same_bits(std::span(some).subspan(i * vocab, vocab),
                          std::span(all).subspan(static_cast<std::size_t>(rows[i]) * vocab, vocab)))
        << "row " << rows[i];
  }
}

TEST_F(RunnerTest, StoresKeysAndValuesWhenNoLogitsAreAskedFor) {
  const std::vector<float> expected = forward_in_passes(runner_, cache_, tokens_, 15);
  cache_.truncate(0);
  runner_.forward(std::span(tokens_).first(15), std::span(positions_).first(15), cache_, {}, {});
  EXPECT_EQ(cache_.size(), 15);
  const auto last = forward_in_passes(runner_, cache_, std::span(tokens_).last(1), 1);
  EXPECT_TRUE(same_bits(last, std::span(expected).last(last.size())));
}

TEST_F(RunnerTest, ShowsEveryLayerToTheHookWithoutChangingTheLogits) {
  const std::vector<float> expected = forward_in_passes(runner_, cache_, tokens_, 16);
  cache_.truncate(0);
  std::vector<std::int32_t> layers;
  runner_.set_layer_hook([&](std::int32_t layer, MatView<const float> residual) {
    layers.push_back(layer);
    EXPECT_EQ(residual.rows, 16);
    EXPECT_EQ(residual.cols, config_.hidden);
  });
  EXPECT_TRUE(same_bits(forward_in_passes(runner_, cache_, tokens_, 16), expected));
  EXPECT_EQ(layers, (std::vector<std::int32_t>{0, 1}));
}

TEST_F(RunnerTest, RefusesATokenOutsideTheVocabularyAndStoresNothing) {
  for (const TokenId bad : {-1, config_.vocab}) {
    tokens_[7] = bad;
    try {
      runner_.forward(tokens_, positions_, cache_, {}, {});
      FAIL() << "accepted token " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Errc::kInvalidArgument);
    }
    EXPECT_EQ(cache_.size(), 0);
  }
}

TEST_F(RunnerTest, AccountsForAllItsScratch) {
  kernels::Activations activations;
  activations.reserve(kOptions.max_batch, config_.feed_forward);
  // Residual, its norm, q, attention's result, k, v, gate, up, cosines and sines of 64 rows.
  const std::int64_t floats_per_row =
      2 * config_.hidden + 2 * config_.query_heads * config_.head_dim +
      2 * config_.kv_heads * config_.head_dim + 2 * config_.feed_forward + config_.head_dim;
  EXPECT_EQ(runner_.scratch_bytes(),
            static_cast<std::uint64_t>(kOptions.max_batch * floats_per_row) * sizeof(float) +
                activations.bytes());
}

TEST_F(RunnerTest, AllocatesNothingOnceWarm) {
  std::vector<float> logits(static_cast<std::size_t>(config_.vocab));
  const std::vector<std::int32_t> row = {15};
  const MatView<float> out(logits.data(), 1, config_.vocab);
  runner_.forward(tokens_, positions_, cache_, row, out);
  cache_.truncate(0);
  const std::int64_t before = allocations();
  runner_.forward(tokens_, positions_, cache_, row, out);
  EXPECT_EQ(allocations() - before, 0);
}

/// Keeps the queries of the first layer before and after RoPE.
class QueryRecorder : public KvCache {
 public:
  using KvCache::KvCache;
  [[nodiscard]] bool wants_raw_queries() const override { return true; }
  void raw_queries(std::int32_t layer, MatView<const float> q) override {
    if (layer == 0) {
      raw.assign(q.data, q.data + q.rows * q.cols);
    }
  }
  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override {
    if (layer == 0) {
      rotated.assign(q.data, q.data + q.rows * q.cols);
    }
    KvCache::attend(layer, positions, q, k, v, out, pool);
  }
  std::vector<float> raw;
  std::vector<float> rotated;
};

class RunnerRope : public testing::TestWithParam<RopeLayout> {};

TEST_P(RunnerRope, TurnsEveryPairByItsFrequencyTimesThePosition) {
  const auto weights = tiny_model({.rope_layout = GetParam()});
  const ModelConfig& config = weights->config;
  ThreadPool pool(2);
  Runner runner(weights, kOptions, pool);
  QueryRecorder cache(config, DType::kF16, kContext);
  const std::vector<TokenId> tokens = random_tokens(40, config.vocab);
  (void)forward_in_passes(runner, cache, tokens, 40);

  const std::size_t dim = 64;
  const std::size_t half = dim / 2;
  const bool split = GetParam() == RopeLayout::kHalf;
  ASSERT_EQ(cache.raw.size(), tokens.size() * 4 * dim);
  for (std::size_t head = 0; head < tokens.size() * 4; ++head) {
    const double position = static_cast<double>(head / 4);
    for (std::size_t i = 0; i < half; ++i) {
      const std::size_t first = head * dim + (split ? i : 2 * i);
      const std::size_t second = head * dim + (split ? i + half : 2 * i + 1);
      const double angle = position * static_cast<double>(config.rope_frequencies[i]);
      const double x = cache.raw[first];
      const double y = cache.raw[second];
      // Two products and a sum in float: 4 eps of the pair's length.
      const double tolerance = 4 * 6e-8 * std::hypot(x, y);
      EXPECT_NEAR(cache.rotated[first], x * std::cos(angle) - y * std::sin(angle), tolerance);
      EXPECT_NEAR(cache.rotated[second], x * std::sin(angle) + y * std::cos(angle), tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts,
                         RunnerRope,
                         testing::Values(RopeLayout::kHalf, RopeLayout::kInterleaved),
                         [](const auto& param_info) {
                           return param_info.param == RopeLayout::kHalf ? "half" : "interleaved";
                         });

}  // namespace
}  // namespace rift::model
