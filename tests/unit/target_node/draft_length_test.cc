// SPDX-License-Identifier: Apache-2.0
#include "target_node/core/draft_length.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace rift::target_node {
namespace {

constexpr std::int32_t kLongest = 15;

/// A draft whose tokens hold with chance `p` each, on machines with these costs, seconds.
struct World {
  double p;
  double step;
  double first_row;
  double next_row;
  double link = 0.0;

  [[nodiscard]] double verify(std::int32_t gamma) const { return first_row + gamma * next_row; }
  [[nodiscard]] double rate(std::int32_t gamma) const {
    const double tokens = p == 1.0 ? gamma + 1.0 : (1.0 - std::pow(p, gamma + 1)) / (1.0 - p);
    return tokens / (gamma * step + (gamma > 0 ? link : 0.0) + verify(gamma));
  }
  [[nodiscard]] std::int32_t best() const {
    std::int32_t out = 0;
    for (std::int32_t gamma = 1; gamma <= kLongest; ++gamma) {
      out = rate(gamma) > rate(out) ? gamma : out;
    }
    return out;
  }
  [[nodiscard]] std::vector<double> curve() const {
    std::vector<double> out;
    for (std::int32_t gamma = 0; gamma <= kLongest; ++gamma) {
      out.push_back(verify(gamma));
    }
    return out;
  }
  /// One round of `gamma` drafts, of which as many hold as a fixed sequence of uniforms says.
  void play(DraftLength& length, std::int32_t gamma, std::uint32_t& state) const {
    std::int32_t accepted = 0;
    const auto holds = [&] {
      state = state * 1664525U + 1013904223U;
      return (state >> 8U) * 0x1p-24 < p;
    };
    while (accepted < gamma && holds()) {
      ++accepted;
    }
    if (gamma > 0) {
      length.drafted(gamma, gamma * step, gamma * step + link);
    }
    length.verified(gamma, accepted, verify(gamma));
  }
};

/// Mean rate of the choices of rounds 100 .. 299, as a share of the best fixed length's.
double share_of_best(const World& world, std::vector<double> curve) {
  DraftLength length(kLongest, std::move(curve));
  std::uint32_t state = 1;
  double sum = 0.0;
  for (int round = 0; round < 300; ++round) {
    const std::int32_t gamma = length.next();
    EXPECT_GE(gamma, 0);
    EXPECT_LE(gamma, kLongest);
    sum += round < 100 ? 0.0 : world.rate(gamma) / world.rate(world.best());
    world.play(length, gamma, state);
  }
  return sum / 200.0;
}

TEST(DraftLength, ComesCloseToTheBestFixedLength) {
  for (const double p : {0.5, 0.7, 0.85, 0.95, 1.0}) {
    for (const double next_row : {0.002, 0.01, 0.03}) {
      const World world{p, 0.02, 0.06, next_row};
      SCOPED_TRACE(testing::Message()
                   << "p " << p << ", row " << next_row << ", best " << world.best());
      EXPECT_GT(share_of_best(world, world.curve()), 0.93);
    }
  }
}

TEST(DraftLength, LearnsTheCostsThatWereNotMeasured) {
  const World world{0.85, 0.02, 0.06, 0.01};
  EXPECT_GT(share_of_best(world, {}), 0.85);
}

TEST(DraftLength, StopsDraftingThatDoesNotPayAndProbes) {
  const World bad{0.05, 0.05, 0.06, 0.01};
  ASSERT_EQ(bad.best(), 0);
  DraftLength length(kLongest, bad.curve());
  std::uint32_t state = 1;
  int plain = 0;
  int drafts = 0;
  for (int round = 0; round < 200; ++round) {
    const std::int32_t gamma = length.next();
    (gamma == 0 ? plain : drafts) += 1;
    bad.play(length, gamma, state);
  }
  EXPECT_GT(plain, 170);
  EXPECT_GT(drafts, 8);
  // The draft comes to its senses: so does the choice.
  const World good{0.95, 0.01, 0.06, 0.002};
  std::int32_t gamma = 0;
  for (int round = 0; round < 200; ++round) {
    gamma = length.next();
    good.play(length, gamma, state);
  }
  EXPECT_GT(gamma, 4);
}

// A slow link costs the same for a long draft as for a short one: it makes longer drafts worth it,
// or none at all.
TEST(DraftLength, TellsTheLinkFromTheDraftsSteps) {
  const World near{0.85, 0.005, 0.06, 0.01};
  const World far{0.85, 0.005, 0.06, 0.01, 0.05};
  ASSERT_GT(far.best(), near.best());
  EXPECT_GT(share_of_best(far, far.curve()), 0.93);
  const World lost{0.5, 0.005, 0.06, 0.01, 0.5};
  ASSERT_EQ(lost.best(), 0);
  EXPECT_GT(share_of_best(lost, lost.curve()), 0.9);
}

// What a peer says about itself costs drafts at worst.
TEST(DraftLength, TakesNoTimeForDraftingThatTheWaitDoesNotHold) {
  DraftLength honest(kLongest, World{0.85, 0.02, 0.06, 0.01}.curve());
  DraftLength boasting = honest;
  honest.drafted(4, 0.08, 0.08);
  boasting.drafted(4, 1e9, 0.08);
  EXPECT_EQ(boasting.next(), honest.next());
}

TEST(VerifyCosts, GrowWithEveryCachedPosition) {
  const VerifyCosts costs{{0.1, 0.2, 0.3}, {0.2, 0.4, 0.25}, 1000};
  EXPECT_THAT(costs.at(0), testing::Pointwise(testing::DoubleEq(), {0.1, 0.2, 0.3}));
  EXPECT_THAT(costs.at(500), testing::Pointwise(testing::DoubleEq(), {0.15, 0.3, 0.3}));
  EXPECT_THAT(costs.at(3000), testing::Pointwise(testing::DoubleEq(), {0.4, 0.8, 0.3}));
  EXPECT_TRUE(VerifyCosts{}.at(100).empty());
}

TEST(DraftLength, AsksForLittleUntilItKnows) {
  EXPECT_EQ(DraftLength(kLongest, {}).next(), 4);
  EXPECT_EQ(DraftLength(2, {}).next(), 2);
}

}  // namespace
}  // namespace rift::target_node
