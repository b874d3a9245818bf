// SPDX-License-Identifier: Apache-2.0
#include "model/kv_cache.h"

#include "common/error.h"
#include "common/f16.h"
#include "common/thread_pool.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace rift::model {
namespace {

constexpr std::int32_t kLayers = 2;
constexpr std::int32_t kQueryHeads = 4;
constexpr std::int32_t kKvHeads = 2;
constexpr std::int32_t kDim = 16;
constexpr std::int32_t kCapacity = 20;

ModelConfig small_config() {
  ModelConfig config;
  config.layers = kLayers;
  config.query_heads = kQueryHeads;
  config.kv_heads = kKvHeads;
  config.head_dim = kDim;
  config.attention_scale = 0.25F;
  return config;
}

/// Random q, k, v of `rows` tokens and room for the result.
struct Batch {
  Batch(std::int32_t count, std::uint32_t seed) : rows(count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    for (std::vector<float>* to : {&q, &k, &v}) {
      const std::int32_t heads = to == &q ? kQueryHeads : kKvHeads;
      to->resize(static_cast<std::size_t>(rows * heads * kDim));
      for (float& x : *to) {
        x = normal(random);
      }
    }
    out.resize(q.size());
  }
  std::int32_t rows;
  std::vector<float> q, k, v, out;
};

void attend(KvCache& cache, std::int32_t layer, std::int32_t start, Batch& batch) {
  ThreadPool pool(1);
  std::vector<Position> positions(static_cast<std::size_t>(batch.rows));
  std::iota(positions.begin(), positions.end(), start);
  cache.attend(layer,
               positions,
               {batch.q.data(), batch.rows, kQueryHeads * kDim},
               {batch.k.data(), batch.rows, kKvHeads * kDim},
               {batch.v.data(), batch.rows, kKvHeads * kDim},
               {batch.out.data(), batch.rows, kQueryHeads * kDim},
               pool);
}

void append(KvCache& cache, Batch& batch) {
  const std::int32_t start = cache.size();
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    attend(cache, layer, start, batch);
  }
}

Errc error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return error.code();
  }
  return Errc::kInternal;
}

TEST(KvCache, KeepsEveryHeadContiguousInItsDtype) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    KvCache cache(small_config(), dtype, kCapacity);
    Batch first(5, 1);
    Batch second(3, 2);
    append(cache, first);
    append(cache, second);
    ASSERT_EQ(cache.size(), 8);
    const std::size_t width = cache.geometry().vector_bytes() / kDim;
    EXPECT_EQ(cache.bytes(), 8U * 2U * kLayers * kKvHeads * kDim * width);
    const auto expect_element = [&](const std::byte* at, float value) {
      if (dtype == DType::kF32) {
        EXPECT_EQ(std::memcmp(at, &value, sizeof(value)), 0);
      } else {
        const std::uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
        EXPECT_EQ(std::memcmp(at, &half, sizeof(half)), 0);
      }
    };
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      for (std::int32_t g = 0; g < kKvHeads; ++g) {
        for (std::int32_t p = 0; p < 8; ++p) {
          const Batch& batch = p < 5 ? first : second;
          const std::int32_t row = p < 5 ? p : p - 5;
          for (std::int32_t d = 0; d < kDim; ++d) {
            const std::size_t at = static_cast<std::size_t>(p * kDim + d) * width;
            const auto from = static_cast<std::size_t>((row * kKvHeads + g) * kDim + d);
            expect_element(cache.keys(layer, g) + at, batch.k[from]);
            expect_element(cache.values(layer, g) + at, batch.v[from]);
          }
        }
      }
    }
  }
}

