// SPDX-License-Identifier: Apache-2.0
// What the score node's engine selects and sends, against the queries, keys and values that the
// reference recorded (golden data, models/). Float32 arithmetic on the stored weights.
#include "common/thread_pool.h"
#include "kernels/ref/attention.h"
#include "model/weights.h"
#include "policy/selection.h"
#include "policy/snapkv.h"
#include "score_node/engine.h"
#include "tests/golden/golden_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rift::score_node {
namespace {

using rift::testing::Tensor;

constexpr std::int32_t kTokens = 96;
constexpr std::int32_t kWindow = 16;
constexpr std::int32_t kRecent = 20;
constexpr std::int32_t kBlock = 4;
constexpr std::int32_t kSlots = 6;
constexpr std::uint64_t kMemory = 64U << 20U;

/// Jobs without a core.
class Engine {
 public:
  explicit Engine(const std::shared_ptr<const model::Weights>& weights,
                  std::uint64_t memory = kMemory)
      : engine(weights,
               {.threads = 2,
                .chunk = 128,
                .max_history_bytes = memory,
                .kv_dtype = DType::kF32,
                .mode = kernels::MatmulMode::kExact}),
        dim_(static_cast<std::size_t>(weights->config.head_dim)) {}

  std::int32_t open(SessionRef session, const std::vector<TokenId>& tokens) {
    const HistoryOpened opened = engine.run(OpenHistory{session, tokens, 128, kWindow});
    EXPECT_FALSE(opened.error) << opened.error->message();
    return opened.reused;
  }
  /// Ingests tokens [start, tokens.size()) in jobs of `chunk`.
  void ingest(SessionRef session,
              const std::vector<TokenId>& tokens,
              std::int32_t start,
              std::int32_t chunk) {
    const auto size = static_cast<std::int32_t>(tokens.size());
    for (std::int32_t at = start; at < size; at += chunk) {
      const std::int32_t end = std::min(size, at + chunk);
      const Ingested ingested =
          engine.run(Ingest{session, at, {tokens.begin() + at, tokens.begin() + end}});
      ASSERT_FALSE(ingested.error) << ingested.error->message();
      ASSERT_EQ(ingested.size, end);
    }
  }
  Selected select(SessionRef session, std::int32_t tokens = kTokens) {
    Selected selected = engine.run(Select{session, tokens, kRecent, kWindow, kBlock, kSlots});
    EXPECT_FALSE(selected.error) << selected.error->message();
    return selected;
  }
  /// Keys or values of [first, first + count).
  std::vector<float> pack(SessionRef session, Copy copy) {
    std::vector<float> out(static_cast<std::size_t>(copy.padded) * dim_, -1.0F);
    const Packed packed =
        engine.run(Pack{session, 0, {copy}}, std::as_writable_bytes(std::span(out)));
    EXPECT_FALSE(packed.error);
    return out;
  }
  ScoreEngine engine;

 private:
  std::size_t dim_;
};

class ScoreEngineTest : public ::testing::TestWithParam<std::string> {
 protected:
  ScoreEngineTest()
      : folder_(rift::testing::golden_path("models/" + GetParam())),
        golden_(rift::testing::golden_tensors(folder_ / "golden.safetensors")),
        weights_(model::load_weights(folder_)) {
    tolerance_ = rift::testing::golden_json("models/" + GetParam() + "/golden.json")
                     .at("logits_abs_tolerance")
                     .to_number<float>();
  }

  [[nodiscard]] const model::ModelConfig& config() const { return weights_->config; }
  [[nodiscard]] std::size_t dim() const { return static_cast<std::size_t>(config().head_dim); }
  [[nodiscard]] std::vector<TokenId> prompt() const { return golden_.at("input_ids").ints; }
  /// [T, D] of one head.
  [[nodiscard]] std::span<const float> recorded(std::int32_t layer,
                                                const char* what,
                                                std::int32_t head) const {
    const Tensor& t = golden_.at("layer." + std::to_string(layer) + "." + what);
    const auto size = static_cast<std::size_t>(t.shape[1] * t.shape[2]);
    return std::span(t.floats).subspan(static_cast<std::size_t>(head) * size, size);
  }

