// SPDX-License-Identifier: Apache-2.0
#include "draft_node/core/draft_core.h"

#include "tests/unit/draft_node/core_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace rift::draft_node {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using transport::CloseSession;
using transport::Commit;
using transport::Installed;
using transport::Proposal;
using transport::RefreshRequest;
using transport::ScoreOpen;
using transport::SessionClosed;
using transport::SessionReady;
using transport::SessionRefused;

TEST(DraftCore, OpensASessionFromTheScoreNodesWorkingSet) {
  CoreWorld world;
  world.send(ScoreUp{"ucx tcp/lo (emulated)"});
  world.target(CoreWorld::open_message(100));
  const auto placed = world.take<OpenWorkingSet>();
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->recent, 32);
  EXPECT_EQ(placed->layout.ring_capacity, 32 + 4 + 1);
  const auto open = world.to_score<ScoreOpen>();
  ASSERT_TRUE(open);
  EXPECT_EQ(open->arena_region, 3U);
  EXPECT_EQ(open->arena_offset, placed->offset);
  EXPECT_EQ(open->tokens.size(), 100U);
  EXPECT_FALSE(world.to_target<SessionReady>());
  world.score(world.first_set(*open));
  const auto ready = world.to_target<SessionReady>();
  ASSERT_TRUE(ready);
  EXPECT_TRUE(ready->score_attached);
  EXPECT_EQ(ready->score_link, "ucx tcp/lo (emulated)");
  EXPECT_EQ(ready->score_history_bytes, 5000U);
  EXPECT_EQ(ready->arena.working_set, placed->layout.working_set_bytes());
  const auto installed = world.to_score<Installed>();
  ASSERT_TRUE(installed);
  EXPECT_EQ(installed->epoch, Epoch{0});
}

TEST(DraftCore, FirstRoundInstallsTheWorkingSetAndFeedsTheTargetsToken) {
  CoreWorld world;
  world.open_attached();
  const auto job = world.run_round(0);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->ring, std::make_pair(68, 100));
  ASSERT_EQ(job->waves.size(), 1U);
  EXPECT_EQ(job->waves[0].covered, 100);
  EXPECT_EQ(job->first, 100);
  EXPECT_THAT(job->tokens, ElementsAre(5));
  const auto proposal = world.to_target<Proposal>();
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->round, 1U);
  EXPECT_THAT(proposal->tokens, ElementsAre(900, 901, 902, 903));
  EXPECT_EQ(proposal->refresh_bytes, 1000U);
}

TEST(DraftCore, FeedsOnlyWhatTheRingDoesNotHold) {
  CoreWorld world;
  world.open_attached();
  world.run_round(0);  // token 100, then drafts of 101..104; the last one was never fed
  const auto some = world.run_round(2);
  ASSERT_TRUE(some);
  EXPECT_EQ(some->first, 103);  // 101 and 102 stay
  EXPECT_THAT(some->tokens, ElementsAre(5));
  const auto all = world.run_round(4);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->first, 107);  // 104..106 were fed as drafts
  EXPECT_THAT(all->tokens, ElementsAre(903, 5));
  const auto none = world.run_round(0);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->first, 109);
}

TEST(DraftCore, ForwardsCommittedTokensExactly) {
  CoreWorld world;
  world.open_attached();
  world.run_round(0);
  auto commit = world.to_score<Commit>();
  ASSERT_TRUE(commit);
  EXPECT_EQ(commit->start, 100);
  EXPECT_THAT(commit->tokens, ElementsAre(5));
  world.run_round(2);
  commit = world.to_score<Commit>();
  ASSERT_TRUE(commit);
  EXPECT_EQ(commit->start, 101);
  EXPECT_THAT(commit->tokens, ElementsAre(900, 901, 5));
}

TEST(DraftCore, AsksForARefreshEveryDeltaTokensAndOnlyOneAtATime) {
  CoreWorld world;
  world.open_attached();
  world.run_round(0);
  EXPECT_FALSE(world.to_score<RefreshRequest>());
  world.run_round(4);  // 106 tokens
  EXPECT_FALSE(world.to_score<RefreshRequest>());
  world.run_round(1);  // 108
  const auto request = world.to_score<RefreshRequest>();
  ASSERT_TRUE(request);
  EXPECT_EQ(request->epoch, Epoch{1});
  EXPECT_EQ(request->tokens, 107);  // the newest token is the next query
  for (int i = 0; i < 10; ++i) {
    world.run_round(4);
  }
  EXPECT_FALSE(world.to_score<RefreshRequest>());
}

