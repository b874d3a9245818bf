// SPDX-License-Identifier: Apache-2.0
#include "model/sampling.h"

#include "common/error.h"
#include "model/philox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace rift::model {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Distribution law_of(std::vector<float> logits,
                    const SamplingParams& params,
                    std::vector<TokenId> history = {},
                    std::int32_t max_support = 0) {
  SamplerChain chain(params);
  return chain.distribution(logits, history, max_support);
}

// softmax(log(w)) = w / sum(w): laws whose values are read off.
std::vector<float> logs(const std::vector<double>& weights) {
  std::vector<float> out;
  for (const double w : weights) {
    out.push_back(static_cast<float>(std::log(w)));
  }
  return out;
}

SamplingParams at_temperature(float t) {
  SamplingParams params;
  params.temperature = t;
  return params;
}

// Known answers published with the Random123 library (kat_vectors, "philox4x32 10").
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_THAT(philox4x32_10({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U));
  constexpr std::uint32_t kOnes = 0xffffffffU;
  EXPECT_THAT(philox4x32_10({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
              ElementsAre(0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU));
  EXPECT_THAT(philox4x32_10({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U},
                            {0xa4093822U, 0x299f31d0U}),
              ElementsAre(0xd16cfe09U, 0x94fdccebU, 0x5001e420U, 0x24126ea1U));
}

TEST(Uniform, TakesTheTopBitsOfTheCounterAtZero) {
  // (0x6627e8d5e169c58d >> 11) / 2^53, from the first known answer.
  EXPECT_EQ(uniform(0, 0, Draw::kTarget),
            static_cast<double>(0x6627e8d5e169c58dULL >> 11) / 9007199254740992.0);
}

TEST(Uniform, DependsOnSeedPositionAndPurposeOnly) {
  std::set<double> seen;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32}) {
    for (const std::int64_t position : {0LL, 1LL, 1LL << 32}) {
      for (const Draw draw : {Draw::kTarget, Draw::kDraft, Draw::kAccept, Draw::kResidual}) {
        const double u = uniform(seed, position, draw);
        EXPECT_GE(u, 0.0);
        EXPECT_LT(u, 1.0);
        EXPECT_EQ(u, uniform(seed, position, draw));
        seen.insert(u);
      }
    }
  }
  EXPECT_EQ(seen.size(), 36U);
}

TEST(Argmax, PrefersTheLowerIdAndNeverNan) {
  EXPECT_EQ(argmax(std::vector{1.0F, 3.0F, 3.0F}), 1);
  EXPECT_EQ(argmax(std::vector{kNan, -5.0F, kNan, -4.0F}), 3);
  EXPECT_EQ(argmax(std::vector{kNan, -kInfinity}), 1);
  EXPECT_EQ(argmax(std::vector{kNan, kNan}), 1);
  EXPECT_EQ(argmax(std::vector{-kInfinity, -kInfinity}), 0);
}

