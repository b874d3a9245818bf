// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/score_core.h"

#include "tests/unit/score_node/core_rig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace rift::score_node {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

PolicySpec small_policy() {
  PolicySpec spec;
  spec.policy = Policy::kRiftDyn;
  spec.budget = 24;  // r = 12, three slots a head
  spec.block = 4;
  spec.delta = 8;
  spec.window = 8;
  return spec;
}

std::vector<TokenId> some_tokens(std::int32_t count, TokenId first = 1) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

template <typename T>
std::vector<T> of_type(const std::vector<Action>& log) {
  std::vector<T> out;
  for (const Action& action : log) {
    if (const T* a = std::get_if<T>(&action)) {
      out.push_back(*a);
    }
  }
  return out;
}

class ScoreCoreTest : public ::testing::Test {
 protected:
  ScoreCoreTest() : rig(small_options(), 1), draft(SessionId{5}, small_policy(), 400) {
    rig.draft = &draft;
  }

  void open(std::int32_t tokens) {
    draft.tokens = some_tokens(tokens);
    rig.send(draft, draft.open_message());
  }
  void commit(const std::vector<TokenId>& tokens) {
    rig.send(draft,
             transport::Commit{draft.id, static_cast<std::int32_t>(draft.tokens.size()), tokens});
    draft.tokens.insert(draft.tokens.end(), tokens.begin(), tokens.end());
  }
  void refresh(std::uint32_t epoch) {
    rig.send(draft,
             transport::RefreshRequest{
                 draft.id, Epoch{epoch}, static_cast<std::int32_t>(draft.tokens.size())});
  }
  void install() { rig.send(draft, draft.install()); }
  std::string refusal() {
    return draft.refused.empty() ? "accepted" : draft.refused.back().message;
  }

  CoreRig rig;
  FakeDraft draft;
};

TEST_F(ScoreCoreTest, TheFirstWorkingSetFillsRingAndSlots) {
  open(50);
  rig.run_all();
  ASSERT_THAT(draft.ready, SizeIs(1));
  const transport::RefreshReady ready = draft.ready.front();
  EXPECT_EQ(ready.epoch, Epoch{0});
  EXPECT_TRUE(ready.last_wave);
  EXPECT_EQ(ready.covered_tokens, 50);
  EXPECT_EQ(ready.ring_begin, 38);
  EXPECT_THAT(ready.updates, SizeIs(4 * 3));
  EXPECT_EQ(ready.bytes, 12 * draft.layout.block_bytes() + 12 * kGeometry.bytes_per_position());
  install();
  draft.check_contents();
  for (Position p = 38; p < 50; ++p) {
    Copy copy;
    copy.layer = 1;
    copy.values = true;
    const auto want = fake_vector(copy, p, draft.tokens[static_cast<std::size_t>(p)]);
    const std::uint64_t at =
        draft.arena_offset + draft.layout.value_ring_offset(1, 0) +
        static_cast<std::uint64_t>(p % draft.layout.ring_capacity) * kGeometry.vector_bytes();
    EXPECT_EQ(std::memcmp(draft.arena.data() + at, want.data(), kGeometry.vector_bytes()), 0) << p;
  }
}

TEST_F(ScoreCoreTest, PrefillComesInChunksSoThatSessionsTakeTurns) {
  open(50);
  rig.run_all();
  std::vector<std::size_t> sizes;
  for (const Ingest& job : of_type<Ingest>(rig.log)) {
    sizes.push_back(job.tokens.size());
  }
  EXPECT_THAT(sizes, ::testing::ElementsAre(16, 16, 16, 2));
}

TEST_F(ScoreCoreTest, SumsOverAllQueriesAreScoredAtTheHistorysEndAndGatheredAgainAfterACut) {
  draft.policy.selector = Selector::kH2o;
  rig.reused = 50;
  open(50);
  rig.run_all();
  EXPECT_THAT(of_type<Ingest>(rig.log), IsEmpty()) << "no window of queries is wanted";
  install();
  commit(some_tokens(10, 200));
  refresh(1);
  commit(some_tokens(60, 300));  // not added up before the refresh has been scored
  rig.run_all();
  ASSERT_THAT(of_type<Select>(rig.log), SizeIs(2));
  EXPECT_EQ(of_type<Select>(rig.log)[1].tokens, 60);
  EXPECT_EQ(of_type<Select>(rig.log)[1].window, 0);
  install();
  rig.run_all();
  // Token 90 was another: its query is in the sums.
  rig.log.clear();
  draft.tokens.resize(90);
  commit(some_tokens(20, 700));
  refresh(2);
  rig.run_all();
  const std::vector<Ingest> jobs = of_type<Ingest>(rig.log);
  ASSERT_FALSE(jobs.empty());
  EXPECT_EQ(jobs.front().start, 90);
  EXPECT_EQ(std::count_if(jobs.begin(), jobs.end(), [](const Ingest& j) { return j.start == 0; }),
            1);
  ASSERT_THAT(of_type<Select>(rig.log), SizeIs(1));
  EXPECT_EQ(of_type<Select>(rig.log)[0].tokens, 110);
  EXPECT_EQ(refusal(), "accepted");
}

