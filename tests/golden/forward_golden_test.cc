// SPDX-License-Identifier: Apache-2.0
// The forward pass against reference checkpoints (golden data, models/): float32 arithmetic on the
// stored weights, absolute tolerance `logits_abs_tolerance` of each golden.json.
#include "common/thread_pool.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/weights.h"
#include "tests/golden/golden_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace rift::model {
namespace {

using rift::testing::Tensor;

/// Largest |a - b| over two equally long ranges; NaN counts as infinite.
float max_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0.0F;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
  }
  return worst;
}

TokenId best(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Keeps what every layer's attention was given, all passes in order: q [T, H D], k, v [T, G D].
class RecordingCache : public KvCache {
 public:
  using KvCache::KvCache;

  void attend(std::int32_t layer,
              std::span<const Position> positions,
              MatView<const float> q,
              MatView<const float> k,
              MatView<const float> v,
              MatView<float> out,
              ThreadPool& pool) override {
    const auto at = static_cast<std::size_t>(layer);
    append(q_.at(at), q);
    append(k_.at(at), k);
    append(v_.at(at), v);
    KvCache::attend(layer, positions, q, k, v, out, pool);
  }

  std::vector<std::vector<float>> q_{static_cast<std::size_t>(geometry().layers)};
  std::vector<std::vector<float>> k_{static_cast<std::size_t>(geometry().layers)};
  std::vector<std::vector<float>> v_{static_cast<std::size_t>(geometry().layers)};

 private:
  static void append(std::vector<float>& to, MatView<const float> rows) {
    for (std::int64_t t = 0; t < rows.rows; ++t) {
      const auto row = rows.row_span(t);
      to.insert(to.end(), row.begin(), row.end());
    }
  }
};

/// [T, heads D] as the golden file has it: [heads, T, D].
std::vector<float> heads_first(std::span<const float> rows, std::int64_t heads, std::int64_t dim) {
  const std::int64_t count = static_cast<std::int64_t>(rows.size()) / (heads * dim);
  std::vector<float> out;
  for (std::int64_t h = 0; h < heads; ++h) {
    for (std::int64_t t = 0; t < count; ++t) {
      const auto begin = rows.begin() + (t * heads + h) * dim;
      out.insert(out.end(), begin, begin + dim);
    }
  }
  return out;
}

class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name)
      : folder_(rift::testing::golden_path("models/" + name)),
        tensors_(rift::testing::golden_tensors(folder_ / "golden.safetensors")),
        tolerance_(rift::testing::golden_json("models/" + name + "/golden.json")
                       .at("logits_abs_tolerance")
                       .to_number<float>()),
        weights_(load_weights(folder_)),
        runner_(weights_,
                {.max_batch = 128, .max_logit_rows = 128, .mode = kernels::MatmulMode::kExact},
                pool_) {}

  [[nodiscard]] const Tensor& tensor(const std::string& name) const { return tensors_.at(name); }
  [[nodiscard]] float tolerance() const { return tolerance_; }
  [[nodiscard]] const ModelConfig& config() const { return weights_->config; }
  Runner& runner() { return runner_; }

  /// Appends tokens to the cache; logits of all of them, [T, V].
  std::vector<float> forward(KvCache& cache, std::span<const TokenId> tokens) {
    const auto count = static_cast<std::int32_t>(tokens.size());
    std::vector<Position> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), cache.size());
    std::vector<std::int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(tokens.size() * static_cast<std::size_t>(config().vocab));
    runner_.forward(tokens, positions, cache, rows, {logits.data(), count, config().vocab});
    return logits;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, Tensor> tensors_;
  float tolerance_;
  ThreadPool pool_{2};
  std::shared_ptr<const Weights> weights_;
  Runner runner_;
};

class ForwardInChunks : public ::testing::TestWithParam<std::tuple<std::string, std::size_t>> {};

TEST_P(ForwardInChunks, GivesTheReferenceLogitsOfPromptAndDecode) {
  const auto& [name, chunk] = GetParam();
  Checkpoint model(name);
  KvCache cache(model.config(), DType::kF32, 128);
  const std::vector<TokenId>& prompt = model.tensor("input_ids").ints;
  ASSERT_EQ(prompt.size(), 96U);
  std::vector<float> logits;
  for (std::size_t at = 0; at < prompt.size(); at += chunk) {
    const auto part = std::span(prompt).subspan(at, std::min(chunk, prompt.size() - at));
    const std::vector<float> some = model.forward(cache, part);
    logits.insert(logits.end(), some.begin(), some.end());
  }
  EXPECT_LE(max_difference(logits, model.tensor("logits").floats), model.tolerance());

  const auto vocab = static_cast<std::size_t>(model.config().vocab);
  const std::vector<TokenId>& greedy = model.tensor("decode_ids").ints;
  ASSERT_EQ(greedy.size(), 16U);
  std::vector<float> last(logits.end() - static_cast<std::ptrdiff_t>(vocab), logits.end());
  for (std::size_t i = 0; i < greedy.size(); ++i) {
    ASSERT_EQ(best(last), greedy[i]) << "step " << i;
    last = model.forward(cache, std::span(greedy).subspan(i, 1));
    const auto expected = std::span(model.tensor("decode_logits").floats).subspan(i * vocab, vocab);
    ASSERT_LE(max_difference(last, expected), model.tolerance()) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Golden,
    ForwardInChunks,
    ::testing::Combine(::testing::Values("llama", "llama_tied", "qwen2", "qwen3"),
                       ::testing::Values(96U, 7U, 1U)),
    [](const auto& param_info) {
      return std::get<0>(param_info.param) + "_" + std::to_string(std::get<1>(param_info.param));
    });

class ForwardLayers : public ::testing::TestWithParam<std::string> {};

TEST_P(ForwardLayers, HaveTheReferenceQueriesKeysValuesAndResiduals) {
  Checkpoint model(GetParam());
  const ModelConfig& config = model.config();
  RecordingCache cache(config, DType::kF32, 128);
  std::vector<std::vector<float>> residuals(static_cast<std::size_t>(config.layers));
  model.runner().set_layer_hook([&](std::int32_t layer, MatView<const float> residual) {
    auto& to = residuals.at(static_cast<std::size_t>(layer));
    to.insert(to.end(), residual.data, residual.data + residual.rows * residual.cols);
  });
  std::vector<TokenId> tokens = model.tensor("input_ids").ints;
  const std::vector<TokenId>& greedy = model.tensor("decode_ids").ints;
  tokens.insert(tokens.end(), greedy.begin(), greedy.end());
  (void)model.forward(cache, tokens);

  for (std::size_t i = 0; i < residuals.size(); ++i) {
    const std::string prefix = "layer." + std::to_string(i) + ".";
    const auto check = [&](const char* what, std::span<const float> actual) {
      EXPECT_LE(max_difference(actual, model.tensor(prefix + what).floats), model.tolerance())
          << prefix << what;
    };
    check("q", heads_first(cache.q_[i], config.query_heads, config.head_dim));
    check("k", heads_first(cache.k_[i], config.kv_heads, config.head_dim));
    check("v", heads_first(cache.v_[i], config.kv_heads, config.head_dim));
    check("out", residuals[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         ForwardLayers,
                         ::testing::Values("llama", "llama_tied", "qwen2", "qwen3"),
                         [](const auto& param_info) { return param_info.param; });

}  // namespace
}  // namespace rift::model
