// SPDX-License-Identifier: Apache-2.0
// When refreshes are asked for by RIFT-ada, and when they are swapped in with a lag.
#include "tests/unit/draft_node/core_world.h"

#include <gtest/gtest.h>

namespace rift::draft_node {
namespace {

using transport::RefreshRequest;

TEST(DraftCore, ALaggingRefreshIsSwappedExactlyWhenItIsDue) {
  for (const bool early : {true, false}) {
    CoreWorld world;
    transport::OpenSession open = CoreWorld::open_message(100);
    open.policy.refresh_lag = 6;
    world.open_attached(open);
    world.run_round(0);
    world.run_round(4);
    world.run_round(4);  // 11 tokens since the opening: the request
    const auto request = world.to_score<RefreshRequest>();
    ASSERT_TRUE(request);
    world.actions.clear();
    if (early) {
      world.score(CoreWorld::wave(*request, 8, 3));
    }
    const auto before = world.run_round(4);  // 5 tokens since
    ASSERT_TRUE(before);
    EXPECT_TRUE(before->waves.empty());
    EXPECT_FALSE(world.take<RefreshSwapped>());
    world.verdict(0, 4);  // 6
    if (!early) {
      EXPECT_FALSE(world.take<DraftJob>());  // waits
      world.score(CoreWorld::wave(*request, 8, 3));
    }
    const auto after = world.finish_draft();
    ASSERT_TRUE(after);
    EXPECT_EQ(after->waves.size(), 1U);
    EXPECT_EQ(world.take<RefreshSwapped>()->record.stale_tokens, 6);
  }
}

transport::OpenSession ada_open() {
  transport::OpenSession open = CoreWorld::open_message(100);
  open.policy.policy = Policy::kRiftAda;
  open.policy.ada = {.stride = 4, .min_age = 8, .max_age = 100, .entropy_rise = 0.5F};
  return open;
}

TEST(DraftCore, RiftAdaAsksWhenItsSignalsDo) {
  CoreWorld world;
  world.open_attached(ada_open());
  world.verdict(0, 4);  // 1 token
  world.finish_draft(1.0F);
  world.verdict(2, 4);  // 4: the base
  const auto first = world.take<StrideEnded>();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->committed, 104);
  EXPECT_EQ(first->signals.entropy, 1.0);
  EXPECT_EQ(first->signals.acceptance, 3.0);
  EXPECT_EQ(first->signals.drift, 0.125);
  auto job = world.finish_draft(1.0F);
  EXPECT_TRUE(job->end_stride);
  EXPECT_FALSE(job->refreshed);
  world.verdict(2, 4);  // 7
  EXPECT_FALSE(world.take<StrideEnded>());
  job = world.finish_draft(2.0F);
  EXPECT_FALSE(job->end_stride);
  world.verdict(0, 4);  // 8, and three steps of entropy 1 and one of 2
  EXPECT_EQ(world.take<StrideEnded>()->decision.rule, policy::AdaRule::kNone);
  EXPECT_FALSE(world.to_score<RefreshRequest>());
  world.finish_draft(1.5F);
  world.verdict(3, 4);  // 12
  const auto third = world.take<StrideEnded>();
  EXPECT_EQ(third->signals.age, 12);
  EXPECT_EQ(third->decision.rule, policy::AdaRule::kEntropyRise);
  const auto request = world.to_score<RefreshRequest>();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->tokens, 111);
  job = world.finish_draft(1.0F);
  EXPECT_TRUE(job->end_stride);
  EXPECT_TRUE(job->refreshed);
}

TEST(DraftCore, RiftAdaIgnoresWhatRejectedDraftsSay) {
  CoreWorld world;
  world.open_attached(ada_open());
  world.verdict(0, 4);
  const auto job = world.take<DraftJob>();
  ASSERT_TRUE(job);
  DraftDone done;
  done.id = job->id;
  done.tokens = {900, 901, 902, 903};
  done.entropy = {1.0F, 3.0F, 50.0F, 50.0F};
  done.drift = {0.25F, 0.5F, 1.5F, 1.5F};
  world.send(done);
  world.verdict(1, 0);  // 3 tokens; the step after the accepted draft counts
  world.verdict(0, 0);  // 4
  const auto ended = world.take<StrideEnded>();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->signals.entropy, 2.0);
  EXPECT_EQ(ended->signals.drift, 0.5);
  EXPECT_EQ(ended->signals.acceptance, 2.0);  // rounds without drafts are no verification steps
}

TEST(DraftCore, RiftAdaDoesNotAskWhileARefreshIsUnderWay) {
  CoreWorld world;
  transport::OpenSession open = ada_open();
  open.policy.ada.max_age = 8;
  world.open_attached(open);
  int requests = 0;
  for (int i = 0; i < 12; ++i) {
    world.verdict(i == 0 ? 0 : 3, 4);
    world.finish_draft(1.0F);
    requests += world.to_score<RefreshRequest>() ? 1 : 0;
  }
  EXPECT_EQ(requests, 1);
}

}  // namespace
}  // namespace rift::draft_node
