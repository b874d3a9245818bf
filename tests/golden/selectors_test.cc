// SPDX-License-Identifier: Apache-2.0
// Known-good scores and sets of every selector and allocation besides SnapKV: golden
// selection/README.md and extra.json. Tolerances are those of that README.
#include "policy/allocation.h"
#include "policy/critical_kv.h"
#include "policy/curdkv.h"
#include "policy/expected_attention.h"
#include "policy/h2o.h"
#include "policy/sinks.h"
#include "tests/golden/selection_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rift::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Eq;

constexpr std::size_t cast(std::int64_t value) { return static_cast<std::size_t>(value); }

const boost::json::value& extra() {
  static const boost::json::value file = testing::golden_json("selection/extra.json");
  return file;
}

template <typename T>
std::vector<T> list(const boost::json::value& values) {
  return boost::json::value_to<std::vector<T>>(values);
}

void expect_masses(const Set& set,
                   std::int32_t head,
                   std::int32_t keys,
                   std::span<const std::int32_t> kept,
                   std::span<const float> want) {
  for (std::int32_t g = 0; g < set.group(); ++g) {
    const std::int32_t h = head * set.group() + g;
    EXPECT_NEAR(set.mass(h, keys, kept), static_cast<double>(want[cast(h)]), 1e-5) << "head " << h;
  }
}

/// Kept set and mass of one KV head under a case of the .safetensors files.
void expect_kept(const Set& set,
                 const std::string& name,
                 std::int32_t head,
                 const std::vector<std::int32_t>& kept) {
  EXPECT_THAT(kept, ElementsAreArray(set.at(name + ".kept." + std::to_string(head)).ints));
  expect_masses(set, head, set.n, kept, set.at(name + ".mass").floats);
}

kernels::KeyPlane keys_of(const Set& set, std::int32_t head) {
  return {set.key(head, 0), DType::kF32, set.n, set.head_dim};
}

kernels::KeyPlane values_of(const Set& set, std::int32_t head) {
  const Tensor& v = set.at("v");
  return {v.floats.data() + head * stride(v), DType::kF32, set.n, set.head_dim};
}

class Selectors : public ::testing::TestWithParam<std::string> {
 protected:
  /// Runs body(case, its parameters) for the cases whose names begin with `prefix`.
  template <typename Body>
  void for_each_case(const Set& set, std::string_view prefix, const Body& body) {
    int cases = 0;
    for (const auto& [key, c] : set.about.at("cases").as_object()) {
      const std::string name(key);
      if (starts_with(name, prefix)) {
        SCOPED_TRACE(name);
        body(name, c.as_object());
        ++cases;
      }
    }
    EXPECT_GE(cases, 2) << prefix;
  }
};

TEST_P(Selectors, StreamingKeepsTheSinksAndTheNewest) {
  const Set& set = load(GetParam());
  for_each_case(set, "streaming.", [&](const std::string& name, const boost::json::object& c) {
    const auto budget = c.at("budget").to_number<std::int32_t>();
    ASSERT_EQ(c.at("sinks").to_number<std::int32_t>(), kSinks);
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      expect_kept(set, name, head, kept_positions({0, 1, 2, 3}, 1, budget - kSinks, set.n));
    }
  });
}

TEST_P(Selectors, PagesKeepTheNewestAndTheBestOthers) {
  const Set& set = load(GetParam());
  for_each_case(set, "rift_stat.pages", [&](const std::string& name, const boost::json::object& c) {
    const auto block = c.at("block").to_number<std::int32_t>();
    const auto recent = c.at("recent").to_number<std::int32_t>();
    const auto budget = c.at("budget").to_number<std::int32_t>();
    const std::int32_t pages = (set.n + block - 1) / block;
    const std::int32_t newest = (recent + block - 1) / block;
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      const std::vector<float> scores =
          block_scores(set.snapkv(head, set.n, {Pooling::kNone, 1}), block, set.n);
      expect_scores(scores, row(set.at(name + ".block_scores"), head));
      std::vector<std::int32_t> ids =
          top_k(std::span(scores).first(cast(pages - newest)), budget / block - newest);
      for (std::int32_t page = pages - newest; page < pages; ++page) {
        ids.push_back(page);
      }
      EXPECT_THAT(ids, ElementsAreArray(int_row(set.at(name + ".block_ids"), head)));
      expect_kept(set, name, head, kept_positions(ids, block, 0, set.n));
    }
  });
}

