// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rift::cli {
namespace {

RunReport report() {
  RunReport r;
  r.transport = "ucx";
  r.target_file = "t.gguf";
  r.request.prompt = {1, 2, 3};
  r.request.draft_len = 2;
  r.first_token_seconds = 1.25;
  r.start_up.score.pack = 0.5;
  target_node::Outcome& o = r.outcome;
  o.tokens = {5, 6, 7, 8, 9, 10};
  o.progress.steps = 2;
  o.progress.drafted_tokens = 4;
  o.progress.accepted_tokens = 3;
  o.committed_by_steps = 5;
  o.accepted_per_position = {2, 1};
  o.drafted_per_position = {2, 2};
  o.decode_seconds = 0.5;
  for (std::uint32_t e = 0; e < 3; ++e) {
    auto& refresh = o.draft_closed.refreshes.emplace_back();
    refresh.epoch = Epoch{e};
    refresh.bytes = 1000 * (e + 1);
    refresh.blocks = e + 1;
    refresh.score_ns = e * 1'000'000;
    refresh.stale_tokens = 3;
  }
  return r;
}

TEST(HumanBytes, UsesDecimalUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(1000), "1.0 kB");
  EXPECT_EQ(human_bytes(391'900'000), "392 MB");
  EXPECT_EQ(human_bytes(5e12), "5000 GB");
}

TEST(RunJson, HasTheKeysThatScriptsRelyOn) {
  const boost::json::object j = to_json(report());
  for (const char* key : {"version",
                          "transport",
                          "target",
                          "draft",
                          "policy",
                          "draft_len",
                          "prompt_tokens",
                          "output_tokens",
                          "text",
                          "finish_reason",
                          "steps",
                          "drafted_tokens",
                          "accepted_tokens",
                          "accepted_per_position",
                          "accepted_length_pooled",
                          "accepted_length_mean",
                          "seconds",
                          "tokens_per_second",
                          "refresh",
                          "memory_bytes",
                          "faults"}) {
    EXPECT_TRUE(j.contains(key)) << key;
  }
  EXPECT_EQ(j.at("accepted_length_pooled").as_double(), 2.5);
  EXPECT_EQ(j.at("tokens_per_second").as_double(), 10.0);
  EXPECT_EQ(j.at("seconds").at("first_token").as_double(), 1.25);
  EXPECT_EQ(j.at("seconds").at("load_stages").at("score").at("pack").as_double(), 0.5);
  EXPECT_EQ(j.at("seconds").at("load_stages").at("target").at("open").as_double(), 0.0);
  const auto& refresh = j.at("refresh").as_object();
  EXPECT_EQ(refresh.at("count").to_number<int>(), 2);  // the first working set is none
  EXPECT_EQ(refresh.at("bytes").to_number<int>(), 5000);
  EXPECT_EQ(refresh.at("blocks").to_number<int>(), 5);
  EXPECT_EQ(refresh.at("stale_tokens").to_number<int>(), 6);
  EXPECT_EQ(refresh.at("stage_seconds").at("score").at("p99").as_double(), 0.002);
  for (const char* stage : {"ingest", "score", "select", "pack", "write", "install", "total"}) {
    EXPECT_TRUE(refresh.at("stage_seconds").as_object().contains(stage)) << stage;
  }
}

TEST(RunTable, NamesBothAveragesAndTheReasonWhyDraftingEnded) {
  RunReport r = report();
  r.outcome.draft_error = "the draft node was lost";
  const std::string table = to_table(r);
  EXPECT_THAT(table, testing::HasSubstr("pooled"));
  EXPECT_THAT(table, testing::HasSubstr("mean"));
  EXPECT_THAT(table, testing::HasSubstr("100% 50%"));
  EXPECT_THAT(table, testing::HasSubstr("the draft node was lost"));
}

}  // namespace
}  // namespace rift::cli