TEST(DraftCore, TheScoreNodesHistoryEndsWhereTheRequestSays) {
  CoreWorld world;
  world.open_attached();
  world.run_round(0);
  world.run_round(4);
  world.actions.clear();
  world.verdict(4, 4);
  std::int32_t history = 106;
  bool requested = false;
  for (const Action& action : world.actions) {
    const auto* send = std::get_if<SendScore>(&action);
    if (send == nullptr) {
      continue;
    }
    if (const auto* commit = std::get_if<Commit>(&send->message)) {
      EXPECT_EQ(commit->start, history);
      history += static_cast<std::int32_t>(commit->tokens.size());
    } else if (const auto* request = std::get_if<RefreshRequest>(&send->message)) {
      EXPECT_EQ(request->tokens, history);
      requested = true;
    }
  }
  EXPECT_TRUE(requested);
  EXPECT_EQ(history, world.committed);
}

RefreshRequest reach_request(CoreWorld& world) {
  world.open_attached();
  world.run_round(0);
  world.run_round(4);
  world.run_round(4);
  auto request = world.to_score<RefreshRequest>();
  EXPECT_TRUE(request);
  world.actions.clear();
  return *request;
}

TEST(DraftCore, SwapsACompleteWaveBetweenRounds) {
  CoreWorld world;
  const RefreshRequest request = reach_request(world);
  world.verdict(0, 4);
  world.now += 5ms;
  world.score(CoreWorld::wave(request, 8, 3));
  EXPECT_FALSE(world.to_score<Installed>());  // a round is under way
  world.now += 2ms;
  const auto busy = world.finish_draft();
  ASSERT_TRUE(busy);
  EXPECT_TRUE(busy->waves.empty());
  EXPECT_TRUE(world.to_score<Installed>());
  const auto swapped = world.take<RefreshSwapped>();
  ASSERT_TRUE(swapped);
  EXPECT_EQ(swapped->record.epoch, Epoch{1});
  EXPECT_EQ(swapped->record.total_ns, 7'000'000U);
  EXPECT_EQ(swapped->record.install_ns, 2'000'000U);
  EXPECT_EQ(swapped->record.stall_ns, 0U);
  EXPECT_EQ(swapped->record.stale_tokens, 1);
  EXPECT_EQ(swapped->record.blocks, 1U);
  const auto next = world.run_round(0);
  ASSERT_TRUE(next);
  ASSERT_EQ(next->waves.size(), 1U);
  EXPECT_EQ(next->waves[0].covered, request.tokens);
  EXPECT_FALSE(next->ring);
}

TEST(DraftCore, TakesARefreshInWaves) {
  CoreWorld world;
  const RefreshRequest request = reach_request(world);
  world.score(CoreWorld::wave(request, 8, 3, 0, false));
  EXPECT_EQ(world.to_score<Installed>()->wave, 0U);
  EXPECT_FALSE(world.take<RefreshSwapped>());
  world.score(CoreWorld::wave(request, 9, 2, 1, true));
  EXPECT_EQ(world.to_score<Installed>()->wave, 1U);
  EXPECT_EQ(world.take<RefreshSwapped>()->record.waves, 2U);
  EXPECT_EQ(world.run_round(0)->waves.size(), 2U);
}

TEST(DraftCore, PauseModeDraftsOnlyAfterTheSwapAndMeasuresTheStall) {
  CoreWorld world(RefreshMode::kPause);
  world.open_attached();
  world.run_round(0);
  world.run_round(4);
  world.actions.clear();
  world.verdict(4, 4);
  const auto request = world.to_score<RefreshRequest>();
  ASSERT_TRUE(request);
  EXPECT_FALSE(world.take<DraftJob>());
  world.now += 30ms;
  world.score(CoreWorld::wave(*request, 8, 3));
  EXPECT_EQ(world.take<RefreshSwapped>()->record.stall_ns, 30'000'000U);
  const auto job = world.take<DraftJob>();
  ASSERT_TRUE(job);
  EXPECT_EQ(job->waves.size(), 1U);
}