TEST_P(Selectors, CriticalKvChoosesInTwoStages) {
  const Set& set = load(GetParam());
  for_each_case(
      set, "rift_stat.critical", [&](const std::string& name, const boost::json::object& c) {
        const auto recent = c.at("recent").to_number<std::int32_t>();
        const auto count = c.at("budget").to_number<std::int32_t>() - recent;
        for (std::int32_t head = 0; head < set.kv_heads; ++head) {
          const std::vector<float>& scores = set.snapkv(head, set.n, {Pooling::kNone, 1});
          std::vector<float> second(scores.size());
          critical_scores(scores, row(set.at("value_projection_norm"), head), second);
          std::vector<std::int32_t> chosen =
              critical_ranked(block_scores(scores, 1, set.n - recent),
                              block_scores(second, 1, set.n - recent),
                              count);
          std::sort(chosen.begin(), chosen.end());
          expect_kept(set, name, head, kept_positions(chosen, 1, recent, set.n));
        }
      });
}

/// Moments of a query head's raw queries, from the file or from the queries themselves.
struct Moments {
  std::vector<double> mean;
  std::vector<double> covariance;
};

Moments moments_of(const Set& set, std::int32_t h) {
  const auto dim = cast(set.head_dim);
  Moments m{std::vector<double>(dim), std::vector<double>(dim * dim)};
  if (set.tensors.contains("q_mean")) {
    const auto mean = row(set.at("q_mean"), h);
    const auto covariance = row(set.at("q_cov"), h);
    m.mean.assign(mean.begin(), mean.end());
    m.covariance.assign(covariance.begin(), covariance.end());
    return m;
  }
  const auto raw = row(set.at("q_pre"), h);
  const double count = set.n - kSinks;
  for (std::size_t t = kSinks; t < cast(set.n); ++t) {
    for (std::size_t a = 0; a < dim; ++a) {
      m.mean[a] += static_cast<double>(raw[t * dim + a]) / count;
      for (std::size_t b = 0; b < dim; ++b) {
        m.covariance[a * dim + b] +=
            static_cast<double>(raw[t * dim + a]) * static_cast<double>(raw[t * dim + b]) / count;
      }
    }
  }
  for (std::size_t a = 0; a < dim; ++a) {
    for (std::size_t b = 0; b < dim; ++b) {
      m.covariance[a * dim + b] -= m.mean[a] * m.mean[b];
    }
  }
  return m;
}

MeanRotation rotation_of(const Set& set) {
  const auto base = set.about.at("rope_theta").to_number<double>();
  std::vector<float> frequencies;
  for (std::int32_t f = 0; f < set.head_dim / 2; ++f) {
    frequencies.push_back(static_cast<float>(std::pow(base, -2.0 * f / set.head_dim)));
  }
  return mean_rotation(frequencies, set.n, kExpectedPositions);
}

std::vector<float> expected_attention(const Set& set, std::int32_t head, bool value_norms) {
  const MeanRotation rotation = rotation_of(set);
  std::vector<float> scores(cast(set.n));
  for (std::int32_t g = 0; g < set.group(); ++g) {
    const Moments m = moments_of(set, head * set.group() + g);
    add_expected_attention(keys_of(set, head),
                           {m.mean, m.covariance},
                           rotation,
                           kernels::RopePairs::kHalf,
                           set.scale,
                           scores);
  }
  std::vector<float> squares(value_norms ? scores.size() : 0);
  if (value_norms) {
    kernels::squared_norms(values_of(set, head), squares);
  }
  finish_expected_attention(set.group(), squares, scores);
  return scores;
}

