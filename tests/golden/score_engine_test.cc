// SPDX-License-Identifier: Apache-2.0
// What the score node's engine selects and sends, against the queries, keys and values that the
// reference recorded (golden data, models/). Float32 arithmetic on the stored weights.
#include "common/thread_pool.h"
#include "kernels/key_scores.h"
#include "kernels/ref/attention.h"
#include "model/weights.h"
#include "policy/allocation.h"
#include "policy/critical_kv.h"
#include "policy/curdkv.h"
#include "policy/expected_attention.h"
#include "policy/selection.h"
#include "policy/sinks.h"
#include "policy/snapkv.h"
#include "policy/triattention.h"
#include "score_node/engine.h"
#include "tests/golden/golden_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
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

  std::int32_t open(SessionRef session,
                    const std::vector<TokenId>& tokens,
                    Selector selector = Selector::kSnapKv) {
    const HistoryOpened opened = engine.run(OpenHistory{session, tokens, 128, kWindow, selector});
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
    return select(Select{session, tokens, kRecent, kWindow, kBlock, kSlots});
  }
  Selected select(SessionRef session, Selector selector) {
    Select job{session, kTokens, kRecent, kWindow, kBlock, kSlots};
    job.selector = selector;
    return select(job);
  }
  Selected select(const Select& job) {
    Selected selected = engine.run(job);
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

  [[nodiscard]] kernels::KeyPlane plane(std::int32_t layer,
                                        const char* what,
                                        std::int32_t head) const {
    return {recorded(layer, what, head).data(), DType::kF32, kTokens, config().head_dim};
  }
  [[nodiscard]] kernels::RopePairs pairs() const {
    return config().rope_layout == model::RopeLayout::kHalf ? kernels::RopePairs::kHalf
                                                            : kernels::RopePairs::kInterleaved;
  }
  /// Query of head h at position t before RoPE: the recorded one turned back.
  [[nodiscard]] std::vector<double> raw_query(std::int32_t layer,
                                              std::int32_t h,
                                              std::int32_t t) const {
    const auto q = recorded(layer, "q", h).subspan(static_cast<std::size_t>(t) * dim(), dim());
    std::vector<double> raw(dim());
    for (std::size_t f = 0; f < dim() / 2; ++f) {
      const bool split = pairs() == kernels::RopePairs::kHalf;
      const std::size_t a = split ? f : 2 * f;
      const std::size_t b = split ? f + dim() / 2 : 2 * f + 1;
      const double angle = static_cast<double>(config().rope_frequencies[f]) * t;
      raw[a] =
          std::cos(angle) * static_cast<double>(q[a]) + std::sin(angle) * static_cast<double>(q[b]);
      raw[b] =
          std::cos(angle) * static_cast<double>(q[b]) - std::sin(angle) * static_cast<double>(q[a]);
    }
    return raw;
  }
  /// Scores of every position of one head from what was recorded; `second` as CriticalKV has it.
  [[nodiscard]] std::vector<float> expected_attention(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] std::vector<float> triattention(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] std::vector<float> curdkv(std::int32_t layer, std::int32_t head) const;
  /// H2O: what all recorded queries give every recorded key.
  [[nodiscard]] std::vector<float> attention_sums(std::int32_t layer, std::int32_t head) const;
  [[nodiscard]] std::vector<float> value_norms(std::int32_t layer, std::int32_t head) const;

  /// Block scores of one head from the recorded queries and keys, in the plain kernels.
  [[nodiscard]] std::vector<float> recorded_scores(std::int32_t layer, std::int32_t head) const {
    return policy::block_scores(window_scores(layer, head), kBlock, kTokens - kRecent);
  }
  /// Queries [kTokens - begin, g, D] from position `begin` on of the group that reads one KV head.
  [[nodiscard]] std::vector<float> group_queries(std::int32_t layer,
                                                 std::int32_t head,
                                                 std::int32_t begin) const {
    const std::int32_t group = config().query_heads / config().kv_heads;
    std::vector<float> q;
    for (std::int32_t t = begin; t < kTokens; ++t) {
      for (std::int32_t g = 0; g < group; ++g) {
        const auto row = recorded(layer, "q", head * group + g)
                             .subspan(static_cast<std::size_t>(t) * dim(), dim());
        q.insert(q.end(), row.begin(), row.end());
      }
    }
    return q;
  }
  [[nodiscard]] std::vector<float> window_scores(std::int32_t layer, std::int32_t head) const {
    const std::int32_t group = config().query_heads / config().kv_heads;
    const std::vector<float> q = group_queries(layer, head, kTokens - kWindow);
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
    policy::combine_heads({per_head.data(), group, kTokens}, kWindow, Pooling::kNone, 1, scores);
    return scores;
  }

  std::filesystem::path folder_;
  std::map<std::string, Tensor> golden_;
  std::shared_ptr<const model::Weights> weights_;
  float tolerance_ = 0.0F;
};