TEST(DraftCore, PauseModeGoesOnWhenTheRefreshIsLate) {
  CoreWorld world(RefreshMode::kPause);
  world.open_attached();
  world.run_round(0);
  world.run_round(4);
  world.verdict(4, 4);
  world.actions.clear();
  world.pass(59s);
  EXPECT_FALSE(world.take<DraftJob>());
  world.pass(1s);
  EXPECT_TRUE(world.take<DraftJob>());
  EXPECT_TRUE(world.to_score<CloseSession>());
}

TEST(DraftCore, DoesNotDraftWhenNotAsked) {
  CoreWorld world;
  world.open_attached();
  for (int i = 0; i < 5; ++i) {
    world.verdict(0, 0);
  }
  EXPECT_FALSE(world.take<DraftJob>());
  const auto job = world.run_round(0);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->first, 100);
  EXPECT_EQ(job->tokens.size(), 6U);
}

TEST(DraftCore, DropsAProposalThatTheTargetDidNotWaitFor) {
  CoreWorld world;
  world.open_attached();
  world.verdict(0, 4);
  world.verdict(0, 4);  // answered while the first draft is still being made
  ASSERT_TRUE(world.finish_draft());
  const auto second = world.finish_draft();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->first, 101);  // token 100 stays, its drafts do not
  EXPECT_THAT(second->tokens, ElementsAre(5));
  const auto proposal = world.to_target<Proposal>();
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->round, 2U);
  EXPECT_FALSE(world.to_target<Proposal>());
}

TEST(DraftCore, AVerdictMayComeBeforeTheSessionIsReady) {
  CoreWorld world;
  world.send(ScoreUp{"inproc"});
  world.target(CoreWorld::open_message(100));
  const auto open = world.to_score<ScoreOpen>();
  world.committed = 100;
  world.verdict(0, 4);
  EXPECT_FALSE(world.take<DraftJob>());
  world.score(world.first_set(*open));
  EXPECT_TRUE(world.to_target<SessionReady>());
  const auto job = world.finish_draft();
  ASSERT_TRUE(job);
  EXPECT_EQ(job->first, 100);
}

TEST(DraftCore, DraftsNothingPastTheContext) {
  CoreWorld world;
  auto open = CoreWorld::open_message(100);
  open.max_context = 103;
  world.target(open);
  world.send(PrefillDone{world.take<PrefillJob>()->id, {}});
  world.committed = 100;
  EXPECT_EQ(world.run_round(0)->draft_len, 2);
  world.verdict(1, 4);
  EXPECT_FALSE(world.take<DraftJob>());
  world.to_target<Proposal>();
  EXPECT_TRUE(world.to_target<Proposal>()->tokens.empty());
}

TEST(DraftCore, WithoutAScoreNodeItPrefillsItsRecentWindow) {
  CoreWorld world;
  world.target(CoreWorld::open_message(100));
  const auto prefill = world.take<PrefillJob>();
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->start, 68);
  EXPECT_EQ(prefill->tokens.size(), 32U);
  world.send(PrefillDone{prefill->id, {}});
  const auto ready = world.to_target<SessionReady>();
  ASSERT_TRUE(ready);
  EXPECT_FALSE(ready->score_attached);
  world.committed = 100;
  const auto job = world.run_round(0);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->first, 100);
  EXPECT_FALSE(world.to_score<Commit>());
}

TEST(DraftCore, AStreamingSetIsPrefilledWithItsSinksAndItsRecentWindow) {
  CoreWorld world;
  const auto open = CoreWorld::open_message(100, Policy::kStreamingLlm);
  world.target(open);
  const auto prefill = world.take<PrefillJob>();
  ASSERT_TRUE(prefill);
  const std::int32_t recent = open.policy.budget - 4;
  EXPECT_EQ(prefill->start, 100 - recent);
  EXPECT_EQ(std::ssize(prefill->tokens), recent);
  EXPECT_THAT(prefill->sinks,
              testing::ElementsAreArray(open.tokens.begin(), open.tokens.begin() + 4));
}

TEST(DraftCore, WithFullKvItPrefillsTheWholePrompt) {
  CoreWorld world;
  world.target(CoreWorld::open_message(100, Policy::kFull));
  const auto prefill = world.take<PrefillJob>();
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->start, 0);
  EXPECT_EQ(prefill->tokens.size(), 100U);
}