  /// Block scores of one head from the recorded queries and keys, in the plain kernels.
  [[nodiscard]] std::vector<float> recorded_scores(std::int32_t layer, std::int32_t head) const {
    const std::int32_t group = config().query_heads / config().kv_heads;
    std::vector<float> q;
    for (std::int32_t t = kTokens - kWindow; t < kTokens; ++t) {
      for (std::int32_t g = 0; g < group; ++g) {
        const auto row = recorded(layer, "q", head * group + g)
                             .subspan(static_cast<std::size_t>(t) * dim(), dim());
        q.insert(q.end(), row.begin(), row.end());
      }
    }
    kernels::WindowScoreArgs args;
    args.q = q.data();
    args.window = kWindow;
    args.group = group;
    args.head_dim = config().head_dim;
    args.scale = config().attention_scale;
    args.dtype = DType::kF32;
    args.keys = recorded(layer, "k", head).data();
    args.key_count = kTokens;
    const std::vector<double> exact = kernels::ref::window_scores(args);
    const std::vector<float> per_head(exact.begin(), exact.end());
    std::vector<float> scores(kTokens);
    policy::combine_heads(
        {per_head.data(), group, kTokens}, kWindow, Pooling::kNone, 1, scores);
    return policy::block_scores(scores, kBlock, kTokens - kRecent);
  }

  std::filesystem::path folder_;
  std::map<std::string, Tensor> golden_;
  std::shared_ptr<const model::Weights> weights_;
  float tolerance_ = 0.0F;
};

TEST_P(ScoreEngineTest, SelectsWhatThePolicySelectsFromTheRecordedQueriesAndKeys) {
  Engine e(weights_);
  const SessionRef session{1};
  EXPECT_EQ(e.open(session, prompt()), 0);
  e.ingest(session, prompt(), 0, 128);
  const Selected selected = e.select(session);
  ASSERT_EQ(std::ssize(selected.heads), config().layers * config().kv_heads);
  for (std::int32_t layer = 0; layer < config().layers; ++layer) {
    for (std::int32_t head = 0; head < config().kv_heads; ++head) {
      SCOPED_TRACE("layer " + std::to_string(layer) + " head " + std::to_string(head));
      const HeadSelection& got =
          selected.heads[static_cast<std::size_t>(layer * config().kv_heads + head)];
      const std::vector<float> want = recorded_scores(layer, head);
      ASSERT_EQ(got.scores.size(), want.size());
      for (std::size_t b = 0; b < want.size(); ++b) {
        EXPECT_NEAR(got.scores[b], want[b], 2e-4F * want[b] + 1e-6F) << "block " << b;
      }
      EXPECT_EQ(got.ranked, policy::top_k_ranked(want, kSlots));
    }
  }
}

TEST_P(ScoreEngineTest, PacksTheRecordedKeysAndValues) {
  Engine e(weights_);
  const SessionRef session{1};
  e.open(session, prompt());
  e.ingest(session, prompt(), 0, 128);
  for (const bool values : {false, true}) {
    const std::int32_t layer = config().layers - 1;
    const std::int32_t head = config().kv_heads - 1;
    const std::vector<float> got = e.pack(session, {layer, head, values, 8, 3, 4, 0});
    const auto want = recorded(layer, values ? "v" : "k", head).subspan(8 * dim());
    for (std::size_t i = 0; i < 3 * dim(); ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance_) << i;
    }
    for (std::size_t i = 3 * dim(); i < got.size(); ++i) {
      ASSERT_EQ(got[i], 0.0F) << "padding";
    }
  }
}