TEST_P(Selectors, MeanRotationIsThatOfTheTables) {
  const Set& set = load(GetParam());
  const MeanRotation rotation = rotation_of(set);
  const auto dim = cast(set.head_dim);
  for (std::size_t f = 0; f < dim / 2; ++f) {
    double cos = 0.0;
    double sin = 0.0;
    for (std::size_t i = 0; i < kExpectedPositions; ++i) {
      cos += static_cast<double>(set.at("ea.cos").floats[i * dim + f]) / kExpectedPositions;
      sin += static_cast<double>(set.at("ea.sin").floats[i * dim + f]) / kExpectedPositions;
    }
    // The table's angles are products in f32: up to 2,000 times half a unit in the last place.
    EXPECT_NEAR(rotation.cos[f], cos, 1e-4) << f;
    EXPECT_NEAR(rotation.sin[f], sin, 1e-4) << f;
  }
}

TEST_P(Selectors, ExpectedAttentionMatches) {
  const Set& set = load(GetParam());
  for (std::int32_t head = 0; head < set.kv_heads; ++head) {
    for (const bool norms : {true, false}) {
      const std::vector<float> scores = expected_attention(set, head, norms);
      const auto want = row(
          set.at(norms ? "score.expected_attention" : "score.expected_attention.novnorm"), head);
      for (std::size_t j = 0; j < kSinks; ++j) {
        EXPECT_THAT(scores[j], Eq(std::numeric_limits<float>::infinity()));
        EXPECT_THAT(want[j], Eq(std::numeric_limits<float>::infinity()));
      }
      expect_scores(std::span(scores).subspan(kSinks), want.subspan(kSinks));
    }
  }
  for_each_case(set,
                "rift_stat.expected_attention",
                [&](const std::string& name, const boost::json::object& c) {
                  const auto recent = c.at("recent").to_number<std::int32_t>();
                  const auto count = c.at("budget").to_number<std::int32_t>() - recent;
                  for (std::int32_t head = 0; head < set.kv_heads; ++head) {
                    const std::vector<float> scores = expected_attention(set, head, true);
                    const std::vector<std::int32_t> chosen =
                        top_k(block_scores(scores, 1, set.n - recent), count);
                    expect_kept(set, name, head, kept_positions(chosen, 1, recent, set.n));
                  }
                });
}

class Extra : public Selectors {
 protected:
  [[nodiscard]] const boost::json::object& about() const {
    return extra().at("sets").at(GetParam()).as_object();
  }
  /// Runs body(name, case) for the cases whose names begin with `prefix`.
  template <typename Body>
  void for_each_extra(std::string_view prefix, const Body& body) const {
    int cases = 0;
    for (const auto& [key, c] : about().at("cases").as_object()) {
      if (starts_with({key.data(), key.size()}, prefix)) {
        SCOPED_TRACE(std::string(key));
        body(std::string(key), c.as_object());
        ++cases;
      }
    }
    EXPECT_GE(cases, 2) << prefix;
  }
};

std::vector<float> curdkv(const Set& set, std::int32_t head, const std::string& kind) {
  const auto leverage = [&](const kernels::KeyPlane& plane) {
    const MatView<const float> x(
        static_cast<const float*>(plane.keys), plane.count, plane.head_dim);
    if (kind == "svd" || kind == "svd_half") {
      return statistical_leverage(x, kind == "svd" ? plane.head_dim : plane.head_dim / 2);
    }
    std::vector<float> squares(cast(plane.count));
    kernels::squared_norms(plane, squares);
    if (kind == "local16") {
      normalise_in_blocks(squares, 16);
    }
    return squares;
  };
  std::vector<float> scores(cast(set.n));
  curdkv_scores(leverage(keys_of(set, head)), leverage(values_of(set, head)), scores);
  return scores;
}