std::vector<float> ScoreEngineTest::expected_attention(std::int32_t layer,
                                                       std::int32_t head) const {
  const std::int32_t group = config().query_heads / config().kv_heads;
  const auto rotation =
      policy::mean_rotation(config().rope_frequencies, kTokens, policy::kExpectedPositions);
  std::vector<float> scores(kTokens);
  for (std::int32_t h = head * group; h < (head + 1) * group; ++h) {
    std::vector<double> mean(dim());
    std::vector<double> products(dim() * dim());
    constexpr double kCount = kTokens - policy::kSinks;
    for (std::int32_t t = policy::kSinks; t < kTokens; ++t) {
      const std::vector<double> q = raw_query(layer, h, t);
      for (std::size_t a = 0; a < dim(); ++a) {
        mean[a] += q[a] / kCount;
        for (std::size_t b = 0; b < dim(); ++b) {
          products[a * dim() + b] += q[a] * q[b] / kCount;
        }
      }
    }
    for (std::size_t a = 0; a < dim(); ++a) {
      for (std::size_t b = 0; b < dim(); ++b) {
        products[a * dim() + b] -= mean[a] * mean[b];
      }
    }
    policy::add_expected_attention(plane(layer, "k", head),
                                   {mean, products},
                                   rotation,
                                   pairs(),
                                   config().attention_scale,
                                   scores);
  }
  std::vector<float> squares(kTokens);
  kernels::squared_norms(plane(layer, "v", head), squares);
  policy::finish_expected_attention(group, squares, scores);
  return scores;
}

std::vector<float> ScoreEngineTest::triattention(std::int32_t layer, std::int32_t head) const {
  const std::int32_t group = config().query_heads / config().kv_heads;
  std::vector<double> mean(static_cast<std::size_t>(group) * dim());
  std::vector<double> length(mean.size() / 2);
  for (std::int32_t i = 0; i < group; ++i) {
    for (std::int32_t t = 0; t < kTokens; ++t) {
      const std::vector<double> q = raw_query(layer, head * group + i, t);
      for (std::size_t d = 0; d < dim(); ++d) {
        mean[static_cast<std::size_t>(i) * dim() + d] += q[d] / kTokens;
      }
      for (std::size_t f = 0; f < dim() / 2; ++f) {
        const bool split = pairs() == kernels::RopePairs::kHalf;
        length[static_cast<std::size_t>(i) * dim() / 2 + f] +=
            std::hypot(q[split ? f : 2 * f], q[split ? f + dim() / 2 : 2 * f + 1]) / kTokens;
      }
    }
  }
  std::vector<float> scores(kTokens);
  policy::triattention_scores(
      plane(layer, "k", head),
      {{mean.data(), group, config().head_dim}, {length.data(), group, config().head_dim / 2}},
      config().rope_frequencies,
      pairs(),
      scores);
  return scores;
}

std::vector<float> ScoreEngineTest::curdkv(std::int32_t layer, std::int32_t head) const {
  std::vector<float> keys(kTokens);
  std::vector<float> values(kTokens);
  kernels::squared_norms(plane(layer, "k", head), keys);
  kernels::squared_norms(plane(layer, "v", head), values);
  std::vector<float> scores(kTokens);
  policy::curdkv_scores(keys, values, scores);
  policy::mark_sinks(scores);
  return scores;
}

std::vector<float> ScoreEngineTest::attention_sums(std::int32_t layer, std::int32_t head) const {
  const std::int32_t group = config().query_heads / config().kv_heads;
  const std::vector<float> q = group_queries(layer, head, 0);
  const kernels::KvRun keys{recorded(layer, "k", head).data(), nullptr, kTokens};
  kernels::KeyShareArgs args;
  args.q = {q.data(), kTokens, std::int64_t{group} * config().head_dim};
  args.group = group;
  args.head_dim = config().head_dim;
  args.scale = config().attention_scale;
  args.dtype = DType::kF32;
  args.runs = {&keys, 1};
  args.visible = 1;
  const std::vector<double> sums = kernels::ref::key_shares(args);
  return {sums.begin(), sums.end()};
}