TEST_P(ScoreEngineTest, ChunksPrefixesAndRollbacksGiveTheSameBits) {
  const std::vector<TokenId> tokens = prompt();
  Engine whole(weights_);
  whole.open(SessionRef{1}, tokens);
  whole.ingest(SessionRef{1}, tokens, 0, 128);
  const Selected want = whole.select(SessionRef{1});
  const Copy all{config().layers - 1, 0, true, 0, kTokens, kTokens, 0};
  const std::vector<float> want_values = whole.pack(SessionRef{1}, all);

  const auto expect_same = [&](Engine& e, SessionRef session) {
    const Selected got = e.select(session);
    for (std::size_t i = 0; i < want.heads.size(); ++i) {
      EXPECT_EQ(got.heads[i].scores, want.heads[i].scores);
    }
    EXPECT_EQ(e.pack(session, all), want_values);
  };
  Engine chunks(weights_);
  chunks.open(SessionRef{1}, tokens);
  chunks.ingest(SessionRef{1}, tokens, 0, 7);
  expect_same(chunks, SessionRef{1});

  // A history that went another way from token 60 on, and was corrected.
  std::vector<TokenId> other = tokens;
  std::reverse(other.begin() + 60, other.end());
  Engine corrected(weights_);
  corrected.open(SessionRef{1}, other);
  corrected.ingest(SessionRef{1}, other, 0, 50);
  corrected.ingest(SessionRef{1}, tokens, 60, 128);
  expect_same(corrected, SessionRef{1});

  // The same as a cached history that a new session takes over.
  Engine cached(weights_);
  cached.open(SessionRef{1}, other);
  cached.ingest(SessionRef{1}, other, 0, 50);
  cached.engine.run(ReleaseHistory{SessionRef{1}, other});
  const std::int32_t reused = cached.open(SessionRef{2}, tokens);
  EXPECT_EQ(reused, 60);
  cached.ingest(SessionRef{2}, tokens, reused, 128);
  expect_same(cached, SessionRef{2});
}

TEST_P(ScoreEngineTest, AReusedPrefixLeavesTheWindowToBeComputed) {
  Engine e(weights_);
  e.open(SessionRef{1}, prompt());
  e.ingest(SessionRef{1}, prompt(), 0, 128);
  e.engine.run(ReleaseHistory{SessionRef{1}, prompt()});
  EXPECT_EQ(e.engine.histories().cached(), 1U);
  EXPECT_EQ(e.open(SessionRef{2}, prompt()), kTokens - kWindow);
  EXPECT_EQ(e.engine.histories().cached(), 0U);
}

TEST_P(ScoreEngineTest, HistoriesAreBoundedAndTheOldestCachedOneGoesFirst) {
  const std::uint64_t one = ScoreHistory::capacity_bytes(config(), DType::kF32, 128, kWindow);
  Engine e(weights_, 2 * one);
  std::vector<TokenId> a(40, 1), b(40, 2), c(40, 3);
  e.open(SessionRef{1}, a);
  e.ingest(SessionRef{1}, a, 0, 128);
  e.open(SessionRef{2}, b);
  e.ingest(SessionRef{2}, b, 0, 128);
  EXPECT_EQ(e.engine.histories().used_bytes(), 2 * one);

  const HistoryOpened refused = e.engine.run(OpenHistory{SessionRef{3}, c, 128, kWindow});
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code(), Errc::kResourceExhausted);
  EXPECT_THAT(refused.error->message(), ::testing::HasSubstr(std::to_string(one)));

  e.engine.run(ReleaseHistory{SessionRef{1}, a});
  e.engine.run(ReleaseHistory{SessionRef{2}, b});
  EXPECT_EQ(e.open(SessionRef{4}, c), 0);             // takes the room of `a`
  EXPECT_EQ(e.open(SessionRef{5}, b), 40 - kWindow);  // `b` is still there
}

INSTANTIATE_TEST_SUITE_P(Checkpoints,
                         ScoreEngineTest,
                         ::testing::Values("llama", "llama_tied", "qwen2", "qwen3"));

}  // namespace
}  // namespace rift::score_node
