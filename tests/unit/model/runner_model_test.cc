// SPDX-License-Identifier: Apache-2.0
// Batch invariance on a published model: rows as long and quantised as the target's are; packed
// weights give the bits of those in the file.
#include "common/thread_pool.h"
#include "model/kv_cache.h"
#include "model/load_model.h"
#include "model/runner.h"
#include "model/weights.h"
#include "tests/golden/published_model.h"
#include "tests/unit/model/tiny_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <vector>

namespace rift::model {
namespace {

constexpr std::size_t kTokens = 37;

std::vector<float> logits_of(const std::shared_ptr<const Weights>& weights,
                             std::span<const TokenId> tokens,
                             int threads,
                             std::size_t width) {
  ThreadPool pool(threads);
  Runner runner(weights, {.max_batch = 64, .max_logit_rows = 64}, pool);
  KvCache cache(weights->config, DType::kF16, 64);
  return forward_in_passes(runner, cache, tokens, width);
}

TEST(RunnerOnPublishedModel, GivesTheSameBitsForAnyWidthOfPassAndThreadCount) {
  const auto path = rift::testing::model_path("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  RIFT_NEED_MODEL(path);
  const auto weights = load_weights(path);
  const std::vector<TokenId> tokens = random_tokens(kTokens, weights->config.vocab);
  const std::vector<float> one_by_one = logits_of(weights, tokens, 1, 1);
  const auto packed = load_model(path, {.threads = 2}).weights;
  EXPECT_EQ(packed->bytes, weights->bytes);  // its matrices are whole panels
  struct Case {
    const std::shared_ptr<const Weights>& weights;
    int threads;
    std::size_t width;
  };
  for (const Case& c : {Case{weights, 2, 1},
                        Case{weights, 2, 12},
                        Case{packed, 2, 1},
                        Case{packed, 1, 12},
                        Case{packed, 3, 5},
                        Case{packed, 2, kTokens}}) {
    const std::vector<float> logits = logits_of(c.weights, tokens, c.threads, c.width);
    ASSERT_EQ(logits.size(), one_by_one.size());
    EXPECT_EQ(std::memcmp(logits.data(), one_by_one.data(), logits.size() * sizeof(float)), 0)
        << (c.weights == packed ? "packed, " : "") << c.threads << " threads, width " << c.width;
  }
}

}  // namespace
}  // namespace rift::model
