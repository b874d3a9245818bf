// SPDX-License-Identifier: Apache-2.0
#include "target_node/json.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace rift::target_node {
namespace {

TEST(TargetJson, ARequestSurvivesTheRoundTrip) {
  Request r;
  r.prompt = {1, 2, 151'643};
  r.max_tokens = 9;
  r.stop_tokens = {4};
  r.sampling.temperature = 0.5F;
  r.sampling.top_k = 3;
  r.sampling.seed = ~0ULL;
  r.sampling.logit_bias = {{5, -1.5F}};
  r.use_draft = false;
  r.policy.policy = Policy::kSnapKv;
  r.policy.budget = 64;
  r.policy.rho = 0.25F;
  r.draft_len = 11;
  r.ignore_stop = true;
  EXPECT_EQ(request_from_json(boost::json::parse(boost::json::serialize(to_json(r)))), r);
}

TEST(TargetJson, AnOutcomeSurvivesTheRoundTrip) {
  Outcome o;
  o.tokens = {3, 1, 4};
  o.finish = FinishReason::kStop;
  o.progress.steps = 2;
  o.progress.drafted_tokens = 22;
  o.progress.drafting = true;
  o.accepted_per_position = {1, 0};
  o.draft_closed.refreshes.emplace_back();
  o.draft_closed.refreshes[0].epoch = Epoch{2};
  o.draft_closed.refreshes[0].bytes = 77;
  o.draft_ready.score_link = "ucx tcp/lo";
  o.draft_link.lanes = {"tcp/lo"};
  o.draft_error = "a \"quoted\" reason\n";
  const Outcome back = outcome_from_json(boost::json::parse(boost::json::serialize(to_json(o))));
  EXPECT_EQ(back.tokens, o.tokens);
  EXPECT_EQ(back.finish, o.finish);
  EXPECT_EQ(back.progress, o.progress);
  EXPECT_EQ(back.accepted_per_position, o.accepted_per_position);
  EXPECT_EQ(back.draft_closed, o.draft_closed);
  EXPECT_EQ(back.draft_ready, o.draft_ready);
  EXPECT_EQ(back.draft_link.lanes, o.draft_link.lanes);
  EXPECT_EQ(back.draft_error, o.draft_error);
}

TEST(TargetJson, NamesTheKeyThatIsWrong) {
  const auto message_of = [](const char* text) -> std::string {
    try {
      (void)request_from_json(boost::json::parse(text));
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_THAT(message_of(R"({"max_tokens": "many"})"), testing::HasSubstr("max_tokens"));
  EXPECT_THAT(message_of(R"({"prompt": [1, 99999999999]})"), testing::HasSubstr("prompt"));
  EXPECT_THAT(message_of(R"({"policy": {"name": "best"}})"), testing::HasSubstr("best"));
  EXPECT_THAT(message_of("[]"), testing::HasSubstr("JSON object"));
}

// Bans a token; JSON has no number for it.
TEST(TargetJson, AnInfiniteBiasComesBackFromText) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Request request;
  request.prompt = {1};
  request.sampling.logit_bias = {{5, -kInf}, {6, kInf}};
  const auto text = boost::json::serialize(to_json(request));
  EXPECT_EQ(request_from_json(boost::json::parse(text)), request);
}

}  // namespace
}  // namespace rift::target_node