std::vector<float> ScoreEngineTest::value_norms(std::int32_t layer, std::int32_t head) const {
  const std::int32_t group = config().query_heads / config().kv_heads;
  const kernels::WeightView& o = weights_->layers[static_cast<std::size_t>(layer)].o;
  std::vector<double> norms(kTokens);
  std::vector<float> row(static_cast<std::size_t>(o.cols));
  for (std::int64_t c = 0; c < o.rows; ++c) {
    kernels::dequantize_row(o, c, row.data());
    for (std::int32_t t = 0; t < kTokens; ++t) {
      const auto v = recorded(layer, "v", head).subspan(static_cast<std::size_t>(t) * dim(), dim());
      for (std::int32_t h = head * group; h < (head + 1) * group; ++h) {
        const double product =
            std::inner_product(v.begin(), v.end(), row.begin() + h * config().head_dim, 0.0);
        norms[static_cast<std::size_t>(t)] += std::abs(product) / group;
      }
    }
  }
  return {norms.begin(), norms.end()};
}

constexpr Selector kSelectors[] = {Selector::kSnapKv,
                                   Selector::kCriticalKv,
                                   Selector::kExpectedAttention,
                                   Selector::kCurDkv,
                                   Selector::kTriAttention,
                                   Selector::kH2o};

TEST_P(ScoreEngineTest, EverySelectorScoresTheRecordedQueriesKeysAndValues) {
  for (const Selector selector : kSelectors) {
    Engine e(weights_);
    e.open(SessionRef{1}, prompt(), selector);
    e.ingest(SessionRef{1}, prompt(), 0, 128);
    const Selected selected = e.select(SessionRef{1}, selector);
    for (std::int32_t layer = 0; layer < config().layers; ++layer) {
      for (std::int32_t head = 0; head < config().kv_heads; ++head) {
        SCOPED_TRACE(std::string(to_string(selector)) + " layer " + std::to_string(layer) +
                     " head " + std::to_string(head));
        const HeadSelection& got =
            selected.heads[static_cast<std::size_t>(layer * config().kv_heads + head)];
        std::vector<float> positions =
            selector == Selector::kExpectedAttention ? expected_attention(layer, head)
            : selector == Selector::kCurDkv          ? curdkv(layer, head)
            : selector == Selector::kTriAttention    ? triattention(layer, head)
            : selector == Selector::kH2o             ? attention_sums(layer, head)
                                                     : window_scores(layer, head);
        const std::vector<float> want = policy::block_scores(positions, kBlock, kTokens - kRecent);
        ASSERT_EQ(got.scores.size(), want.size());
        for (std::size_t b = 0; b < want.size(); ++b) {
          if (std::isinf(want[b])) {
            EXPECT_EQ(got.scores[b], want[b]) << "block " << b;
          } else {
            // The recorded numbers and ours differ by what the golden logits' tolerance allows.
            EXPECT_NEAR(got.scores[b], want[b], 1e-3F * std::abs(want[b]) + 1e-5F) << "block " << b;
          }
        }
        std::vector<std::int32_t> ranked = policy::top_k_ranked(got.scores, kSlots);
        if (selector == Selector::kCriticalKv) {
          std::vector<float> second(positions.size());
          policy::critical_scores(positions, value_norms(layer, head), second);
          ranked = policy::critical_ranked(
              want, policy::block_scores(second, kBlock, kTokens - kRecent), kSlots);
        }
        EXPECT_EQ(got.ranked, ranked);
      }
    }
  }
}

