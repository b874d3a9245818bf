// SPDX-License-Identifier: Apache-2.0
// Known-good selections: golden selection/README.md. Tolerances are that file's.
#include "policy/selection.h"

#include "common/policy_spec.h"
#include "kernels/attention.h"
#include "policy/budget.h"
#include "policy/snapkv.h"
#include "tests/golden/golden_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace rift::policy {
namespace {

using rift::testing::Tensor;
using ::testing::ElementsAreArray;

constexpr std::int32_t kWindow = 64;
constexpr std::int32_t kNoBudgetLimit = 1 << 20;

struct Pool {
  Pooling kind;
  std::int32_t width;
};

Pool parse_pool(std::string_view name) {
  if (name == "avg5") {
    return {Pooling::kAverage, 5};
  }
  if (name == "max7") {
    return {Pooling::kMax, 7};
  }
  EXPECT_EQ(name, "none");
  return {Pooling::kNone, 1};
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

/// Elements per head of a [G, ...] tensor.
std::int64_t stride(const Tensor& t) {
  return std::accumulate(t.shape.begin() + 1, t.shape.end(), std::int64_t{1}, std::multiplies<>());
}

/// One golden set: its tensors and its sizes.
class Set {
 public:
  std::map<std::string, Tensor> tensors;
  boost::json::value about;
  std::int32_t n = 0, query_heads = 0, kv_heads = 0, head_dim = 0, first_query = 0;
  float scale = 0.0F;

  [[nodiscard]] std::int32_t group() const { return query_heads / kv_heads; }
  [[nodiscard]] const Tensor& at(const std::string& name) const { return tensors.at(name); }
  [[nodiscard]] const float* key(std::int32_t head, std::int32_t position) const {
    const Tensor& k = at("k");
    return k.floats.data() + head * stride(k) + std::int64_t{position} * head_dim;
  }
  [[nodiscard]] const float* query(std::int32_t head, std::int32_t position) const {
    const Tensor& q = at("q");
    return q.floats.data() + head * stride(q) + std::int64_t{position - first_query} * head_dim;
  }

  /// SnapKV scores [keys] of one KV head over the first `keys` keys. Many cases share them.
  [[nodiscard]] const std::vector<float>& snapkv(std::int32_t head,
                                                 std::int32_t keys,
                                                 Pool pool) const {
    std::vector<float>& scores = scores_[{head, keys, pool.width}];
    if (scores.empty()) {
      scores = compute_snapkv(head, keys, pool);
    }
    return scores;
  }

  [[nodiscard]] std::vector<float> compute_snapkv(std::int32_t head,
                                                  std::int32_t keys,
                                                  Pool pool) const {
    std::vector<float> q;
    for (std::int32_t t = keys - kWindow; t < keys; ++t) {
      for (std::int32_t g = 0; g < group(); ++g) {
        const float* row = query(head * group() + g, t);
        q.insert(q.end(), row, row + head_dim);
      }
    }
    std::vector<float> per_head(static_cast<std::size_t>(group()) * static_cast<std::size_t>(keys));
    std::vector<float> scratch(kernels::window_score_scratch(kWindow, keys));
    kernels::WindowScoreArgs args;
    args.q = q.data();
    args.window = kWindow;
    args.group = group();
    args.head_dim = head_dim;
    args.scale = scale;
    args.dtype = DType::kF32;
    args.keys = key(head, 0);
    args.key_count = keys;
    args.per_head = per_head.data();
    args.scratch = scratch.data();
    kernels::window_scores(args);
    std::vector<float> scores(static_cast<std::size_t>(keys));
    combine_heads({per_head.data(), group(), keys}, kWindow, pool.kind, pool.width, scores);
    return scores;
  }

  /// Attention mass that the query at position n of `head` gives to `kept` and its own key.
  [[nodiscard]] double mass(std::int32_t head,
                            std::int32_t n_keys,
                            std::span<const std::int32_t> kept) const {
    std::vector<double> logits;
    const float* q = query(head, n_keys);
    for (std::int32_t j = 0; j <= n_keys; ++j) {
      const float* k = key(head / group(), j);
      logits.push_back(std::inner_product(q, q + head_dim, k, 0.0) * static_cast<double>(scale));
    }
    const double top = *std::max_element(logits.begin(), logits.end());
    double total = 0.0;
    for (double& x : logits) {
      x = std::exp(x - top);
      total += x;
    }
    double sum = logits.back();
    for (const std::int32_t j : kept) {
      sum += logits[static_cast<std::size_t>(j)];
    }
    return sum / total;
  }

 private:
  mutable std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<float>>
      scores_;
};

const Set& load(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Set>> cache;
  std::unique_ptr<Set>& set = cache[name];
  if (!set) {
    set = std::make_unique<Set>();
    set->tensors =
        testing::golden_tensors(testing::golden_path("selection/" + name + ".safetensors"));
    set->about = starts_with(name, "synthetic")
                     ? testing::golden_json("selection/synthetic.json").at(name)
                     : testing::golden_json("selection/qwen2_0.5b.json").at("layers").at(name);
    const auto integer = [&](const char* key) {
      return set->about.at(key).to_number<std::int32_t>();
    };
    set->n = integer("n");
    set->query_heads = integer("query_heads");
    set->kv_heads = integer("kv_heads");
    set->head_dim = integer("head_dim");
    set->first_query = integer("first_query_position");
    set->scale = set->about.at("attention_scale").to_number<float>();
  }
  return *set;
}

PolicySpec spec_of(const std::string& name, const boost::json::object& c) {
  PolicySpec spec;
  spec.budget = c.at("budget").to_number<std::int32_t>();
  spec.window = kWindow;
  spec.block = c.contains("block") ? c.at("block").to_number<std::int32_t>() : 1;
  spec.rho = c.contains("rho") ? c.at("rho").to_number<float>() : 0.5F;
  spec.policy = starts_with(name, "swa")      ? Policy::kSwa
                : starts_with(name, "snapkv") ? Policy::kSnapKv
                                              : Policy::kRiftStat;
  return spec;
}

/// Positions kept of one head under `plan`: chosen blocks of [0, n - r), then the r newest.
std::vector<std::int32_t> kept_positions(const std::vector<std::int32_t>& blocks,
                                         std::int32_t block,
                                         std::int32_t recent,
                                         std::int32_t n) {
  std::vector<std::int32_t> kept;
  for (const std::int32_t b : blocks) {
    for (std::int32_t p = b * block; p < std::min((b + 1) * block, n - recent); ++p) {
      kept.push_back(p);
    }
  }
  for (std::int32_t p = n - recent; p < n; ++p) {
    kept.push_back(p);
  }
  return kept;
}

void expect_scores(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t j = 0; j < want.size(); ++j) {
    const float tolerance = want[j] > 1e-6F ? 2e-4F * want[j] : 1e-8F;
    ASSERT_NEAR(got[j], want[j], tolerance) << "key " << j;
  }
}

std::span<const float> row(const Tensor& t, std::int32_t i) {
  const auto width = static_cast<std::size_t>(stride(t));
  return std::span(t.floats).subspan(static_cast<std::size_t>(i) * width, width);
}

std::span<const std::int32_t> int_row(const Tensor& t, std::int32_t i) {
  const auto width = static_cast<std::size_t>(stride(t));
  return std::span(t.ints).subspan(static_cast<std::size_t>(i) * width, width);
}

void check_case(const Set& set, const std::string& name, const boost::json::object& c) {
  const PolicySpec spec = spec_of(name, c);
  const BudgetPlan plan = plan_budget(spec, kNoBudgetLimit);
  if (c.contains("recent")) {
    ASSERT_EQ(plan.recent, c.at("recent").to_number<std::int32_t>());
  }
  const std::int32_t limit = set.n - plan.recent;
  const Pool pool = parse_pool(c.contains("pool") ? std::string_view(c.at("pool").as_string())
                                                  : std::string_view("none"));
  for (std::int32_t head = 0; head < set.kv_heads; ++head) {
    const auto scores = block_scores(set.snapkv(head, set.n, pool), spec.block, limit);
    const std::vector<std::int32_t> chosen = top_k(scores, plan.slots_per_head);
    if (c.contains("block")) {
      expect_scores(scores, row(set.at(name + ".block_scores"), head));
      EXPECT_THAT(chosen, ElementsAreArray(int_row(set.at(name + ".block_ids"), head)));
    }
    const std::vector<std::int32_t> kept = kept_positions(chosen, spec.block, plan.recent, set.n);
    EXPECT_LE(std::ssize(kept), spec.budget);
    EXPECT_THAT(kept, ElementsAreArray(set.at(name + ".kept." + std::to_string(head)).ints));
    for (std::int32_t g = 0; g < set.group(); ++g) {
      const std::int32_t h = head * set.group() + g;
      EXPECT_NEAR(set.mass(h, set.n, kept),
                  set.at(name + ".mass").floats[static_cast<std::size_t>(h)],
                  1e-5);
    }
  }
}

class Selection : public ::testing::TestWithParam<std::string> {};

TEST_P(Selection, ScoresMatchForEveryPooling) {
  const Set& set = load(GetParam());
  for (const char* pool : {"none", "avg5", "max7"}) {
    SCOPED_TRACE(pool);
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      expect_scores(set.snapkv(head, set.n, parse_pool(pool)),
                    row(set.at(std::string("score.snapkv.") + pool), head));
    }
  }
}

