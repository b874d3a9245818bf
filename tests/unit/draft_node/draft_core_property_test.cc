// SPDX-License-Identifier: Apache-2.0
// Random verdicts, refreshes, losses and returns of the score node against an independent account
// of what each working set holds.
#include "tests/unit/draft_node/core_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace rift::draft_node {
namespace {

/// What the engine's ring would hold, token by token; checks each job as it comes.
struct RingModel {
  std::vector<TokenId> tokens;  // by position; -1: never written
  Position end = 0;
  Position begin = 0;
  Position highest = 0;
  std::int32_t capacity = 0;
  std::int32_t recent = 0;
};

class CoreProperty : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    random_.seed(static_cast<std::uint32_t>(GetParam()) * 7919U + 1U);
    if (pick(2) == 0) {
      world_.send(ScoreUp{"inproc"});
      score_up_ = true;
    }
    auto open = CoreWorld::open_message(40 + pick(80));
    truth_.assign(open.tokens.begin(), open.tokens.end());
    world_.target(open);
  }

  int pick(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }

  void drain() {
    while (!world_.actions.empty()) {
      Action action = std::move(world_.actions.front());
      world_.actions.erase(world_.actions.begin());
      std::visit([this](auto& a) { on(a); }, action);
    }
  }

  void on(OpenWorkingSet& open) {
    RingModel ring;
    ring.capacity = open.layout.ring_capacity;
    ring.recent = open.recent;
    ring.tokens.resize(4000, -1);
    ASSERT_TRUE(rings_.emplace(open.id, ring).second);
  }
  void on(DropWorkingSet& drop) {
    ASSERT_EQ(rings_.erase(drop.id), 1U);
    drops_.push_back(drop.id);
  }
  void on(PrefillJob& job) {
    RingModel& ring = rings_.at(job.id);
    ring.begin = job.start;
    ring.end = job.start;
    for (const TokenId token : job.tokens) {
      write(ring, token);
    }
    prefills_.push_back(job.id);
  }
  void on(DraftJob& job) {
    ASSERT_FALSE(job_) << "two rounds at once";
    RingModel& ring = rings_.at(job.id);
    if (job.ring) {
      ring.begin = job.ring->first;
      ring.end = job.ring->second;
      for (Position p = ring.begin; p < ring.end; ++p) {
        ring.tokens[static_cast<std::size_t>(p)] = truth_.at(static_cast<std::size_t>(p));
      }
    }
    ASSERT_LE(job.first, ring.end) << "a hole in the ring";
    ASSERT_GE(job.first, ring.begin);
    // What the next query needs has not been overwritten by drafts that were taken back.
    ASSERT_LE(ring.highest - ring.capacity, job.first - ring.recent);
    ring.end = job.first;
    for (const TokenId token : job.tokens) {
      write(ring, token);
    }
    // Everything cached is the sequence that the target committed, up to its last token.
    ASSERT_EQ(ring.end, static_cast<Position>(truth_.size()));
    for (Position p = ring.begin; p < ring.end; ++p) {
      ASSERT_EQ(ring.tokens[static_cast<std::size_t>(p)], truth_[static_cast<std::size_t>(p)]) << p;
    }
    job_ = std::move(job);
  }
  void on(SendTarget& send) {
    if (auto* proposal = std::get_if<transport::Proposal>(&send.message)) {
      ASSERT_TRUE(waiting_);
      ASSERT_EQ(proposal->round, world_.round);
      proposed_ = proposal->tokens;
      waiting_ = false;
    }
    ready_ = ready_ || std::holds_alternative<transport::SessionReady>(send.message);
    ASSERT_FALSE(std::holds_alternative<transport::SessionRefused>(send.message));
  }
  void on(SendScore& send) {
    ASSERT_TRUE(score_up_);
    if (auto* open = std::get_if<transport::ScoreOpen>(&send.message)) {
      ASSERT_TRUE(std::equal(open->tokens.begin(), open->tokens.end(), truth_.begin()));
      history_ = open->tokens.size();
      opened_ = *open;
      slots_ = {0, 1, 2, 3, 4, 5, 6, 7};
    } else if (auto* commit = std::get_if<transport::Commit>(&send.message)) {
      ASSERT_EQ(static_cast<std::size_t>(commit->start), history_);
      for (const TokenId token : commit->tokens) {
        ASSERT_EQ(token, truth_.at(history_++));
      }
    } else if (auto* request = std::get_if<transport::RefreshRequest>(&send.message)) {
      ASSERT_FALSE(request_) << "two refreshes at once";
      ASSERT_LE(static_cast<std::size_t>(request->tokens), history_);
      request_ = *request;
    }
  }
  void on(Note&) {}
  void on(StrideEnded&) {}
  void on(RefreshSwapped& swap) {
    ++swaps_;
    ASSERT_GE(swap.record.stale_tokens, 0);
  }

  static void write(RingModel& ring, TokenId token) {
    ring.tokens[static_cast<std::size_t>(ring.end++)] = token;
    ring.begin = std::max(ring.begin, ring.end - ring.capacity);
    ring.highest = std::max(ring.highest, ring.end);
  }

  void finish_work() {
    if (!prefills_.empty()) {
      const WorkingSetId id = prefills_.front();
      prefills_.erase(prefills_.begin());
      world_.send(PrefillDone{id, {}});
    } else if (!drops_.empty() && pick(2) == 0) {
      const WorkingSetId id = drops_.front();
      drops_.erase(drops_.begin());
      world_.send(WorkingSetDropped{id});
    } else if (job_) {
      DraftDone done;
      done.id = job_->id;
      RingModel* ring = rings_.contains(done.id) ? &rings_.at(done.id) : nullptr;
      for (std::int32_t i = 0; i < job_->draft_len; ++i) {
        done.tokens.push_back(pick(1000));
        if (ring != nullptr && i + 1 < job_->draft_len) {
          write(*ring, done.tokens.back());
        }
      }
      job_.reset();
      world_.send(done);
    }
  }
  void verdict() {
    if (waiting_ && pick(10) != 0) {
      return;  // mostly the target waits for the proposal
    }
    if (truth_.size() > 1900) {
      return;
    }
    const auto accepted =
        waiting_ ? 0U : static_cast<std::size_t>(pick(static_cast<int>(proposed_.size()) + 1));
    truth_.insert(
        truth_.end(), proposed_.begin(), proposed_.begin() + static_cast<std::ptrdiff_t>(accepted));
    truth_.push_back(pick(1000));
    proposed_.clear();
    const int draft_len = pick(5);
    waiting_ = draft_len > 0;
    world_.target(transport::Verdict{kSession,
                                     ++world_.round,
                                     static_cast<std::int32_t>(accepted),
                                     truth_.back(),
                                     static_cast<std::int32_t>(truth_.size()),
                                     draft_len});
  }
  void answer_score() {
    if (opened_) {
      const auto ready = world_.first_set(*opened_);
      opened_.reset();
      world_.score(ready);
    } else if (request_) {
      // Slot 0 .. 7 are the table's, 8 .. 11 free; entry 1 of layer 0, head 0 moves through them.
      std::uint32_t slot = 0;
      while (std::find(slots_.begin(), slots_.end(), slot) != slots_.end()) {
        ++slot;
      }
      slots_[1] = slot;
      const auto limit = static_cast<std::uint32_t>(request_->tokens - 32) / 16;
      const auto request = *std::exchange(request_, std::nullopt);
      const std::uint32_t block =
          limit < 2 ? 1 : 1 + static_cast<std::uint32_t>(pick(static_cast<int>(limit) - 1));
      world_.score(CoreWorld::wave(request, slot, block));
    }
  }
  void flip_score() {
    score_up_ = !score_up_;
    opened_.reset();
    request_.reset();
    if (score_up_) {
      world_.send(ScoreUp{"inproc"});
    } else {
      world_.send(ScoreLost{"gone"});
    }
  }

  CoreWorld world_;
  std::mt19937 random_;
  std::vector<TokenId> truth_;
  std::map<WorkingSetId, RingModel> rings_;
  std::vector<WorkingSetId> prefills_;
  std::vector<WorkingSetId> drops_;
  std::optional<DraftJob> job_;
  std::vector<TokenId> proposed_;
  bool waiting_ = false;
  bool ready_ = false;
  bool score_up_ = false;
  std::size_t history_ = 0;
  std::optional<transport::ScoreOpen> opened_;
  std::optional<transport::RefreshRequest> request_;
  std::vector<std::uint32_t> slots_;
  int swaps_ = 0;
};

TEST_P(CoreProperty, EveryRoundContinuesTheCommittedSequence) {
  drain();
  for (int step = 0; step < 1500 && !HasFatalFailure(); ++step) {
    switch (pick(8)) {
      case 0:
      case 1:
      case 2:
        finish_work();
        break;
      case 3:
      case 4:
        verdict();
        break;
      case 5:
      case 6:
        answer_score();
        break;
      case 7:
        if (pick(12) == 0) {
          flip_score();
        } else {
          world_.pass(std::chrono::milliseconds(100));
        }
        break;
    }
    drain();
  }
  EXPECT_TRUE(ready_);
  EXPECT_GT(truth_.size(), 200U);
  EXPECT_GT(swaps_, 3);
  world_.target(transport::CloseSession{kSession});
  drain();
  for (const WorkingSetId id : drops_) {
    world_.send(WorkingSetDropped{id});
  }
  if (score_up_) {
    world_.score(transport::SessionRefused{kSession, Errc::kCancelled, "closed"});
  }
  EXPECT_EQ(world_.core.arena().used_bytes(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CoreProperty, ::testing::Range(0, 24));

}  // namespace
}  // namespace rift::draft_node