TEST_P(ScoreEngineTest, AllocationsMoveBlocksWithinALayerOrBetweenLayers) {
  Engine e(weights_);
  e.open(SessionRef{1}, prompt());
  e.ingest(SessionRef{1}, prompt(), 0, 128);
  Select job{SessionRef{1}, kTokens, kRecent, kWindow, kBlock, kSlots};
  job.allocation = Allocation::kAdaKv;
  const Selected ada = e.select(job);
  job.allocation = Allocation::kPyramidKv;
  job.layer_slots =
      policy::pyramid_kv_counts(config().layers, kSlots, policy::kPyramidKvBeta, 1000);
  const Selected pyramid = e.select(job);
  for (std::int32_t layer = 0; layer < config().layers; ++layer) {
    std::vector<std::vector<float>> scores;
    for (std::int32_t head = 0; head < config().kv_heads; ++head) {
      scores.push_back(recorded_scores(layer, head));
    }
    const auto counts =
        policy::ada_kv_counts(scores, kSlots, policy::kAdaKvFloor, policy::AdaKvRule::kFloor);
    for (std::int32_t head = 0; head < config().kv_heads; ++head) {
      const auto h = static_cast<std::size_t>(head);
      const auto at = static_cast<std::size_t>(layer * config().kv_heads + head);
      EXPECT_EQ(ada.heads[at].ranked, policy::top_k_ranked(scores[h], counts[h]));
      EXPECT_EQ(pyramid.heads[at].ranked,
                policy::top_k_ranked(scores[h], job.layer_slots[static_cast<std::size_t>(layer)]));
    }
  }
}

TEST_P(ScoreEngineTest, StatisticsThatCannotBeCutAreGatheredAgainFromTheStart) {
  for (const Selector selector : {Selector::kExpectedAttention, Selector::kTriAttention}) {
    Engine whole(weights_);
    whole.open(SessionRef{1}, prompt(), selector);
    whole.ingest(SessionRef{1}, prompt(), 0, 128);
    const Selected want = whole.select(SessionRef{1}, selector);

    Engine e(weights_);
    e.open(SessionRef{1}, prompt(), selector);
    e.ingest(SessionRef{1}, prompt(), 0, 7);
    // Position 10 was added up long ago: the node is told to begin again.
    const Ingested cut = e.engine.run(Ingest{SessionRef{1}, 10, {prompt()[10]}});
    EXPECT_EQ(cut.size, 0);
    EXPECT_EQ(cut.queries_begin, 0);
    e.ingest(SessionRef{1}, prompt(), 0, 40);
    const Selected got = e.select(SessionRef{1}, selector);
    for (std::size_t i = 0; i < want.heads.size(); ++i) {
      EXPECT_EQ(got.heads[i].scores, want.heads[i].scores);
    }
    // A cached history is taken over only where its statistics can be cut.
    e.engine.run(ReleaseHistory{SessionRef{1}, prompt()});
    std::vector<TokenId> other = prompt();
    other.resize(30);  // 14 of them could be used, the statistics begin at 16
    EXPECT_EQ(e.open(SessionRef{2}, other, selector), 0);
    EXPECT_EQ(e.engine.histories().cached(), 1U);
    EXPECT_EQ(e.open(SessionRef{3}, prompt(), selector), kTokens - kWindow);
  }
}

TEST_P(ScoreEngineTest, SumsOverAllQueriesAreGatheredAgainAfterAnyCutAndHandedOverWhole) {
  Engine e(weights_);
  e.open(SessionRef{1}, prompt(), Selector::kH2o);
  e.ingest(SessionRef{1}, prompt(), 0, 7);
  const Ingested cut = e.engine.run(Ingest{SessionRef{1}, kTokens - 1, {prompt()[kTokens - 1]}});
  EXPECT_EQ(cut.size, 0);
  e.ingest(SessionRef{1}, prompt(), 0, 40);
  Select job{SessionRef{1}, kTokens, kRecent, 0, 1, kSlots};
  job.selector = Selector::kH2o;
  job.recent_scores = true;
  const Selected selected = e.select(job);
  for (std::int32_t layer = 0; layer < config().layers; ++layer) {
    for (std::int32_t head = 0; head < config().kv_heads; ++head) {
      const HeadSelection& got =
          selected.heads[static_cast<std::size_t>(layer * config().kv_heads + head)];
      ASSERT_EQ(std::ssize(got.scores), kTokens - kRecent);
      ASSERT_EQ(std::ssize(got.recent), kRecent);
      std::vector<float> sums = got.scores;
      sums.insert(sums.end(), got.recent.begin(), got.recent.end());
      EXPECT_THAT(sums,
                  ::testing::Pointwise(::testing::FloatNear(1e-3F), attention_sums(layer, head)));
      // Every query gives away 1.
      EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), kTokens, 1e-3);
    }
  }
  // A cached history serves only those that begin with all of it.
  e.engine.run(ReleaseHistory{SessionRef{1}, prompt()});
  std::vector<TokenId> longer = prompt();
  longer.pop_back();
  longer.insert(longer.end(), kWindow, 1);
  EXPECT_EQ(e.open(SessionRef{2}, longer, Selector::kH2o), 0);
  longer = prompt();
  longer.insert(longer.end(), kWindow, 1);
  EXPECT_EQ(e.open(SessionRef{3}, longer, Selector::kH2o), kTokens);
}

