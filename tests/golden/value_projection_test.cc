// SPDX-License-Identifier: Apache-2.0
// Norms of projected values: golden selection/README.md, `value_projection_norm`.
#include "score_node/value_projection.h"

#include "common/thread_pool.h"
#include "tests/golden/selection_set.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

namespace rift::score_node {
namespace {

TEST(ValueProjection, NormsAreTheGoldenOnesInEveryBatch) {
  for (const std::string name : {"synthetic0", "synthetic1"}) {
    SCOPED_TRACE(name);
    const policy::Set& set = policy::load(name);
    const auto& w_o = set.at("w_o");  // [H, D, C]
    const std::int64_t heads = set.query_heads;
    const std::int64_t dim = set.head_dim;
    const std::int64_t hidden = w_o.shape[2];
    std::vector<float> weights(static_cast<std::size_t>(hidden * heads * dim));  // [C, H D]
    for (std::int64_t row = 0; row < heads * dim; ++row) {
      for (std::int64_t c = 0; c < hidden; ++c) {
        weights[static_cast<std::size_t>(c * heads * dim + row)] =
            w_o.floats[static_cast<std::size_t>(row * hidden + c)];
      }
    }
    const kernels::WeightView o{
        DType::kF32, hidden, heads * dim, reinterpret_cast<const std::byte*>(weights.data())};
    std::vector<float> values(static_cast<std::size_t>(set.n) *
                              static_cast<std::size_t>(set.kv_heads * dim));  // [N, G D]
    for (std::int32_t t = 0; t < set.n; ++t) {
      for (std::int32_t g = 0; g < set.kv_heads; ++g) {
        const auto from =
            policy::row(set.at("v"), g)
                .subspan(static_cast<std::size_t>(t * dim), static_cast<std::size_t>(dim));
        std::copy(from.begin(), from.end(), values.begin() + (t * set.kv_heads + g) * dim);
      }
    }
    ThreadPool pool(2);
    ValueProjection projection(
        {set.query_heads, set.kv_heads, set.head_dim, static_cast<std::int32_t>(hidden)});
    const auto norms_of = [&](std::int64_t first, std::int64_t count) {
      std::vector<float> norms(static_cast<std::size_t>(set.kv_heads * count));
      projection.norms(o,
                       {values.data() + first * set.kv_heads * dim, count, set.kv_heads * dim},
                       {norms.data(), set.kv_heads, count},
                       pool);
      return norms;
    };
    const std::vector<float> all = norms_of(0, set.n);
    for (std::int32_t g = 0; g < set.kv_heads; ++g) {
      const auto want = policy::row(set.at("value_projection_norm"), g);
      const auto plane = static_cast<std::size_t>(g * set.n);
      policy::expect_scores(std::span(all).subspan(plane, static_cast<std::size_t>(set.n)), want);
      const std::vector<float> part = norms_of(100, 37);
      for (std::size_t t = 0; t < 37; ++t) {
        EXPECT_EQ(part[static_cast<std::size_t>(g) * 37 + t], all[plane + 100 + t]);
      }
    }
  }
}

}  // namespace
}  // namespace rift::score_node