TEST_P(Extra, CurDkvMatchesInEveryForm) {
  const Set& set = load(GetParam());
  for (const std::string kind : {"norm", "local16", "svd", "svd_half"}) {
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      SCOPED_TRACE(kind);
      std::vector<float> scores = curdkv(set, head, kind);
      expect_scores(scores, list<float>(about().at("scores").at("curdkv." + kind).at(cast(head))));
      mark_sinks(scores);
      for_each_extra("curdkv." + kind + ".", [&](const std::string&, const auto& c) {
        const auto recent = c.at("recent").template to_number<std::int32_t>();
        const auto count = c.at("budget").template to_number<std::int32_t>() - recent;
        const std::vector<std::int32_t> kept =
            kept_positions(top_k(block_scores(scores, 1, set.n - recent), count), 1, recent, set.n);
        EXPECT_THAT(kept, ElementsAreArray(list<std::int32_t>(c.at("kept").at(cast(head)))));
        expect_masses(set, head, set.n, kept, list<float>(c.at("mass")));
      });
    }
  }
}

TEST_P(Extra, AdaKvSharesTheLayersBudgetAmongItsHeads) {
  const Set& set = load(GetParam());
  for_each_extra("adakv.", [&](const std::string&, const boost::json::object& c) {
    const auto recent = c.at("recent").to_number<std::int32_t>();
    const auto count = c.at("budget").to_number<std::int32_t>() - recent;
    const Fraction alpha{
        static_cast<std::int32_t>(std::lround(c.at("alpha").to_number<double>() * 10)), 10};
    const Pool pool = parse_pool(std::string_view(c.at("pool").as_string()));
    std::vector<std::vector<float>> scores;
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      scores.push_back(block_scores(set.snapkv(head, set.n, pool), 1, set.n - recent));
    }
    const AdaKvRule rule = c.at("rule").as_string() == "mix" ? AdaKvRule::kMix : AdaKvRule::kFloor;
    const std::vector<std::int32_t> counts = ada_kv_counts(scores, count, alpha, rule);
    const auto want = list<std::int32_t>(c.at("head_budgets"));
    const auto free = list<std::int32_t>(c.at("free_counts"));
    EXPECT_THAT(ada_kv_counts(scores, count, {0, 1}, AdaKvRule::kFloor), ElementsAreArray(free));
    std::int32_t total = 0;
    for (std::int32_t head = 0; head < set.kv_heads; ++head) {
      EXPECT_EQ(counts[cast(head)] + recent, want[cast(head)]);
      total += counts[cast(head)] + recent;
      const std::vector<std::int32_t> kept =
          kept_positions(top_k(scores[cast(head)], counts[cast(head)]), 1, recent, set.n);
      EXPECT_THAT(kept, ElementsAreArray(list<std::int32_t>(c.at("kept").at(cast(head)))));
      expect_masses(set, head, set.n, kept, list<float>(c.at("mass")));
    }
    EXPECT_EQ(total, c.at("total").to_number<std::int32_t>());
  });
}

TEST(PyramidKv, BudgetsOfEveryLayerAreExact) {
  for (const boost::json::value& c : extra().at("pyramidkv").as_array()) {
    SCOPED_TRACE(boost::json::serialize(c));
    const auto recent = c.at("recent").to_number<std::int32_t>();
    const std::int32_t available = c.at("prompt").is_null()
                                       ? std::numeric_limits<std::int32_t>::max()
                                       : c.at("prompt").to_number<std::int32_t>() - recent;
    std::vector<std::int32_t> counts =
        pyramid_kv_counts(c.at("layers").to_number<std::int32_t>(),
                          c.at("budget").to_number<std::int32_t>() - recent,
                          c.at("beta").to_number<std::int32_t>(),
                          available);
    for (std::int32_t& count : counts) {
      count += recent;
    }
    EXPECT_THAT(counts, ElementsAreArray(list<std::int32_t>(c.at("budgets"))));
  }
}