TEST_F(ScoreCoreTest, AReusedPrefixIsNotComputedAgain) {
  rig.reused = 40;
  open(50);
  rig.run_all();
  const std::vector<Ingest> jobs = of_type<Ingest>(rig.log);
  ASSERT_THAT(jobs, SizeIs(1));
  EXPECT_EQ(jobs[0].start, 40);
  EXPECT_THAT(draft.ready, SizeIs(1));
}

TEST_F(ScoreCoreTest, AHistoryShorterThanTheRecentWindowSelectsNothing) {
  open(9);
  rig.run_all();
  ASSERT_THAT(draft.ready, SizeIs(1));
  EXPECT_THAT(draft.ready.front().updates, IsEmpty());
  EXPECT_EQ(draft.ready.front().ring_begin, 0);
  EXPECT_THAT(of_type<Select>(rig.log), IsEmpty());
  // Nothing to install: the next refresh does not wait for it.
  commit(some_tokens(20, 100));
  refresh(1);
  rig.run_all();
  EXPECT_THAT(draft.ready, SizeIs(2));
}

TEST_F(ScoreCoreTest, CommitsAreIngestedInBatchesAndARefreshIngestsTheRest) {
  open(50);
  rig.run_all();
  install();
  rig.log.clear();
  commit(some_tokens(5, 100));
  EXPECT_THAT(of_type<Ingest>(rig.log), IsEmpty());
  commit(some_tokens(5, 200));
  ASSERT_THAT(of_type<Ingest>(rig.log), SizeIs(1));
  EXPECT_EQ(of_type<Ingest>(rig.log)[0].tokens.size(), 10U);
  rig.run_all();
  commit(some_tokens(3, 300));
  refresh(1);
  rig.run_all();
  EXPECT_EQ(of_type<Select>(rig.log).at(0).tokens, 63);
  ASSERT_THAT(draft.ready, SizeIs(1));
  EXPECT_EQ(draft.ready.front().covered_tokens, 63);
}

TEST_F(ScoreCoreTest, ARefreshOfTheTokensBeforeTheNewestUsesTheQueriesItHas) {
  open(50);
  rig.run_all();
  install();
  commit(some_tokens(8, 100));
  rig.run_all();
  rig.log.clear();
  rig.send(draft, transport::RefreshRequest{draft.id, Epoch{1}, 57});
  rig.run_all();
  EXPECT_THAT(of_type<Ingest>(rig.log), IsEmpty());
  EXPECT_EQ(of_type<Select>(rig.log).at(0).tokens, 57);
}

TEST_F(ScoreCoreTest, ARefreshOfLongAgoComputesItsWindowAgain) {
  open(50);
  rig.run_all();
  install();
  commit(some_tokens(20, 100));
  rig.run_all();
  rig.log.clear();
  rig.send(draft, transport::RefreshRequest{draft.id, Epoch{1}, 52});
  rig.run_all();
  ASSERT_THAT(of_type<Ingest>(rig.log), ::testing::Not(IsEmpty()));
  EXPECT_EQ(of_type<Ingest>(rig.log)[0].start, 44);
  EXPECT_EQ(of_type<Select>(rig.log).at(0).tokens, 52);
}

TEST_F(ScoreCoreTest, ReplacedTokensAreComputedAndSentAgain) {
  open(50);
  rig.run_all();
  install();
  // Token 20 becomes another: everything from there on is new.
  std::vector<TokenId> other = some_tokens(40, 500);
  rig.send(draft, transport::Commit{draft.id, 20, other});
  draft.tokens.resize(20);
  draft.tokens.insert(draft.tokens.end(), other.begin(), other.end());
  refresh(1);
  rig.run_all();
  while (!draft.ready.empty()) {
    install();
    rig.run_all();
  }
  draft.check_contents();
}

TEST_F(ScoreCoreTest, TokensThatAreTheSameAgainChangeNothing) {
  open(50);
  rig.run_all();
  install();
  rig.log.clear();
  const std::vector<TokenId> same(draft.tokens.begin() + 30, draft.tokens.end());
  rig.send(draft, transport::Commit{draft.id, 30, same});
  rig.run_all();
  EXPECT_THAT(rig.log, IsEmpty());
}