TEST(KvCache, LetsEveryQuerySeeItselfAndWhatCameBefore) {
  KvCache cache(small_config(), DType::kF32, kCapacity);
  Batch past(6, 3);
  Batch now(3, 4);
  append(cache, past);
  append(cache, now);
  std::vector<float> keys = past.k;
  keys.insert(keys.end(), now.k.begin(), now.k.end());
  std::vector<float> values = past.v;
  values.insert(values.end(), now.v.begin(), now.v.end());
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t h = 0; h < kQueryHeads; ++h) {
      const std::size_t g = h / 2;
      const float* q = &now.q[(t * kQueryHeads + h) * kDim];
      std::vector<double> weight(6 + t + 1);
      double sum = 0.0;
      for (std::size_t j = 0; j < weight.size(); ++j) {
        const float* key = &keys[(j * kKvHeads + g) * kDim];
        const double dot = std::inner_product(q, q + kDim, key, 0.0);
        weight[j] = std::exp(0.25 * dot);
        sum += weight[j];
      }
      for (std::size_t d = 0; d < kDim; ++d) {
        double expected = 0.0;
        for (std::size_t j = 0; j < weight.size(); ++j) {
          expected += weight[j] / sum * static_cast<double>(values[(j * kKvHeads + g) * kDim + d]);
        }
        // float sums over 16 products and 9 keys of magnitude about 3: below 64 eps x 3.
        EXPECT_NEAR(now.out[(t * kQueryHeads + h) * kDim + d], expected, 64 * 6e-8 * 3);
      }
    }
  }
}

TEST(KvCache, RefusesWhatDoesNotFitAndKeepsWhatItHas) {
  KvCache cache(small_config(), DType::kF32, kCapacity);
  Batch most(18, 5);
  append(cache, most);
  const std::vector<std::byte> before(cache.keys(0, 0), cache.keys(0, 1));
  Batch more(3, 6);
  EXPECT_EQ(error_of([&] { append(cache, more); }), Errc::kResourceExhausted);
  EXPECT_EQ(cache.size(), 18);
  EXPECT_EQ(std::memcmp(before.data(), cache.keys(0, 0), before.size()), 0);
  Batch rest(2, 7);
  append(cache, rest);
  EXPECT_EQ(cache.size(), kCapacity);
}

TEST(KvCache, GrowsWhenTheLastLayerIsStored) {
  KvCache cache(small_config(), DType::kF16, kCapacity);
  Batch batch(4, 8);
  attend(cache, 0, 0, batch);
  EXPECT_EQ(cache.size(), 0);
  attend(cache, 1, 0, batch);
  EXPECT_EQ(cache.size(), 4);
}

TEST(KvCache, AttendsToAppendedHistoryAsToItsOwn) {
  KvCache attended(small_config(), DType::kF16, kCapacity);
  KvCache appended(small_config(), DType::kF16, kCapacity);
  Batch past(6, 13);
  append(attended, past);
  ThreadPool pool(1);
  for (std::int32_t layer = 0; layer < kLayers; ++layer) {
    appended.append(layer,
                    {past.k.data(), past.rows, kKvHeads * kDim},
                    {past.v.data(), past.rows, kKvHeads * kDim},
                    pool);
  }
  EXPECT_EQ(appended.size(), 6);
  Batch one(2, 14);
  Batch other(2, 14);
  append(attended, one);
  append(appended, other);
  EXPECT_EQ(one.out, other.out);
}

TEST(KvCache, ForgetsTruncatedPositions) {
  KvCache cache(small_config(), DType::kF32, kCapacity);
  Batch kept(4, 9);
  Batch rejected(6, 10);
  Batch next(2, 11);
  append(cache, kept);
  append(cache, rejected);
  cache.truncate(4);
  append(cache, next);

  KvCache fresh(small_config(), DType::kF32, kCapacity);
  Batch kept_again(4, 9);
  Batch next_again(2, 11);
  append(fresh, kept_again);
  append(fresh, next_again);
  EXPECT_EQ(cache.size(), fresh.size());
  EXPECT_EQ(next.out, next_again.out);
}

TEST(KvCache, RefusesADtypeOrCapacityThatCannotBe) {
  EXPECT_EQ(error_of([] { KvCache cache(small_config(), DType::kQ8_0, kCapacity); }),
            Errc::kInvalidArgument);
  EXPECT_EQ(error_of([] { KvCache cache(small_config(), DType::kF16, 0); }),
            Errc::kInvalidArgument);
  ModelConfig huge = small_config();
  huge.layers = 4096;
  huge.kv_heads = 128;
  huge.head_dim = 1024;
  const std::int32_t most = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(error_of([&] { KvCache cache(huge, DType::kF32, most); }), Errc::kResourceExhausted);
}

TEST(KvCacheDeathTest, TreatsAGapInPositionsAsABug) {
  KvCache cache(small_config(), DType::kF16, kCapacity);
  Batch batch(2, 12);
  EXPECT_DEATH(attend(cache, 0, 1, batch), "position 1 after 0");
}

}  // namespace
}  // namespace rift::model