TEST(DraftCore, PrefillsItselfWhenTheScoreNodeRefuses) {
  CoreWorld world;
  world.send(ScoreUp{"inproc"});
  world.target(CoreWorld::open_message(100));
  const auto open = world.to_score<ScoreOpen>();
  world.score(SessionRefused{kSession, Errc::kResourceExhausted, "no memory"});
  const auto prefill = world.take<PrefillJob>();
  ASSERT_TRUE(prefill);
  world.send(PrefillDone{prefill->id, {}});
  EXPECT_FALSE(world.to_target<SessionReady>()->score_attached);
}

TEST(DraftCore, ALateFirstWorkingSetCannotTouchTheOneInUse) {
  CoreWorld world;
  world.send(ScoreUp{"inproc"});
  world.target(CoreWorld::open_message(100));
  const auto open = world.to_score<ScoreOpen>();
  const auto first = world.take<OpenWorkingSet>();
  world.pass(125s - 1ms);  // 120 s, and 50 ms for every token of the prompt
  EXPECT_FALSE(world.take<OpenWorkingSet>());
  world.pass(1ms);
  const auto second = world.take<OpenWorkingSet>();
  ASSERT_TRUE(second);
  EXPECT_NE(second->offset, first->offset);
  const auto prefill = world.take<PrefillJob>();
  ASSERT_TRUE(prefill);
  EXPECT_EQ(prefill->id, second->id);
  EXPECT_TRUE(world.to_score<CloseSession>());
  world.finish_drops();
  const std::uint64_t both = world.core.arena().used_bytes();
  world.score(world.first_set(*open));  // late; its writes have ended now
  EXPECT_EQ(world.core.arena().used_bytes(), both / 2);
  EXPECT_FALSE(world.to_score<Installed>());
}

TEST(DraftCore, IsRefusedWhenItsFirstWorkingSetIsLateAndThereIsNoRoom) {
  CoreWorld world(RefreshMode::kStage, 40'000);
  world.send(ScoreUp{"inproc"});
  world.target(CoreWorld::open_message(100));
  ASSERT_TRUE(world.to_score<ScoreOpen>());
  world.pass(125s);
  const auto refused = world.to_target<SessionRefused>();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Errc::kTimeout);
  world.finish_drops();
  EXPECT_GT(world.core.arena().used_bytes(), 0U);  // writes may still be under way
  world.score(SessionRefused{kSession, Errc::kCancelled, "closed"});
  EXPECT_EQ(world.core.arena().used_bytes(), 0U);
}

enum class Moment { kOpening, kIdle, kDrafting, kRefreshing, kWaveReady, kPaused };

class ScoreLoss : public ::testing::TestWithParam<Moment> {};