TEST_F(ScoreCoreTest, ANewRequestWaitsAndTheLatestWins) {
  open(50);
  rig.run_all();
  install();
  refresh(1);
  commit(some_tokens(4, 100));
  refresh(2);
  commit(some_tokens(4, 200));
  refresh(3);
  rig.run_all();
  while (!draft.ready.empty()) {
    install();
    rig.run_all();
  }
  std::vector<std::uint32_t> epochs;
  for (const transport::RefreshReady& ready : draft.history) {
    epochs.push_back(static_cast<std::uint32_t>(ready.epoch));
  }
  EXPECT_EQ(std::count(epochs.begin(), epochs.end(), 2), 0);
  EXPECT_EQ(epochs.back(), 3U);
  EXPECT_EQ(draft.history.back().covered_tokens, 58);
}

TEST_F(ScoreCoreTest, BadMessagesEndTheSessionAndSayWhy) {
  const auto message_after = [&](const transport::Message& message) {
    draft.refused.clear();
    open(50);
    rig.run_all();
    draft.ready.clear();
    rig.send(draft, message);
    rig.run_all();
    EXPECT_TRUE(draft.refused.empty() || rig.core.idle());
    return refusal();
  };
  const SessionId id = draft.id;
  EXPECT_THAT(message_after(transport::Commit{id, 51, {1}}), HasSubstr("the history has 50"));
  EXPECT_THAT(message_after(transport::Commit{id, -1, {1}}), HasSubstr("token -1"));
  EXPECT_THAT(message_after(transport::Commit{id, 50, {kVocab}}), HasSubstr("vocabulary"));
  EXPECT_THAT(message_after(transport::Commit{id, 50, some_tokens(351)}), HasSubstr("ends at"));
  EXPECT_THAT(message_after(transport::RefreshRequest{id, Epoch{1}, 51}), HasSubstr("has 50"));
  EXPECT_THAT(message_after(transport::RefreshRequest{id, Epoch{0}, 50}), HasSubstr("epoch 0"));
  EXPECT_THAT(message_after(transport::Installed{id, Epoch{0}, 1}), HasSubstr("before it was"));
  EXPECT_THAT(message_after(transport::Installed{id, Epoch{9}, 0}), HasSubstr("newest asked"));
  EXPECT_THAT(message_after(transport::Verdict{id, 0, 0, 0, 0, 0}), HasSubstr("does not take"));
}

TEST_F(ScoreCoreTest, BadOpeningsAreRefused) {
  const auto message_of = [&](auto change) {
    draft.refused.clear();
    draft.tokens = some_tokens(20);
    transport::ScoreOpen open = draft.open_message();
    change(open);
    rig.send(draft, open);
    EXPECT_TRUE(rig.core.idle());
    EXPECT_THAT(rig.jobs, IsEmpty());
    return refusal();
  };
  using Open = transport::ScoreOpen;
  EXPECT_THAT(message_of([](Open& o) { o.tokens.clear(); }), HasSubstr("at least one token"));
  EXPECT_THAT(message_of([](Open& o) { o.tokens[3] = -5; }), HasSubstr("token -5"));
  EXPECT_THAT(message_of([](Open& o) { o.max_context = 19; }), HasSubstr("20 tokens"));
  EXPECT_THAT(message_of([](Open& o) { o.policy.budget = 0; }), HasSubstr("budget is 0"));
  EXPECT_THAT(message_of([](Open& o) { o.layout.geometry.layers = 3; }), HasSubstr("3 layers"));
  EXPECT_THAT(message_of([](Open& o) { o.layout.slots_per_head = 4; }), HasSubstr("4 slots"));
  EXPECT_THAT(message_of([](Open& o) { o.layout.ring_capacity = 0; }), HasSubstr("ring of 0"));
  EXPECT_THAT(message_of([](Open& o) { o.layout.staging_slots = 0; }), HasSubstr("staging"));
  EXPECT_THAT(message_of([](Open& o) { o.layout.staging_slots = 1 << 30; }), HasSubstr("slots of"));
  EXPECT_THAT(message_of([](Open& o) { o.arena_offset = ~std::uint64_t{0}; }), HasSubstr("arena"));
}

