// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention.h"
#include "policy/retained_mass.h"
#include "policy/selection.h"
#include "policy/snapkv.h"
#include "tests/golden/golden_data.h"

#include <gtest/gtest.h>

#include <algorithm>
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

/// The inputs of the golden selections and what their tests share.
namespace rift::policy {

using rift::testing::Tensor;

inline constexpr std::int32_t kWindow = 64;
inline constexpr std::int32_t kNoBudgetLimit = 1 << 20;

struct Pool {
  Pooling kind;
  std::int32_t width;
};

inline Pool parse_pool(std::string_view name) {
  if (name == "avg5") {
    return {Pooling::kAverage, 5};
  }
  if (name == "max7") {
    return {Pooling::kMax, 7};
  }
  EXPECT_EQ(name, "none");
  return {Pooling::kNone, 1};
}

inline bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

/// Elements per head of a [G, ...] tensor.
inline std::int64_t stride(const Tensor& t) {
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
    return retained_mass({query(head, n_keys), static_cast<std::size_t>(head_dim)},
                         {key(head / group(), 0), n_keys + 1, head_dim},
                         kept,
                         scale);
  }

 private:
  mutable std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::vector<float>>
      scores_;
};

inline const Set& load(const std::string& name) {
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

/// Positions kept of one head under `plan`: chosen blocks of [0, n - r), then the r newest.
inline std::vector<std::int32_t> kept_positions(const std::vector<std::int32_t>& blocks,
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

inline void expect_scores(std::span<const float> got, std::span<const float> want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t j = 0; j < want.size(); ++j) {
    const float tolerance = want[j] > 1e-6F ? 2e-4F * want[j] : 1e-8F;
    ASSERT_NEAR(got[j], want[j], tolerance) << "key " << j;
  }
}

inline std::span<const float> row(const Tensor& t, std::int32_t i) {
  const auto width = static_cast<std::size_t>(stride(t));
  return std::span(t.floats).subspan(static_cast<std::size_t>(i) * width, width);
}

inline std::span<const std::int32_t> int_row(const Tensor& t, std::int32_t i) {
  const auto width = static_cast<std::size_t>(stride(t));
  return std::span(t.ints).subspan(static_cast<std::size_t>(i) * width, width);
}

}  // namespace rift::policy