TEST_P(ScoreEngineTest, ShortHistoriesHaveScoresUnderEverySelector) {
  for (const Selector selector : kSelectors) {
    for (const std::int32_t tokens : {1, 2, 3, 4, 5, 17}) {
      SCOPED_TRACE(std::string(to_string(selector)) + " " + std::to_string(tokens));
      std::vector<TokenId> part = prompt();
      part.resize(static_cast<std::size_t>(tokens));
      Engine e(weights_);
      e.open(SessionRef{1}, part, selector);
      e.ingest(SessionRef{1}, part, 0, 128);
      for (const std::int32_t block : {1, 16}) {
        Select job{SessionRef{1}, tokens, 0, std::min(tokens, kWindow), block, kSlots};
        job.selector = selector;
        for (const HeadSelection& head : e.select(job).heads) {
          EXPECT_EQ(std::ssize(head.scores), (tokens + block - 1) / block);
          EXPECT_EQ(std::ssize(head.ranked),
                    std::min<std::int64_t>(kSlots, std::ssize(head.scores)));
          for (const float score : head.scores) {
            EXPECT_FALSE(std::isnan(score));
          }
        }
      }
    }
  }
}

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
  for (const Selector selector : kSelectors) {
    SCOPED_TRACE(std::string(to_string(selector)));
    const std::vector<TokenId> tokens = prompt();
    Engine whole(weights_);
    whole.open(SessionRef{1}, tokens, selector);
    whole.ingest(SessionRef{1}, tokens, 0, 128);
    const Selected want = whole.select(SessionRef{1}, selector);
    const Copy all{config().layers - 1, 0, true, 0, kTokens, kTokens, 0};
    const std::vector<float> want_values = whole.pack(SessionRef{1}, all);

    const auto expect_same = [&](Engine& e, SessionRef session) {
      const Selected got = e.select(session, selector);
      for (std::size_t i = 0; i < want.heads.size(); ++i) {
        EXPECT_EQ(got.heads[i].scores, want.heads[i].scores);
      }
      EXPECT_EQ(e.pack(session, all), want_values);
    };
    Engine chunks(weights_);
    chunks.open(SessionRef{1}, tokens, selector);
    chunks.ingest(SessionRef{1}, tokens, 0, 7);
    expect_same(chunks, SessionRef{1});

    // A history that went another way from token 60 on, and was corrected.
    std::vector<TokenId> other = tokens;
    std::reverse(other.begin() + 60, other.end());
    Engine corrected(weights_);
    corrected.open(SessionRef{1}, other, selector);
    corrected.ingest(SessionRef{1}, other, 0, 50);
    const bool whole_only = selector == Selector::kH2o;  // its sums cannot be cut
    if (whole_only) {
      EXPECT_EQ(corrected.engine.run(Ingest{SessionRef{1}, 60, {tokens[60]}}).size, 0);
    }
    corrected.ingest(SessionRef{1}, tokens, whole_only ? 0 : 60, 128);
    expect_same(corrected, SessionRef{1});

    // The same as a cached history that a new session takes over.
    Engine cached(weights_);
    cached.open(SessionRef{1}, other, selector);
    cached.ingest(SessionRef{1}, other, 0, 50);
    cached.engine.run(ReleaseHistory{SessionRef{1}, other});
    const std::int32_t reused = cached.open(SessionRef{2}, tokens, selector);
    EXPECT_EQ(reused, whole_only ? 0 : 60);
    cached.ingest(SessionRef{2}, tokens, reused, 128);
    expect_same(cached, SessionRef{2});
  }
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
  const std::uint64_t one =
      ScoreHistory::capacity_bytes(config(), DType::kF32, 128, kWindow, Selector::kSnapKv);
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
