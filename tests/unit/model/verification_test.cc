// SPDX-License-Identifier: Apache-2.0
#include "model/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace rift::model {
namespace {

constexpr std::int32_t kVocab = 5;

std::int32_t usable(std::vector<TokenId> tokens, std::vector<Distribution> q) {
  // u = 0.75 draws the last of two equally likely tokens, u = 0.25 the first.
  return usable_prefix(
      {tokens, q}, kVocab, [&](std::int32_t row) { return row % 2 == 0 ? 0.25 : 0.75; });
}

TEST(UsablePrefix, CutsAtTheFirstTokenOutsideTheVocabulary) {
  const std::vector<TokenId> tokens{0, 4, 5, 1};
  EXPECT_EQ(usable_prefix({tokens, {}}, kVocab, nullptr), 2);
  const std::vector<TokenId> negative{-1};
  EXPECT_EQ(usable_prefix({negative, {}}, kVocab, nullptr), 0);
}

TEST(UsablePrefix, CutsWhereTheDraftLawIsNoLaw) {
  const Distribution good{{1, 3}, {0.5F, 0.5F}};
  EXPECT_EQ(usable({1, 3}, {good, good}), 2);
  EXPECT_EQ(usable({1, 3}, {good}), 1) << "law missing";
  EXPECT_EQ(usable({1, 2}, {good, good}), 1) << "token not in its law";
  EXPECT_EQ(usable({1, 1}, {good, good}), 1) << "in its law, but not the token drawn";
  EXPECT_EQ(usable({3}, {good}), 0) << "in its law, but not the token drawn";
  EXPECT_EQ(usable({1}, {{{1}, {}}}), 0) << "sizes differ";
  EXPECT_EQ(usable({1}, {{{}, {}}}), 0) << "empty";
  EXPECT_EQ(usable({1}, {{{3, 1}, {0.5F, 0.5F}}}), 0) << "descending";
  EXPECT_EQ(usable({1}, {{{1, 1}, {0.5F, 0.5F}}}), 0) << "twice";
  EXPECT_EQ(usable({1}, {{{1, 5}, {0.5F, 0.5F}}}), 0) << "id outside";
  EXPECT_EQ(usable({1}, {{{-1, 1}, {0.5F, 0.5F}}}), 0) << "id negative";
  EXPECT_EQ(usable({1}, {{{1, 3}, {1.0F, 0.0F}}}), 0) << "zero";
  EXPECT_EQ(usable({1}, {{{1, 3}, {0.5F, 0.6F}}}), 0) << "sum";
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(usable({1}, {{{1, 3}, {0.5F, kNan}}}), 0);
  EXPECT_EQ(usable({1}, {{{1, 3}, {0.5F, kInfinity}}}), 0);
}

// Logits whose argmax at row i is best[i].
std::vector<float> rows_preferring(const std::vector<TokenId>& best) {
  std::vector<float> logits(best.size() * kVocab, 0.0F);
  for (std::size_t i = 0; i < best.size(); ++i) {
    logits[i * kVocab + static_cast<std::size_t>(best[i])] = 1.0F;
  }
  return logits;
}

TEST(Verify, CutsAGreedyProposalAtAnUnusableToken) {
  SamplerChain chain(SamplingParams{});
  auto logits = rows_preferring({1, 2, 3});
  const std::vector<TokenId> tokens{1, 77};
  const auto result = verify(chain, {}, {tokens, {}}, MatView<float>(logits.data(), 3, kVocab));
  EXPECT_EQ(result.accepted, 1);
  EXPECT_EQ(result.next, 2);
}

TEST(Verify, PenaltiesSeeTheAcceptedDrafts) {
  SamplingParams params;
  params.presence_penalty = 2.0F;
  params.penalty_window = 2;
  SamplerChain chain(params);
  // Token 1 is best everywhere by 1, but costs 2 once it is in the window.
  auto logits = rows_preferring({1, 1, 1, 1});
  const std::vector<TokenId> history{0};
  const std::vector<TokenId> tokens{1, 2, 3};
  const auto result =
      verify(chain, history, {tokens, {}}, MatView<float>(logits.data(), 4, kVocab));
  // Row 0: 1. Row 1 sees {0, 1}: 2. Row 2 sees {1, 2}: 0, so the drafted 3 is wrong.
  EXPECT_EQ(result.accepted, 2);
  EXPECT_EQ(result.next, 0);
}

TEST(Verify, AnUnusableLawIsDrawnFromTheTargetAlone) {
  SamplingParams params;
  params.temperature = 1.0F;
  params.seed = 5;
  const std::vector<TokenId> history{1, 2, 3};
  std::vector<float> logits{0.1F, 0.7F, -1.0F, 2.0F, 0.3F};
  std::vector<float> two_rows = logits;
  two_rows.resize(2 * kVocab);
  SamplerChain chain(params);
  const std::vector<TokenId> tokens{1};
  const std::vector<Distribution> q{{{1}, {0.4F}}};
  const auto cut = verify(chain, history, {tokens, q}, MatView<float>(two_rows.data(), 2, kVocab));
  const auto alone = verify(chain, history, {}, MatView<float>(logits.data(), 1, kVocab));
  EXPECT_EQ(cut.accepted, 0);
  EXPECT_EQ(cut.next, alone.next);
}

// A draft that names its favourite and calls it unlikely would be accepted nearly always.
TEST(Verify, AFavouriteWithATinyProbabilityIsNotCommittedMoreOftenThanTheTargetWould) {
  constexpr int kRuns = 20000;
  constexpr TokenId kFavourite = 2;
  const std::vector<float> logits{0.0F, 0.0F, 0.0F, 0.0F, 0.0F};  // p = 1/5 each
  const std::vector<TokenId> tokens{kFavourite};
  const std::vector<Distribution> q{{{1, kFavourite}, {0.99F, 0.01F}}};
  int favourites = 0;
  for (std::uint64_t seed = 1; seed <= kRuns; ++seed) {
    SamplingParams params;
    params.temperature = 1.0F;
    params.seed = seed;
    SamplerChain chain(params);
    std::vector<float> rows = logits;
    rows.insert(rows.end(), logits.begin(), logits.end());
    const std::vector<TokenId> history{0};
    const auto result = verify(chain, history, {tokens, q}, MatView<float>(rows.data(), 2, kVocab));
    favourites += (result.accepted > 0 ? tokens[0] : result.next) == kFavourite ? 1 : 0;
  }
  // Binomial(20000, 1/5): mean 4000, standard deviation 57; 4 of them either way. Believed as it
  // stands, the proposal would win every time.
  EXPECT_NEAR(favourites, 4000, 4 * 57);
}

// Law of the tokens that come out of speculative steps over a Markov chain: the target's logits
// depend on the token before, the draft's are others and cut to 3 of 5 tokens.
class SpeculativeLaw : public ::testing::Test {
 protected:
  static std::vector<float> target_logits(TokenId before) {
    std::vector<float> logits(kVocab);
    for (std::int32_t i = 0; i < kVocab; ++i) {
      logits[static_cast<std::size_t>(i)] = std::sin(1.7F * static_cast<float>(i * 3 + before));
    }
    return logits;
  }
  static std::vector<float> draft_logits(TokenId before) {
    std::vector<float> logits(kVocab);
    for (std::int32_t i = 0; i < kVocab; ++i) {
      logits[static_cast<std::size_t>(i)] = std::cos(2.3F * static_cast<float>(i + 2 * before));
    }
    return logits;
  }
  // Exact softmax, in double.
  static std::array<double, kVocab> target_law(TokenId before) {
    std::array<double, kVocab> law{};
    double sum = 0.0;
    const auto logits = target_logits(before);
    for (std::size_t i = 0; i < kVocab; ++i) {
      law[i] = std::exp(static_cast<double>(logits[i]));
      sum += law[i];
    }
    for (double& p : law) {
      p /= sum;
    }
    return law;
  }
  // The first two tokens after token 0, by speculation with gamma = 2.
  static std::pair<TokenId, TokenId> speculate(std::uint64_t seed) {
    SamplingParams params;
    params.temperature = 1.0F;
    params.seed = seed;
    SamplerChain target(params);
    SamplerChain drafter(params);
    std::vector<TokenId> history{0};
    while (history.size() < 3) {
      std::vector<TokenId> tokens;
      std::vector<Distribution> q;
      std::vector<float> logits = target_logits(history.back());
      TokenId last = history.back();
      for (std::size_t i = 0; i < 2; ++i) {
        auto l = draft_logits(last);
        q.push_back(drafter.distribution(l, {}, 3));
        const auto position = static_cast<std::int64_t>(history.size() + i);
        last = sample(q.back(), uniform(seed, position, Draw::kDraft));
        tokens.push_back(last);
        const auto row = target_logits(last);
        logits.insert(logits.end(), row.begin(), row.end());
      }
      const auto result =
          verify(target, history, {tokens, q}, MatView<float>(logits.data(), 3, kVocab));
      history.insert(history.end(), tokens.begin(), tokens.begin() + result.accepted);
      history.push_back(result.next);
    }
    return {history[1], history[2]};
  }
};

TEST_F(SpeculativeLaw, IsTheTargetsByAChiSquareTest) {
  constexpr int kRuns = 40000;
  constexpr double kCritical = 51.179;  // chi-square, 24 degrees of freedom, alpha = 0.001
  std::array<std::array<int, kVocab>, kVocab> seen{};
  for (int run = 0; run < kRuns; ++run) {
    const auto [first, second] = speculate(static_cast<std::uint64_t>(run) + 1);
    ++seen[static_cast<std::size_t>(first)][static_cast<std::size_t>(second)];
  }
  double statistic = 0.0;
  const auto first_law = target_law(0);
  for (std::size_t a = 0; a < kVocab; ++a) {
    const auto second_law = target_law(static_cast<TokenId>(a));
    for (std::size_t b = 0; b < kVocab; ++b) {
      const double expected = kRuns * first_law[a] * second_law[b];
      ASSERT_GT(expected, 5.0);
      const double gap = seen[a][b] - expected;
      statistic += gap * gap / expected;
    }
  }
  EXPECT_LT(statistic, kCritical);
  EXPECT_GT(statistic, 6.0) << "fits better than chance allows: the runs are not independent";
}

}  // namespace
}  // namespace rift::model