TEST(SamplerChain, KeepsTheFullSupportWithoutTruncation) {
  const Distribution d = law_of(logs({1, 2, 3, 4}), at_temperature(1.0F));
  EXPECT_THAT(d.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(d.probabilities,
              ElementsAre(FloatNear(0.1F, 1e-6F),
                          FloatNear(0.2F, 1e-6F),
                          FloatNear(0.3F, 1e-6F),
                          FloatNear(0.4F, 1e-6F)));
}

TEST(SamplerChain, DividesLogitsByTheTemperature) {
  // Temperature 1/2 squares the weights: 1, 4, 9 of 14.
  const Distribution d = law_of(logs({1, 2, 3}), at_temperature(0.5F));
  EXPECT_THAT(
      d.probabilities,
      ElementsAre(
          FloatNear(1.0F / 14, 1e-6F), FloatNear(4.0F / 14, 1e-6F), FloatNear(9.0F / 14, 1e-6F)));
}

TEST(SamplerChain, TopKTakesTheLowerIdOfEqualLogits) {
  SamplingParams params = at_temperature(1.0F);
  params.top_k = 3;
  EXPECT_THAT(law_of(logs({1, 2, 1, 2, 1, 1}), params).ids, ElementsAre(0, 1, 3));
}

TEST(SamplerChain, TopPKeepsTheFewestTokensThatReachTheMass) {
  SamplingParams params = at_temperature(1.0F);
  params.top_p = 0.65F;  // 0.4 + 0.3 reaches it
  const Distribution d = law_of(logs({1, 2, 3, 4}), params);
  EXPECT_THAT(d.ids, ElementsAre(2, 3));
  EXPECT_THAT(d.probabilities, ElementsAre(FloatNear(3.0F / 7, 1e-6F), FloatNear(4.0F / 7, 1e-6F)));
  params.top_p = 0.0F;
  EXPECT_THAT(law_of(logs({1, 2, 3, 4}), params).ids, ElementsAre(3));
}

TEST(SamplerChain, TopPSeesTheMassThatTopKLeft) {
  SamplingParams params = at_temperature(1.0F);
  params.top_k = 2;     // 3/7 and 4/7
  params.top_p = 0.5F;  // 4/7 is enough; of the full law 0.4 would not be
  EXPECT_THAT(law_of(logs({1, 2, 3, 4}), params).ids, ElementsAre(3));
}

TEST(SamplerChain, TopPOfAFlatLawReachesFarIntoTheVocabulary) {
  SamplingParams params = at_temperature(1.0F);
  params.top_p = 0.5F;
  const Distribution d = law_of(std::vector<float>(4096, 0.0F), params);
  ASSERT_EQ(d.ids.size(), 2048U);
  EXPECT_EQ(d.ids.back(), 2047);
}

TEST(SamplerChain, MinPComparesWithTheBestToken) {
  SamplingParams params = at_temperature(1.0F);
  params.min_p = 0.6F;  // 0.6 x 0.4 = 0.24
  EXPECT_THAT(law_of(logs({1, 2, 3, 4}), params).ids, ElementsAre(2, 3));
}

TEST(SamplerChain, MaxSupportRenormalises) {
  const Distribution d = law_of(logs({1, 2, 3, 4}), at_temperature(1.0F), {}, 2);
  EXPECT_THAT(d.ids, ElementsAre(2, 3));
  EXPECT_THAT(d.probabilities, ElementsAre(FloatNear(3.0F / 7, 1e-6F), FloatNear(4.0F / 7, 1e-6F)));
}

TEST(SamplerChain, AppliesPenaltiesAsComputedByHand) {
  SamplingParams params;
  params.repeat_penalty = 2.0F;
  params.presence_penalty = 0.25F;
  params.frequency_penalty = 0.5F;
  params.penalty_window = 4;
  params.logit_bias = {{3, 1.0F}, {99, 5.0F}, {-1, 5.0F}};
  SamplerChain chain(params);
  std::vector<float> logits{4.0F, -1.0F, 2.0F, 0.5F};
  // The first 2 lies outside the window of four; 99 and -7 are no tokens of this vocabulary.
  const std::vector<TokenId> history{2, 0, 1, 0, -7};
  const TokenId best = chain.greedy_choice(logits, history);
  // 0: 4 / 2 - 0.25 - 2 x 0.5; 1: -1 x 2 - 0.25 - 0.5; 2: untouched; 3: 0.5 + 1.
  EXPECT_THAT(logits, ElementsAre(0.75F, -2.75F, 2.0F, 1.5F));
  EXPECT_EQ(best, 2);
}

TEST(SamplerChain, LooksAtTheWholeHistoryWithAWindowOfMinusOne) {
  SamplingParams params;
  params.presence_penalty = 1.0F;
  params.penalty_window = -1;
  SamplerChain chain(params);
  std::vector<float> logits{2.0F, 1.5F};
  std::vector<TokenId> history(100, 1);
  history[0] = 0;
  EXPECT_EQ(chain.greedy_choice(logits, history), 0);
  EXPECT_THAT(logits, ElementsAre(1.0F, 0.5F));
}

TEST(SamplerChain, GivesALawForLogitsThatAreNoNumbers) {
  const SamplingParams params = at_temperature(1.0F);
  EXPECT_THAT(law_of({kNan, 0.0F, -kInfinity, 0.0F}, params).ids, ElementsAre(1, 3));
  EXPECT_THAT(law_of({kNan, kNan}, params).probabilities, ElementsAre(1.0F));
  EXPECT_THAT(law_of({-kInfinity, -kInfinity}, params).ids, ElementsAre(0));
  EXPECT_THAT(law_of({0.0F, kInfinity, 1.0F}, params).ids, ElementsAre(1));
  EXPECT_THAT(law_of({0.0F, 1.0F}, at_temperature(1e-30F)).ids, ElementsAre(1));
}

TEST(SamplerChain, SumsToOneOverALargeVocabulary) {
  constexpr std::size_t kVocab = 151936;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> logits(kVocab);
  for (float& l : logits) {
    l = normal(random);
  }
  const Distribution d = law_of(logits, at_temperature(1.0F));
  EXPECT_EQ(d.ids.size(), kVocab);
  // Each probability is rounded by at most eps/2 of itself.
  const double sum = std::accumulate(d.probabilities.begin(), d.probabilities.end(), 0.0);
  EXPECT_NEAR(sum, 1.0, static_cast<double>(std::numeric_limits<float>::epsilon()));
}

TEST(SamplerChain, RefusesParametersWithoutMeaning) {
  SamplingParams params;
  params.top_p = 1.5F;
  EXPECT_THROW(SamplerChain{params}, Error);
  params = at_temperature(kNan);
  EXPECT_THROW(SamplerChain{params}, Error);
  params = {};
  params.repeat_penalty = 0.0F;
  EXPECT_THROW(SamplerChain{params}, Error);
}

TEST(Sample, InvertsTheCumulativeLaw) {
  const Distribution d{{2, 5, 9}, {0.25F, 0.5F, 0.25F}};
  EXPECT_EQ(sample(d, 0.0), 2);
  EXPECT_EQ(sample(d, 0.2499), 2);
  EXPECT_EQ(sample(d, 0.25), 5);
  EXPECT_EQ(sample(d, 0.7499), 5);
  EXPECT_EQ(sample(d, 0.75), 9);
  EXPECT_EQ(sample(d, std::nextafter(1.0, 0.0)), 9);
}

TEST(AcceptanceProbability, IsZeroForATokenThatIsNeverDrafted) {
  const Distribution p{{0, 1}, {0.5F, 0.5F}};
  const Distribution q{{1}, {1.0F}};
  EXPECT_EQ(acceptance_probability(p, q, 0), 0.0);
  EXPECT_EQ(acceptance_probability(p, q, 1), 0.5);
}

}  // namespace
}  // namespace rift::model
