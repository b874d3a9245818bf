// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include "kernels/ref/attention.h"
#include "tests/unit/kernels/fixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace rift::kernels {
namespace {

using Attention = EveryTarget;
RIFT_FOR_EVERY_TARGET(Attention);

/// A cache of random keys and values cut into runs, and queries over it.
struct Case {
  std::int32_t query_heads = 6;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 64;
  std::int32_t rows = 5;
  std::int32_t keys = 100;  // per head; the last row sees all, row t that many less T - 1 - t
  std::int32_t run_length = 16;
  DType dtype = DType::kF16;
  unsigned seed = 1;
};

class Cache {
 public:
  explicit Cache(const Case& c) : case_(c) {
    Random random(c.seed);
    keys_ = random_weights(c.dtype, c.kv_heads * c.keys, c.head_dim, random);
    values_ = random_weights(c.dtype, c.kv_heads * c.keys, c.head_dim, random);
    q_ = random_floats(static_cast<std::size_t>(c.rows * width()), random, 20.0F);
    const std::size_t bytes = row_bytes(c.dtype, c.head_dim);
    for (std::int32_t head = 0; head < c.kv_heads; ++head) {
      first_.push_back(static_cast<std::int32_t>(runs_.size()));
      for (std::int32_t at = 0; at < c.keys; at += c.run_length) {
        const auto offset = static_cast<std::size_t>(head * c.keys + at) * bytes;
        runs_.push_back(
            {keys_.data() + offset, values_.data() + offset, std::min(c.run_length, c.keys - at)});
      }
    }
    first_.push_back(static_cast<std::int32_t>(runs_.size()));
    for (std::int32_t t = 0; t < c.rows; ++t) {
      visible_.push_back(std::max(1, c.keys - (c.rows - 1 - t)));
    }
  }

  [[nodiscard]] std::int64_t width() const {
    return static_cast<std::int64_t>(case_.query_heads) * case_.head_dim;
  }
  /// Rows [from, from + count) as one call; `out` [count, H * D].
  [[nodiscard]] AttendArgs args(std::int32_t from, std::int32_t count, float* out) const {
    AttendArgs a;
    a.q = {q_.data() + from * width(), count, width()};
    a.query_heads = case_.query_heads;
    a.kv_heads = case_.kv_heads;
    a.head_dim = case_.head_dim;
    a.scale = 1.0F / std::sqrt(static_cast<float>(case_.head_dim));
    a.dtype = case_.dtype;
    a.runs = runs_;
    a.first = first_;
    a.visible = std::span(visible_).subspan(static_cast<std::size_t>(from),
                                            static_cast<std::size_t>(count));
    a.out = {out, count, width()};
    return a;
  }
  [[nodiscard]] std::vector<float> run(std::int32_t from, std::int32_t count, int threads) const {
    std::vector<float> out(static_cast<std::size_t>(count * width()), 1e30F);
    ThreadPool pool(threads);
    attend(args(from, count, out.data()), pool);
    return out;
  }

