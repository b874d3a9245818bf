// SPDX-License-Identifier: Apache-2.0
// Against triattention/triattention.json, written by an independent program beside it.
#include "policy/triattention.h"

#include "tests/golden/golden_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace rift::policy {
namespace {

template <typename T>
std::vector<T> list(const boost::json::value& values) {
  return boost::json::value_to<std::vector<T>>(values);
}

TEST(TriAttention, ScoresAreThoseOfThePapersFormulas) {
  const boost::json::value file =
      boost::json::parse(testing::read_bytes(std::string(RIFT_TRIATTENTION_FIXTURE)));
  const auto tolerance = file.at("tolerance_absolute").to_number<double>();
  for (const boost::json::value& c : file.at("cases").as_array()) {
    SCOPED_TRACE(std::string(c.at("name").as_string()));
    const auto group = c.at("group").to_number<std::size_t>();
    const auto tokens = c.at("tokens").to_number<std::size_t>();
    const auto dim = c.at("head_dim").to_number<std::size_t>();
    const bool split = c.at("pairs").as_string() == "half";
    const auto queries = list<float>(c.at("queries_before_rope"));
    const auto keys = list<float>(c.at("keys_after_rope"));
    std::vector<double> mean(group * dim);
    std::vector<double> length(group * dim / 2);
    const auto count = static_cast<double>(tokens);
    for (std::size_t h = 0; h < group; ++h) {
      for (std::size_t t = 0; t < tokens; ++t) {
        const float* q = queries.data() + (h * tokens + t) * dim;
        for (std::size_t d = 0; d < dim; ++d) {
          mean[h * dim + d] += static_cast<double>(q[d]) / count;
        }
        for (std::size_t f = 0; f < dim / 2; ++f) {
          const auto a = static_cast<double>(q[split ? f : 2 * f]);
          const auto b = static_cast<double>(q[split ? f + dim / 2 : 2 * f + 1]);
          length[h * dim / 2 + f] += std::hypot(a, b) / count;
        }
      }
    }
    std::vector<float> scores(tokens);
    const auto rows = static_cast<std::int64_t>(group);
    const auto cols = static_cast<std::int64_t>(dim);
    triattention_scores({keys.data(),
                         DType::kF32,
                         static_cast<std::int32_t>(tokens),
                         c.at("head_dim").to_number<std::int32_t>()},
                        {{mean.data(), rows, cols}, {length.data(), rows, cols / 2}},
                        list<float>(c.at("frequencies")),
                        split ? kernels::RopePairs::kHalf : kernels::RopePairs::kInterleaved,
                        scores);
    const auto want = list<float>(c.at("scores"));
    ASSERT_EQ(want.size(), scores.size());
    for (std::size_t j = 0; j < tokens; ++j) {
      EXPECT_NEAR(scores[j], want[j], tolerance) << "key " << j;
    }
  }
}

}  // namespace
}  // namespace rift::policy