/// Column sums of the prompt's attention in one KV head: the mean over its query heads, in f64.
std::vector<float> prompt_sums(const Set& set, std::int32_t head, std::int32_t prompt) {
  std::vector<double> sums(cast(prompt));
  for (std::int32_t t = 0; t < prompt; ++t) {
    for (std::int32_t g = 0; g < set.group(); ++g) {
      std::vector<double> p;
      double total = 0.0;
      const float* q = set.query(head * set.group() + g, t);
      for (std::int32_t j = 0; j <= t; ++j) {
        const double logit = std::inner_product(q, q + set.head_dim, set.key(head, j), 0.0);
        p.push_back(std::exp(logit * static_cast<double>(set.scale)));
        total += p.back();
      }
      for (std::size_t j = 0; j < p.size(); ++j) {
        sums[j] += p[j] / total / set.group();
      }
    }
  }
  return {sums.begin(), sums.end()};
}

/// Probabilities of the query at position t over `entries` and its own key, mean over the group.
std::vector<float> step_probabilities(const Set& set,
                                      std::int32_t head,
                                      std::int32_t t,
                                      std::span<const H2oHead::Entry> entries) {
  std::vector<double> mean(entries.size() + 1);
  for (std::int32_t g = 0; g < set.group(); ++g) {
    const float* q = set.query(head * set.group() + g, t);
    std::vector<double> p;
    double total = 0.0;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      const float* k = set.key(head, i < entries.size() ? entries[i].position : t);
      p.push_back(std::exp(std::inner_product(q, q + set.head_dim, k, 0.0) *
                           static_cast<double>(set.scale)));
      total += p.back();
    }
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += p[i] / total / set.group();
    }
  }
  return {mean.begin(), mean.end()};
}

TEST_P(Extra, H2oCutsThePromptAndEvictsOneByOne) {
  const Set& set = load(GetParam());
  std::map<std::int32_t, std::vector<float>> sums;
  for (std::int32_t head = 0; head < set.kv_heads; ++head) {
    for_each_extra("h2o.", [&](const std::string&, const boost::json::object& c) {
      const H2oBudget budget = h2o_budget(c.at("budget").to_number<std::int32_t>());
      ASSERT_EQ(budget.heavy, c.at("heavy").to_number<std::int32_t>());
      ASSERT_EQ(budget.recent, c.at("recent").to_number<std::int32_t>());
      const auto prompt = c.at("prompt").to_number<std::int32_t>();
      std::vector<float>& prompt_sum = sums[head];
      if (prompt_sum.size() != cast(prompt)) {
        prompt_sum = prompt_sums(set, head, prompt);
      }
      H2oHead state(budget);
      state.start(prompt_sum);
      const auto evicted = list<std::int32_t>(c.at("evicted").at(cast(head)));
      for (std::int32_t m = 0; m <= 64; ++m) {
        if (const auto* after = c.at("after").as_object().if_contains(std::to_string(m))) {
          std::vector<std::int32_t> kept;
          std::vector<float> scores;
          for (const H2oHead::Entry& e : state.entries()) {
            kept.push_back(e.position);
            scores.push_back(e.score);
          }
          EXPECT_THAT(kept, ElementsAreArray(list<std::int32_t>(after->at("kept").at(cast(head)))));
          expect_scores(scores, list<float>(after->at("score").at(cast(head))));
          expect_masses(set, head, prompt + m, kept, list<float>(after->at("mass")));
        }
        if (m < 64) {
          const Position t = prompt + m;
          EXPECT_EQ(state.step(t, step_probabilities(set, head, t, state.entries())),
                    std::optional(evicted[cast(m)]))
              << "step " << m + 1;
        }
      }
    });
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Sets,
                         Selectors,
                         ::testing::Values("synthetic0",
                                           "synthetic1",
                                           "qwen2_0.5b_layer2",
                                           "qwen2_0.5b_layer12",
                                           "qwen2_0.5b_layer21"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Sets,
                         Extra,
                         ::testing::Values("synthetic0", "synthetic1", "qwen2_0.5b_layer12"),
                         test_name);

}  // namespace
}  // namespace rift::policy