TEST_P(ScoreLoss, LeavesTheSessionDrafting) {
  const Moment moment = GetParam();
  CoreWorld world(moment == Moment::kPaused ? RefreshMode::kPause : RefreshMode::kStage);
  if (moment == Moment::kOpening) {
    world.send(ScoreUp{"inproc"});
    world.target(CoreWorld::open_message(100));
    world.committed = 100;
  } else {
    world.open_attached();
    world.run_round(0);
    if (moment != Moment::kIdle) {
      world.run_round(4);
      world.verdict(4, 4);
    }
    if (moment == Moment::kRefreshing) {
      world.finish_draft();
    }
    if (moment == Moment::kWaveReady) {
      world.score(CoreWorld::wave(*world.to_score<RefreshRequest>(), 8, 3));
    }
  }
  world.to_target<Proposal>();
  world.to_target<Proposal>();
  world.to_target<Proposal>();
  world.send(ScoreLost{"heartbeats missed"});
  if (const auto prefill = world.take<PrefillJob>()) {
    EXPECT_EQ(moment, Moment::kOpening);
    world.send(PrefillDone{prefill->id, {}});
  }
  world.finish_draft();
  if (!world.to_target<Proposal>()) {
    world.run_round(0);
    EXPECT_TRUE(world.to_target<Proposal>());
  }
  world.actions.clear();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(world.run_round(4));
  }
  for (const Action& action : world.actions) {
    EXPECT_FALSE(std::holds_alternative<SendScore>(action));
  }
  world.target(CloseSession{kSession});
  EXPECT_EQ(world.to_target<SessionClosed>()->score_lost, 1U);
  world.finish_drops();
  EXPECT_EQ(world.core.arena().used_bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(DraftCore,
                         ScoreLoss,
                         ::testing::Values(Moment::kOpening,
                                           Moment::kIdle,
                                           Moment::kDrafting,
                                           Moment::kRefreshing,
                                           Moment::kWaveReady,
                                           Moment::kPaused));

TEST(DraftCore, AScoreNodeThatComesBackFillsAnotherRangeWhileDraftingGoesOn) {
  CoreWorld world;
  world.open_attached();
  world.run_round(0);
  world.send(ScoreLost{"reset"});
  world.run_round(4);
  const auto old_set = world.take<OpenWorkingSet>();
  world.actions.clear();
  world.send(ScoreUp{"inproc"});
  const auto placed = world.take<OpenWorkingSet>();
  const auto open = world.to_score<ScoreOpen>();
  ASSERT_TRUE(placed && open);
  EXPECT_NE(placed->offset, old_set->offset);
  EXPECT_EQ(open->tokens.size(), 105U);
  EXPECT_EQ(world.to_score<Commit>()->start, 105);
  EXPECT_EQ(world.run_round(0)->id, old_set->id);
  world.score(world.first_set(*open));
  const auto drop = world.take<DropWorkingSet>();
  ASSERT_TRUE(drop);
  EXPECT_EQ(drop->id, old_set->id);
  const auto job = world.run_round(0);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->id, placed->id);
  EXPECT_EQ(job->ring, std::make_pair(73, 105));
  EXPECT_EQ(job->first, 105);
  EXPECT_EQ(job->tokens.size(), 3U);
  world.send(WorkingSetDropped{drop->id});
  EXPECT_EQ(world.core.arena().used_bytes(), (placed->layout.total_bytes() + 4095) / 4096 * 4096);
}

TEST(DraftCore, AHostileWaveEndsRefreshesAndNotTheSession) {
  CoreWorld world;
  const RefreshRequest request = reach_request(world);
  world.score(CoreWorld::wave(request, 0, 3));  // slot 0 is being read
  EXPECT_FALSE(world.to_score<Installed>());
  EXPECT_TRUE(world.to_score<CloseSession>());
  EXPECT_THAT(world.take<Note>()->text, HasSubstr("slot 0"));
  const auto job = world.run_round(0);
  ASSERT_TRUE(job);
  EXPECT_TRUE(job->waves.empty());
  EXPECT_TRUE(world.to_target<Proposal>());
}

TEST(DraftCore, RejectsReadyMessagesThatDoNotFitTheRequest) {
  for (int fault = 0; fault < 3; ++fault) {
    CoreWorld world;
    const RefreshRequest request = reach_request(world);
    auto wave = CoreWorld::wave(request, 8, 3);
    wave.wave = fault == 0 ? 1 : 0;
    wave.covered_tokens += fault == 1 ? 1 : 0;
    wave.epoch = fault == 2 ? Epoch{9} : wave.epoch;
    world.score(wave);
    EXPECT_FALSE(world.to_score<Installed>()) << fault;
    EXPECT_TRUE(world.run_round(0)) << fault;
  }
}

TEST(DraftCore, RejectsARingThatDoesNotFit) {
  for (const auto& [begin, ok] : {std::pair{63, true}, {62, false}, {101, false}, {-1, false}}) {
    CoreWorld world;
    world.send(ScoreUp{"inproc"});
    world.target(CoreWorld::open_message(100));
    auto ready = world.first_set(*world.to_score<ScoreOpen>());
    ready.ring_begin = begin;
    world.score(ready);
    EXPECT_EQ(world.to_score<Installed>().has_value(), ok) << begin;
    EXPECT_EQ(world.take<PrefillJob>().has_value(), !ok) << begin;
  }
}