TEST_F(ScoreCoreTest, EngineAndLinkErrorsEndTheSession) {
  open(50);
  const Action job = rig.jobs.front();
  rig.jobs.clear();
  rig.event(HistoryOpened{
      std::get<OpenHistory>(job).session, 0, fail(Errc::kResourceExhausted, "no room")});
  EXPECT_EQ(refusal(), "no room");
  rig.run_all();
  EXPECT_TRUE(rig.core.idle());

  open(50);
  while (rig.puts.empty()) {
    ASSERT_TRUE(rig.run_compute());
  }
  const std::uint32_t chunk = rig.puts.front().chunk;
  rig.puts.pop_front();
  rig.event(PutDone{chunk, fail(Errc::kOutOfRange, "past the region")});
  EXPECT_EQ(refusal(), "past the region");
  rig.run_all();
  EXPECT_TRUE(rig.core.idle());
}

TEST_F(ScoreCoreTest, ADroppedSessionsWritesEndBeforeThePeerGetsNewOnes) {
  open(50);
  while (rig.puts.empty()) {
    ASSERT_TRUE(rig.run_compute());
  }
  rig.send(draft, transport::CloseSession{draft.id});
  open(60);
  while (rig.run_compute()) {
  }
  EXPECT_THAT(rig.puts, SizeIs(1)) << "only the old session's write";
  EXPECT_THAT(draft.ready, IsEmpty());
  rig.run_all();
  ASSERT_THAT(draft.ready, SizeIs(1));
  EXPECT_EQ(draft.ready.front().covered_tokens, 60);
  install();
  draft.check_contents();
}

TEST_F(ScoreCoreTest, ARefusalIsSentAfterTheLastWriteEnded) {
  open(50);
  while (rig.puts.empty()) {
    ASSERT_TRUE(rig.run_compute());
  }
  rig.send(draft, transport::Commit{draft.id, 99, {1}});
  while (rig.run_compute()) {
  }
  EXPECT_THAT(draft.refused, IsEmpty()) << "a write is still under way";
  rig.run_all();
  ASSERT_THAT(draft.refused, SizeIs(1));
  EXPECT_EQ(draft.refused[0].code, Errc::kMismatch);
}

TEST_F(ScoreCoreTest, AnOpeningTakesBackWhatWasToBeSaidAboutTheLastOne) {
  open(50);
  while (rig.puts.empty()) {
    ASSERT_TRUE(rig.run_compute());
  }
  rig.send(draft, transport::CloseSession{draft.id});
  open(60);
  rig.run_all();
  EXPECT_THAT(draft.refused, IsEmpty()) << "would be taken for the new opening's";
  EXPECT_THAT(draft.ready, SizeIs(1));
}

TEST_F(ScoreCoreTest, AnswersAClosingOnlyAfterTheSessionsWritesHaveEnded) {
  open(50);
  rig.run_all();
  rig.send(draft, transport::CloseSession{draft.id});
  ASSERT_THAT(draft.refused, SizeIs(1)) << "nothing was under way";
  EXPECT_EQ(draft.refused[0].code, Errc::kCancelled);

  open(60);
  while (rig.puts.empty()) {
    ASSERT_TRUE(rig.run_compute());
  }
  rig.send(draft, transport::CloseSession{draft.id});
  while (rig.run_compute()) {
  }
  EXPECT_THAT(draft.refused, SizeIs(1)) << "a write is under way";
  rig.run_all();
  EXPECT_THAT(draft.refused, SizeIs(2));
}

TEST_F(ScoreCoreTest, ALostDraftFreesEverythingAtEveryStep) {
  for (int steps = 0; steps < 40; ++steps) {
    CoreRig other(small_options(), 3);
    FakeDraft peer(SessionId{9}, small_policy(), 400);
    other.draft = &peer;
    peer.tokens = some_tokens(50);
    other.send(peer, peer.open_message());
    for (int i = 0; i < steps && (other.run_compute() || other.run_put()); ++i) {
    }
    other.lose(kPeer);
    EXPECT_EQ(other.core.sessions(), 0U);
    other.run_all();
    EXPECT_TRUE(other.core.idle()) << "after " << steps << " steps";
    EXPECT_THAT(of_type<ReleaseHistory>(other.log), SizeIs(1));
  }
}

TEST_F(ScoreCoreTest, AClosedSessionLeavesItsTokensToTheCache) {
  open(50);
  rig.run_all();
  rig.send(draft, transport::CloseSession{draft.id});
  const std::vector<ReleaseHistory> released = of_type<ReleaseHistory>(rig.log);
  ASSERT_THAT(released, SizeIs(1));
  EXPECT_EQ(released[0].tokens, some_tokens(50));
}

