// SPDX-License-Identifier: Apache-2.0
// Against spec_sampling.json, computed with exact fractions; tolerance 1e-6 absolute (its README).
#include "model/verification.h"
#include "tests/golden/golden_json.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rift::model {
namespace {

namespace json = boost::json;
constexpr double kTolerance = 1e-6;

Distribution sparse(const json::value& dense) {
  Distribution out;
  TokenId id = 0;
  for (const json::value& p : dense.as_array()) {
    if (p.to_number<double>() > 0.0) {
      out.ids.push_back(id);
      out.probabilities.push_back(p.to_number<float>());
    }
    ++id;
  }
  return out;
}

void expect_law(const Distribution& law, const json::value& dense, const std::string& what) {
  const json::array& expected = dense.as_array();
  std::vector<double> got(expected.size(), 0.0);
  for (std::size_t i = 0; i < law.ids.size(); ++i) {
    got.at(static_cast<std::size_t>(law.ids[i])) = static_cast<double>(law.probabilities[i]);
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], expected[i].to_number<double>(), kTolerance) << what << ", token " << i;
  }
}

std::string name_of(const json::value& entry) { return std::string(entry.at("name").as_string()); }

/// A u for which q gives `token`: the middle of its share.
double draws(const Distribution& q, TokenId token) {
  double below = 0.0;
  for (std::size_t i = 0; i < q.ids.size(); ++i) {
    const auto share = static_cast<double>(q.probabilities[i]);
    if (q.ids[i] == token) {
      return below + share / 2.0;
    }
    below += share;
  }
  return 1.0;
}

class SpecSampling : public ::testing::Test {
 protected:
  json::value golden_ = testing::golden_json("spec_sampling.json");
};

TEST_F(SpecSampling, CasesHaveTheGivenAcceptanceAndResidual) {
  ASSERT_FALSE(golden_.at("cases").as_array().empty());
  for (const json::value& entry : golden_.at("cases").as_array()) {
    const Distribution p = sparse(entry.at("p"));
    const Distribution q = sparse(entry.at("q"));
    const json::array& accept = entry.at("accept_probability").as_array();
    for (std::size_t x = 0; x < accept.size(); ++x) {
      if (!accept[x].is_null()) {
        EXPECT_NEAR(acceptance_probability(p, q, static_cast<TokenId>(x)),
                    accept[x].to_number<double>(),
                    kTolerance)
            << name_of(entry) << ", token " << x;
      }
    }
    if (entry.at("residual_mass").to_number<double>() > 0.0) {
      expect_law(residual(p, q), entry.at("residual"), name_of(entry));
    }
  }
}

// With the golden's u in place of the accept draws, and the law of the next token read off by
// drawing it at evenly spaced u: an id's share of the draws is its probability +- one step.
TEST_F(SpecSampling, ChainsStopWhereGivenAndContinueWithTheGivenLaw) {
  constexpr int kSteps = 1 << 14;
  for (const json::value& entry : golden_.at("chains").as_array()) {
    std::vector<Distribution> p;
    std::vector<Distribution> q;
    for (const json::value& row : entry.at("p").as_array()) {
      p.push_back(sparse(row));
    }
    for (const json::value& row : entry.at("q").as_array()) {
      q.push_back(sparse(row));
    }
    const auto tokens = json::value_to<std::vector<TokenId>>(entry.at("draft_tokens"));
    const auto u = json::value_to<std::vector<double>>(entry.at("u"));
    const json::array& next_law = entry.at("next_token_distribution").as_array();
    const auto usable = usable_prefix(
        {tokens, q}, static_cast<std::int32_t>(next_law.size()), [&](std::int32_t row) {
          const auto at = static_cast<std::size_t>(row);
          return draws(q.at(at), tokens.at(at));
        });
    ASSERT_EQ(usable, static_cast<std::int32_t>(tokens.size())) << name_of(entry);
    std::vector<int> seen(next_law.size());
    for (int step = 0; step < kSteps; ++step) {
      const double last = (step + 0.5) / kSteps;
      const auto result = verify_sampled(
          {tokens, q},
          usable,
          [&](std::int32_t row) -> const Distribution& {
            return p.at(static_cast<std::size_t>(row));
          },
          [&](std::int32_t row, Draw draw) {
            return draw == Draw::kAccept ? u.at(static_cast<std::size_t>(row)) : last;
          });
      ASSERT_EQ(result.accepted, entry.at("accepted").to_number<std::int32_t>()) << name_of(entry);
      ++seen.at(static_cast<std::size_t>(result.next));
    }
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(seen[i]) / kSteps,
                  next_law[i].to_number<double>(),
                  1.0 / kSteps + kTolerance)
          << name_of(entry) << ", token " << i;
    }
  }
}

TEST_F(SpecSampling, GreedyAcceptsTheTargetsOwnChoices) {
  for (const json::value& entry : golden_.at("greedy").as_array()) {
    const auto tokens = json::value_to<std::vector<TokenId>>(entry.at("draft_tokens"));
    const auto best = json::value_to<std::vector<TokenId>>(entry.at("target_argmax"));
    const auto result =
        verify_greedy(tokens, static_cast<std::int32_t>(tokens.size()), [&](std::int32_t row) {
          return best.at(static_cast<std::size_t>(row));
        });
    EXPECT_EQ(result.accepted, entry.at("accepted").to_number<std::int32_t>());
    EXPECT_EQ(result.next, entry.at("next_token").to_number<TokenId>());
  }
}

}  // namespace
}  // namespace rift::model