TEST(DraftCore, RefusesBadOpenings) {
  const auto refused = [](auto change) {
    CoreWorld world;
    auto open = CoreWorld::open_message(10);
    change(open);
    world.target(open);
    EXPECT_EQ(world.core.session_count(), 0U);
    return world.to_target<SessionRefused>().has_value();
  };
  constexpr std::int32_t kHuge = std::numeric_limits<std::int32_t>::max();
  EXPECT_TRUE(refused([](auto& o) { o.tokens.clear(); }));
  EXPECT_TRUE(refused([](auto& o) { o.tokens[3] = 1000; }));
  EXPECT_TRUE(refused([](auto& o) { o.tokens[3] = -1; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_context = 9; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_context = kHuge; }));
  EXPECT_TRUE(refused([](auto& o) { o.max_draft_len = kHuge; }));
  EXPECT_TRUE(refused([](auto& o) { o.policy.budget = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.policy.budget = kHuge; }));
  EXPECT_TRUE(refused([](auto& o) { o.policy.rho = 1.5F; }));
  EXPECT_TRUE(refused([](auto& o) { o.top_n = 0; }));
  EXPECT_TRUE(refused([](auto& o) { o.sampling.top_p = -1.0F; }));
}

TEST(DraftCore, BadVerdictsCloseTheSessionWithAMessage) {
  using transport::Verdict;
  const Verdict bad[] = {{kSession, 2, 5, 1, 107, 4},
                         {kSession, 2, -1, 1, 101, 4},
                         {kSession, 2, 1, 1, 104, 4},
                         {kSession, 9, 1, 1, 103, 4},
                         {kSession, 2, 1, 1000, 103, 4},
                         {kSession, 2, 1, 1, 103, 5}};
  for (const Verdict& verdict : bad) {
    CoreWorld world;
    world.open_attached();
    world.run_round(0);
    world.target(verdict);
    EXPECT_TRUE(world.to_target<SessionRefused>());
    EXPECT_TRUE(world.to_score<CloseSession>());
    world.finish_drops();
    EXPECT_EQ(world.core.arena().used_bytes(), 0U);
  }
}

TEST(DraftCore, AnotherTargetCannotReachASession) {
  CoreWorld world;
  world.open_attached();
  world.send(TargetMessage{TargetId{8}, CloseSession{kSession}});
  EXPECT_EQ(world.core.session_count(), 1U);
  world.send(TargetLost{TargetId{8}});
  EXPECT_EQ(world.core.session_count(), 1U);
  world.send(TargetLost{kTarget});
  EXPECT_EQ(world.core.session_count(), 0U);
  EXPECT_TRUE(world.to_score<CloseSession>());
}

TEST(DraftCore, KeepsARangeUntilTheEngineHasDroppedIt) {
  CoreWorld world;
  world.open_attached();
  world.verdict(0, 4);
  world.target(CloseSession{kSession});
  EXPECT_GT(world.core.arena().used_bytes(), 0U);
  world.finish_draft();  // comes back after the session is gone
  world.finish_drops();
  EXPECT_EQ(world.core.arena().used_bytes(), 0U);
  EXPECT_FALSE(world.to_target<Proposal>());
}

TEST(DraftCore, KeepsARangeUntilARefreshUnderWayHasEnded) {
  CoreWorld world;
  const RefreshRequest request = reach_request(world);
  world.target(CloseSession{kSession});
  world.finish_drops();
  EXPECT_GT(world.core.arena().used_bytes(), 0U);
  world.score(CoreWorld::wave(request, 8, 3));
  EXPECT_EQ(world.core.arena().used_bytes(), 0U);
}

TEST(DraftCore, ComputationErrorsCloseTheSession) {
  CoreWorld world;
  world.open_attached();
  world.verdict(0, 4);
  DraftDone done;
  done.id = world.take<DraftJob>()->id;
  done.error = Error(Errc::kInternal, "broken");
  world.send(done);
  EXPECT_EQ(world.to_target<SessionRefused>()->code, Errc::kInternal);
}

TEST(DraftCore, ClosingReportsTotals) {
  CoreWorld world;
  const RefreshRequest request = reach_request(world);
  world.score(CoreWorld::wave(request, 8, 3));
  world.target(CloseSession{kSession});
  const auto closed = world.to_target<SessionClosed>();
  ASSERT_TRUE(closed);
  ASSERT_EQ(closed->refreshes.size(), 2U);
  EXPECT_EQ(closed->refreshes[0].epoch, Epoch{0});
  EXPECT_EQ(closed->refreshes[0].blocks, 8U);
  EXPECT_EQ(closed->refreshes[1].bytes, 100U);
  EXPECT_EQ(closed->draft_steps, 12U);
  EXPECT_EQ(closed->draft_step_ns, 120U);
}

}  // namespace
}  // namespace rift::draft_node