TEST_P(Selection, KeepsTheGoldenPositionsAndTheirMass) {
  const Set& set = load(GetParam());
  int cases = 0;
  for (const auto& [key, c] : set.about.at("cases").as_object()) {
    const std::string name(key);
    if (starts_with(name, "swa") || starts_with(name, "snapkv") ||
        starts_with(name, "rift_stat.rho") || starts_with(name, "rift_stat.blocks") ||
        name == "rift_stat.short_recent") {
      SCOPED_TRACE(name);
      check_case(set, name, c.as_object());
      ++cases;
    }
  }
  EXPECT_GE(cases, 15);
}

class Refresh : public ::testing::TestWithParam<std::string> {};

TEST_P(Refresh, SelectsAndSlidesAsRiftDynDoes) {
  const Set& set = load(GetParam());
  const boost::json::object& c = set.about.at("cases").at("rift_dyn").as_object();
  const PolicySpec spec = spec_of("rift_dyn", c);
  const BudgetPlan plan = plan_budget(spec, kNoBudgetLimit);
  ASSERT_EQ(plan.recent, c.at("recent").to_number<std::int32_t>());
  const auto prompt = c.at("prompt").to_number<std::int32_t>();
  const auto delta = c.at("delta").to_number<std::int32_t>();
  std::map<std::int32_t, std::vector<std::vector<std::int32_t>>> selections;
  for (std::int32_t t = 0; t <= 2 * delta; t += delta) {
    const std::string name = "rift_dyn.refresh" + std::to_string(t);
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      const std::vector<float> scores = set.snapkv(head, prompt + t, {Pooling::kNone, 1});
      expect_scores(scores, row(set.at(name + ".score"), head));
      const auto candidates = block_scores(scores, 1, prompt + t - plan.recent);
      selections[t].push_back(top_k(candidates, plan.slots_per_head));
      EXPECT_THAT(selections[t].back(),
                  ElementsAreArray(int_row(set.at(name + ".selected"), head)));
    }
  }
  for (const auto& step : c.at("steps").as_array()) {
    const auto t = step.to_number<std::int32_t>();
    const std::string name = "rift_dyn.step" + std::to_string(t);
    for (std::int32_t h = 0; h < set.query_heads; ++h) {
      const std::int32_t head = h / set.group();
      const std::vector<std::int32_t> kept =
          kept_positions(selections.at(t / delta * delta)[static_cast<std::size_t>(head)],
                         1,
                         plan.recent,
                         prompt + t);
      EXPECT_THAT(kept, ElementsAreArray(int_row(set.at(name + ".kept"), head)));
      EXPECT_NEAR(set.mass(h, prompt + t, kept),
                  set.at(name + ".mass").floats[static_cast<std::size_t>(h)],
                  1e-5);
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Sets,
                         Selection,
                         ::testing::Values("synthetic0",
                                           "synthetic1",
                                           "qwen2_0.5b_layer2",
                                           "qwen2_0.5b_layer12",
                                           "qwen2_0.5b_layer21"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Sets,
                         Refresh,
                         ::testing::Values("synthetic0", "synthetic1", "qwen2_0.5b_layer12"),
                         test_name);

}  // namespace
}  // namespace rift::policy