 private:
  Case case_;
  std::vector<std::byte> keys_;
  std::vector<std::byte> values_;
  std::vector<float> q_;
  std::vector<KvRun> runs_;
  std::vector<std::int32_t> first_;
  std::vector<std::int32_t> visible_;
};

void compare(const Case& c) {
  SCOPED_TRACE(testing::Message() << to_string(c.dtype) << " H=" << c.query_heads
                                  << " G=" << c.kv_heads << " D=" << c.head_dim << " T=" << c.rows
                                  << " keys=" << c.keys << " run=" << c.run_length);
  const Cache cache(c);
  const std::vector<float> y = cache.run(0, c.rows, 2);
  const std::vector<double> expected = ref::attend(cache.args(0, c.rows, nullptr));
  for (std::size_t i = 0; i < y.size(); ++i) {
    // Values are about 0.05, logits up to about 10: an error of 10 eps sqrt(D) in a logit is the
    // same relative error of a weight.
    ASSERT_NEAR(y[i], expected[i], 0.2 * 64.0 * kEps * 8.0) << "element " << i;
  }
}

TEST_P(Attention, AgreesWithTheTwinForEveryShapeAndRunLength) {
  for (const DType dtype : kPlainTypes) {
    for (const std::int32_t keys : {1, 3, 31, 32, 33, 64, 127, 300}) {
      for (const std::int32_t run : {1, 7, 16, 1000}) {
        compare({.rows = 2, .keys = keys, .run_length = run, .dtype = dtype});
      }
    }
    for (const std::int32_t rows : {1, 2, 15, 16, 17, 40}) {
      compare({.rows = rows, .keys = 70, .dtype = dtype});
    }
    for (const std::int32_t group : {1, 2, 3, 4, 5, 7, 8, 9}) {
      compare({.query_heads = 3 * group, .kv_heads = 3, .head_dim = 40, .dtype = dtype});
    }
    for (const std::int32_t head_dim : {8, 16, 24, 64, 80, 128, 256}) {
      compare({.head_dim = head_dim, .dtype = dtype});
    }
  }
}

TEST_P(Attention, ARowHasTheSameBitsInEveryBatchAndThreadCount) {
  for (const DType dtype : kPlainTypes) {
    const Case c{.query_heads = 14, .kv_heads = 2, .rows = 19, .keys = 130, .dtype = dtype};
    const Cache cache(c);
    const auto width = static_cast<std::size_t>(cache.width());
    std::vector<float> alone;
    for (std::int32_t t = 0; t < c.rows; ++t) {
      const std::vector<float> row = cache.run(t, 1, 1);
      alone.insert(alone.end(), row.begin(), row.end());
    }
    for (std::int32_t from = 0; from < c.rows; ++from) {
      for (const std::int32_t count : {1, 2, 5, 17, 19}) {
        if (from + count > c.rows) {
          continue;
        }
        const std::vector<float> y = cache.run(from, count, 1 + from % 3);
        ASSERT_EQ(std::memcmp(y.data(),
                              alone.data() + static_cast<std::size_t>(from) * width,
                              y.size() * sizeof(float)),
                  0)
            << to_string(dtype) << " rows " << from << " + " << count;
      }
    }
  }
}

TEST_P(Attention, HowTheKeysAreCutIntoRunsDoesNotMatter) {
  const std::vector<float> whole = Cache({.keys = 200, .run_length = 200}).run(0, 5, 1);
  for (const std::int32_t run : {1, 5, 16, 128}) {
    EXPECT_EQ(Cache({.keys = 200, .run_length = run}).run(0, 5, 1), whole) << run;
  }
}

TEST_P(Attention, WindowScoresAgreeWithTheTwin) {
  for (const DType dtype : kPlainTypes) {
    for (const std::int32_t keys : {64, 65, 96, 200}) {
      for (const std::int32_t window : {1, 8, 64}) {
        for (const std::int32_t group : {1, 3}) {
          Random random(3);
          const std::int32_t head_dim = 64;
          const std::vector<std::byte> k = random_weights(dtype, keys, head_dim, random);
          const std::vector<float> q =
              random_floats(static_cast<std::size_t>(window * group * head_dim), random, 20.0F);
          std::vector<float> scores(static_cast<std::size_t>(group * keys), 1e30F);
          std::vector<float> scratch(window_score_scratch(window, keys));
          WindowScoreArgs args;
          args.q = q.data();
          args.window = window;
          args.group = group;
          args.head_dim = head_dim;
          args.scale = 0.125F;
          args.dtype = dtype;
          args.keys = k.data();
          args.key_count = keys;
          args.per_head = scores.data();
          args.scratch = scratch.data();
          window_scores(args);
          const std::vector<double> expected = ref::window_scores(args);
          for (std::size_t i = 0; i < scores.size(); ++i) {
            ASSERT_NEAR(scores[i], expected[i], 2e-5 * expected[i] + 1e-12)
                << to_string(dtype) << " N=" << keys << " w=" << window << " element " << i;
          }
        }
      }
    }
  }
}

/// One KV head's keys in runs of `run_length`, and queries of `rows` rows over them.
struct Shares {
  Shares(DType dtype, std::int32_t keys, std::int32_t rows, std::int32_t group, std::int32_t run)
      : keys_(keys), rows_(rows), group_(group), dtype_(dtype) {
    Random random(5);
    plane_ = random_weights(dtype, keys, kDim, random);
    q_ = random_floats(static_cast<std::size_t>(rows * group * kDim), random, 20.0F);
    for (std::int32_t at = 0; at < keys; at += run) {
      runs_.push_back({plane_.data() + static_cast<std::size_t>(at) * row_bytes(dtype, kDim),
                       nullptr,
                       std::min(run, keys - at)});
    }
  }
  /// Of rows [from, from + count); the last of all rows sees every key.
  [[nodiscard]] KeyShareArgs args(std::int32_t from, std::int32_t count) const {
    KeyShareArgs a;
    a.q = {q_.data() + static_cast<std::ptrdiff_t>(from) * group_ * kDim, count, group_ * kDim};
    a.group = group_;
    a.head_dim = kDim;
    a.scale = 0.125F;
    a.dtype = dtype_;
    a.runs = runs_;
    a.visible = keys_ - rows_ + 1 + from;
    return a;
  }
  /// All rows, `step` a call.
  [[nodiscard]] std::vector<float> sums(std::int32_t step) const {
    std::vector<float> out(static_cast<std::size_t>(keys_));
    for (std::int32_t at = 0; at < rows_; at += step) {
      KeyShareArgs a = args(at, std::min(step, rows_ - at));
      std::vector<float> scratch(key_share_scratch(a.q.rows, group_, keys_));
      a.sums = out.data();
      a.scratch = scratch.data();
      add_key_shares(a);
    }
    return out;
  }

  static constexpr std::int32_t kDim = 64;
  std::int32_t keys_;
  std::int32_t rows_;
  std::int32_t group_;
  DType dtype_;
  std::vector<std::byte> plane_;
  std::vector<float> q_;
  std::vector<KvRun> runs_;
};

TEST_P(Attention, KeySharesAgreeWithTheTwin) {
  for (const DType dtype : kPlainTypes) {
    for (const std::int32_t keys : {40, 65, 200}) {
      for (const std::int32_t rows : {1, 17, 40}) {
        for (const std::int32_t group : {1, 3}) {
          const Shares shares(dtype, keys, rows, group, 24);
          const std::vector<float> sums = shares.sums(rows);
          const std::vector<double> expected = ref::key_shares(shares.args(0, rows));
          for (std::size_t i = 0; i < sums.size(); ++i) {
            ASSERT_NEAR(sums[i], expected[i], 2e-5 * expected[i] + 1e-12)
                << to_string(dtype) << " N=" << keys << " T=" << rows << " key " << i;
          }
        }
      }
    }
  }
}

TEST_P(Attention, KeySharesDoNotDependOnHowRowsAndKeysAreDivided) {
  const std::vector<float> whole = Shares(DType::kF16, 200, 120, 3, 200).sums(120);
  for (const std::int32_t run : {1, 7, 64}) {
    for (const std::int32_t step : {1, 5, 16, 33}) {
      EXPECT_EQ(Shares(DType::kF16, 200, 120, 3, run).sums(step), whole)
          << "runs of " << run << ", " << step << " rows a call";
    }
  }
}

}  // namespace
}  // namespace rift::kernels