TEST_F(ScoreCoreTest, SessionsOfDifferentPeersDoNotMeet) {
  open(50);
  rig.run_all();
  rig.event(PeerMessage{PeerId{8}, transport::CloseSession{draft.id}});
  EXPECT_EQ(rig.core.sessions(), 1U);
  rig.lose(PeerId{8});
  EXPECT_EQ(rig.core.sessions(), 1U);
}

TEST_F(ScoreCoreTest, StagesAreTimed) {
  open(50);
  rig.run_all();
  const transport::RefreshReady& ready = draft.history.front();
  EXPECT_GT(ready.ingest_ns, 0U);
  EXPECT_GT(ready.score_ns, 0U);
  EXPECT_GT(ready.pack_ns, 0U);
  EXPECT_GT(ready.write_ns, 0U);
  EXPECT_EQ(ready.history_bytes, 64U);
}

TEST_F(ScoreCoreTest, AHistoryThatHadToBeginAgainIsIngestedFromItsStart) {
  open(100);
  rig.run_all();
  rig.send(draft, draft.install());
  rig.cut_limit = 60;
  draft.tokens.resize(50);
  for (const TokenId token : some_tokens(40, 500)) {
    draft.tokens.push_back(token);
  }
  rig.send(draft, transport::Commit{draft.id, 50, {draft.tokens.begin() + 50, draft.tokens.end()}});
  rig.send(draft, transport::RefreshRequest{draft.id, Epoch{1}, 90});
  rig.run_all();
  ASSERT_THAT(draft.refused, IsEmpty());
  while (!draft.ready.empty()) {
    rig.send(draft, draft.install());
    rig.run_all();
  }
  EXPECT_EQ(draft.history.back().covered_tokens, 90);
  draft.check_contents();
}

TEST_F(ScoreCoreTest, StreamingSetsGetTheirSinksAndTheirRing) {
  for (const std::int32_t tokens : {1, 3, 4, 7, 30, 63, 64, 65}) {
    SCOPED_TRACE(tokens);
    PolicySpec spec = small_policy();
    spec.policy = Policy::kStreamingLlm;
    CoreRig own(small_options(), 1);
    FakeDraft streaming(SessionId{6}, spec, 400);
    own.draft = &streaming;
    streaming.tokens = some_tokens(tokens);
    own.send(streaming, streaming.open_message());
    own.run_all();
    ASSERT_EQ(streaming.ready.size(), 1U);
    const transport::RefreshReady& ready = streaming.ready.front();
    EXPECT_TRUE(ready.last_wave);
    EXPECT_THAT(ready.updates, IsEmpty());
    EXPECT_EQ(ready.ring_begin, std::max(0, tokens - 20));
    const WorkingSetLayout& layout = streaming.layout;
    for (std::int32_t p = 0; p < std::min(4, tokens); ++p) {
      const std::vector<float> want =
          fake_vector({1, 1, true}, p, streaming.tokens[static_cast<std::size_t>(p)]);
      const std::uint64_t at = streaming.arena_offset + layout.value_sink_offset(1, 1) +
                               static_cast<std::uint64_t>(p) * kGeometry.vector_bytes();
      EXPECT_EQ(std::memcmp(streaming.arena.data() + at, want.data(), kGeometry.vector_bytes()), 0)
          << "sink " << p;
    }
    for (std::int32_t p = ready.ring_begin; p < tokens; ++p) {
      const std::vector<float> want =
          fake_vector({0, 1, false}, p, streaming.tokens[static_cast<std::size_t>(p)]);
      const std::uint64_t at =
          streaming.arena_offset + layout.key_ring_offset(0, 1) +
          static_cast<std::uint64_t>(p % layout.ring_capacity) * kGeometry.vector_bytes();
      EXPECT_EQ(std::memcmp(streaming.arena.data() + at, want.data(), kGeometry.vector_bytes()), 0)
          << "ring position " << p;
    }
  }
}

TEST_F(ScoreCoreTest, RefusesATableThatIsNotTheAllocations) {
  draft.tokens = some_tokens(30);
  transport::ScoreOpen open = draft.open_message();
  open.layout.extra_entries = 1;
  rig.send(draft, open);
  open.layout = draft.layout;
  open.layout.layer_slots = {5, 1};
  rig.send(draft, open);
  open.layout = draft.layout;
  open.layout.sinks = 4;
  rig.send(draft, open);
  ASSERT_THAT(draft.refused, SizeIs(3));
  for (const auto& refused : draft.refused) {
    EXPECT_EQ(refused.code, Errc::kMismatch);
    EXPECT_THAT(refused.message, HasSubstr("does not fit policy rift-dyn"));
  }
}

}  // namespace
}  // namespace rift::score_node
