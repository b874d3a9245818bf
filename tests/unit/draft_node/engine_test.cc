// SPDX-License-Identifier: Apache-2.0
// The engine on a golden checkpoint: with a budget that holds everything, drafts are the
// reference's greedy continuation.
#include "draft_node/engine.h"

#include "policy/budget.h"
#include "tests/golden/golden_data.h"
#include "tests/unit/model/count_allocations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

namespace rift::draft_node {
namespace {

using ::testing::ElementsAreArray;

constexpr std::int32_t kMaxContext = 160;
constexpr std::int32_t kDraftLen = 16;

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : pool_(1), engine_(model::load_weights(folder()), options(), pool_) {
    const auto golden = testing::golden_tensors(folder() / "golden.safetensors");
    prompt_ = golden.at("input_ids").ints;
    expected_ = golden.at("decode_ids").ints;
    arena_.resize(8U << 20U);
    engine_.set_arena(arena_);
  }

  static std::filesystem::path folder() { return testing::golden_path("models/qwen2"); }
  static EngineOptions options() {
    EngineOptions o;
    o.max_batch = 32;
    o.kv_dtype = DType::kF32;
    o.mode = kernels::MatmulMode::kExact;
    o.max_logit_rows = kDraftLen;
    return o;
  }

  OpenWorkingSet open(std::uint64_t id, const PolicySpec& spec, std::uint64_t offset = 0) {
    OpenWorkingSet job;
    job.id = WorkingSetId{id};
    job.layout = policy::plan_layout(spec, engine_.geometry(), kMaxContext, kDraftLen);
    job.recent = policy::plan_budget(spec, kMaxContext).recent;
    job.offset = offset;
    job.top_n = 8;
    job.max_tokens = kMaxContext + kDraftLen;
    job.history.assign(prompt_.begin(), prompt_.end() - 1);
    job.sampling = sampling_;
    job.signals = spec.policy == Policy::kRiftAda;
    engine_.run(job);
    return job;
  }
  PrefillDone prefill(WorkingSetId id, Position start, Position end) {
    PrefillJob job;
    job.id = id;
    job.start = start;
    job.tokens.assign(prompt_.begin() + start, prompt_.begin() + end);
    return engine_.run(job);
  }
  /// The prompt's last token is the first query.
  DraftJob first_draft(WorkingSetId id) {
    DraftJob job;
    job.id = id;
    job.first = static_cast<Position>(prompt_.size()) - 1;
    job.tokens = {prompt_.back()};
    job.draft_len = kDraftLen;
    return job;
  }

  ThreadPool pool_;
  Engine engine_;
  std::vector<std::byte> arena_;
  std::vector<TokenId> prompt_;
  std::vector<TokenId> expected_;
  SamplingParams sampling_;
};

PolicySpec full() {
  PolicySpec spec;
  spec.policy = Policy::kFull;
  return spec;
}

TEST_F(EngineTest, DraftsTheGoldenGreedyContinuationWithFullKv) {
  const OpenWorkingSet job = open(1, full());
  ASSERT_FALSE(prefill(job.id, 0, 95).error);
  const DraftDone done = engine_.run(first_draft(job.id));
  EXPECT_THAT(done.tokens, ElementsAreArray(expected_));
  EXPECT_EQ(done.steps, 16U);
  EXPECT_GT(done.step_ns, 0U);
  EXPECT_TRUE(done.q.empty());
}

TEST_F(EngineTest, ContinuesTheGoldenDecodeOverRollbacks) {
  const OpenWorkingSet job = open(1, full());
  ASSERT_FALSE(prefill(job.id, 0, 95).error);
  // Rounds of 4 drafts; 0, 1, ... 4 of them are committed, then a token of the target.
  std::vector<TokenId> sequence = prompt_;
  Position cached = 95;
  for (std::int32_t accepted = 0; accepted <= 4; ++accepted) {
    DraftJob draft;
    draft.id = job.id;
    draft.first = cached;
    draft.tokens.assign(sequence.begin() + cached, sequence.end());
    draft.draft_len = 4;
    const DraftDone done = engine_.run(draft);
    const std::size_t at = sequence.size() - prompt_.size();
    for (std::size_t i = 0; i < 4 && at + i < expected_.size(); ++i) {
      EXPECT_EQ(done.tokens.at(i), expected_[at + i]) << accepted << " " << i;
    }
    cached = static_cast<Position>(sequence.size()) + std::min(accepted, 3);
    for (std::int32_t i = 0; i <= accepted && sequence.size() - prompt_.size() < expected_.size();
         ++i) {
      sequence.push_back(expected_[sequence.size() - prompt_.size()]);
    }
  }
}

TEST_F(EngineTest, DraftsTheSameFromBlocksAndRingThatHoldEverything) {
  const OpenWorkingSet source = open(1, full());
  ASSERT_FALSE(prefill(source.id, 0, 95).error);
  PolicySpec spec;
  spec.budget = 16 + 80;
  spec.rho = 16.0F / 96.0F;  // r = 16, five slots of 16
  const OpenWorkingSet target = open(2, spec, 4U << 20U);
  ASSERT_EQ(target.recent, 16);
  ASSERT_EQ(target.layout.slots_per_head, 5);
  // What a score node would write: blocks of [0, 79) and the ring [79, 95).
  DraftJob draft = first_draft(target.id);
  draft.ring = {79, 95};
  draft.waves.push_back({{}, 95});
  const std::size_t vector = engine_.geometry().vector_bytes();
  const auto copy = [&](std::uint64_t from, std::uint64_t to) {
    std::memcpy(arena_.data() + target.offset + to, arena_.data() + source.offset + from, vector);
  };
  std::uint32_t slot = target.layout.slot_count();
  for (std::int32_t layer = 0; layer < 3; ++layer) {
    for (std::int32_t head = 0; head < 2; ++head) {
      const std::uint64_t keys = source.layout.key_ring_offset(layer, head);
      const std::uint64_t values = source.layout.value_ring_offset(layer, head);
      for (std::uint32_t block = 0; block < 5; ++block) {
        --slot;
        const auto count = static_cast<std::uint16_t>(block == 4 ? 15 : 16);
        draft.waves[0].updates.push_back({static_cast<std::uint16_t>(layer),
                                          static_cast<std::uint16_t>(head),
                                          4 - block,
                                          slot,
                                          block,
                                          count});
        for (std::uint32_t i = 0; i < count; ++i) {
          const std::uint64_t at = target.layout.slot_offset(slot) + i * vector;
          copy(keys + (block * 16 + i) * vector, at);
          copy(values + (block * 16 + i) * vector, at + 16 * vector);
        }
      }
      for (Position p = 79; p < 95; ++p) {
        const auto to = static_cast<std::uint64_t>(p % target.layout.ring_capacity) * vector;
        const auto from = static_cast<std::uint64_t>(p) * vector;
        copy(keys + from, target.layout.key_ring_offset(layer, head) + to);
        copy(values + from, target.layout.value_ring_offset(layer, head) + to);
      }
    }
  }
  // One token only: with the next one the oldest ring position would drop out.
  draft.draft_len = 1;
  EXPECT_EQ(engine_.run(draft).tokens.at(0), expected_[0]);
  EXPECT_EQ(engine_.working_set(target.id).peak_cached(), 95);
}

TEST_F(EngineTest, AStepAllocatesNothing) {
  const OpenWorkingSet job = open(1, full());
  ASSERT_FALSE(prefill(job.id, 0, 95).error);
  const auto allocations_of = [&](std::int32_t draft_len) {
    DraftJob draft = first_draft(job.id);
    draft.draft_len = draft_len;
    const std::int64_t before = model::allocations();
    const DraftDone done = engine_.run(draft);
    const std::int64_t after = model::allocations();
    EXPECT_EQ(done.steps, static_cast<std::uint64_t>(draft_len));
    return after - before;
  };
  (void)allocations_of(kDraftLen);
  // A job has its answer to allocate, whose tokens are one vector; its steps nothing.
  EXPECT_EQ(allocations_of(kDraftLen), allocations_of(1));
  EXPECT_LE(allocations_of(1), 1);
}

TEST_F(EngineTest, DraftsWithinItsBudgetAtAnyBudget) {
  for (const std::int32_t budget : {1, 2, 17, 64}) {
    PolicySpec spec;
    spec.policy = Policy::kSwa;
    spec.budget = budget;
    const OpenWorkingSet job = open(static_cast<std::uint64_t>(budget), spec);
    ASSERT_FALSE(prefill(job.id, 95 - budget, 95).error);
    EXPECT_EQ(engine_.run(first_draft(job.id)).tokens.size(), 16U);
    EXPECT_EQ(engine_.working_set(job.id).peak_cached(), budget);
    engine_.run(DropWorkingSet{job.id});
  }
}

TEST_F(EngineTest, AKnownContinuationGivesTheDraftsAndSignalsOfSingleSteps) {
  // The continuation that is committed: the model's own, with other tokens in between.
  std::vector<TokenId> sequence = prompt_;
  sequence.insert(sequence.end(), expected_.begin(), expected_.end());
  for (const std::size_t i : {3U, 4U, 11U}) {
    sequence[prompt_.size() + i] = (sequence[prompt_.size() + i] + 1) % 200;
  }
  for (const std::int32_t budget : {1, 9, 40, 200}) {
    PolicySpec spec;
    spec.policy = Policy::kRiftAda;
    spec.budget = budget;
    spec.rho = 1.0F;
    const OpenWorkingSet stepped = open(1, spec);
    const OpenWorkingSet known = open(2, spec, 4U << 20U);
    const Position start = std::max(0, 95 - budget);
    ASSERT_FALSE(prefill(stepped.id, start, 95).error);
    ASSERT_FALSE(prefill(known.id, start, 95).error);
    DraftJob job;
    job.first = 95;
    for (std::size_t committed = prompt_.size(), round = 0; committed < sequence.size(); ++round) {
      job.tokens.assign(sequence.begin() + job.first,
                        sequence.begin() + static_cast<std::ptrdiff_t>(committed));
      job.draft_len = 5;
      job.end_stride = round == 1 || round == 3;
      job.refreshed = round == 3;
      job.id = stepped.id;
      const DraftDone a = engine_.run(job);
      job.id = known.id;
      const DraftDone b = engine_.run_known(job, std::span(sequence).subspan(committed));
      ASSERT_FALSE(a.error || b.error);
      std::size_t accepted = 0;
      while (accepted < 5 && committed + accepted < sequence.size() &&
             a.tokens[accepted] == sequence[committed + accepted]) {
        ++accepted;
      }
      const std::size_t counts =
          std::min({accepted + 1, std::size_t{5}, sequence.size() - committed});
      ASSERT_EQ(b.tokens.size(), 5U);
      ASSERT_EQ(b.entropy.size(), counts);
      ASSERT_EQ(b.drift.size(), counts);
      for (std::size_t i = 0; i < counts; ++i) {
        EXPECT_EQ(a.tokens[i], b.tokens[i]) << budget << " " << round << " " << i;
        EXPECT_EQ(a.entropy[i], b.entropy[i]) << budget << " " << round << " " << i;
        EXPECT_EQ(a.drift[i], b.drift[i]) << budget << " " << round << " " << i;
        EXPECT_GT(a.entropy[i], 0.0F);
      }
      EXPECT_EQ(a.drift[0] > 0.0F, round >= 1) << round;  // a reference from the first stride on
      job.first = static_cast<Position>(committed + std::min(accepted, std::size_t{4}));
      committed += accepted + 1;
    }
    engine_.run(DropWorkingSet{stepped.id});
    engine_.run(DropWorkingSet{known.id});
  }
}

TEST_F(EngineTest, SampledDraftsComeFromTheDistributionThatIsSent) {
  sampling_.temperature = 1.0F;
  std::map<TokenId, int> counts;
  transport::SparseDistribution q;
  constexpr int kDraws = 300;
  for (int seed = 0; seed < kDraws; ++seed) {
    sampling_.seed = static_cast<std::uint64_t>(seed);
    const OpenWorkingSet job = open(1, full());
    ASSERT_FALSE(prefill(job.id, 94, 95).error);
    DraftJob draft = first_draft(job.id);
    draft.draft_len = 1;
    const DraftDone done = engine_.run(draft);
    ASSERT_EQ(done.q.size(), 1U);
    q = done.q[0];
    ++counts[done.tokens.at(0)];
    engine_.run(DropWorkingSet{job.id});
  }
  ASSERT_LE(q.ids.size(), 8U);
  EXPECT_NEAR(std::accumulate(q.probabilities.begin(), q.probabilities.end(), 0.0F), 1, 1e-5);
  double chi_square = 0;
  int seen = 0;
  for (std::size_t i = 0; i < q.ids.size(); ++i) {
    const double expected = kDraws * static_cast<double>(q.probabilities[i]);
    chi_square += (counts[q.ids[i]] - expected) * (counts[q.ids[i]] - expected) / expected;
    seen += counts[q.ids[i]];
  }
  EXPECT_EQ(seen, kDraws);       // never a token outside q
  EXPECT_LT(chi_square, 24.32);  // 7 degrees of freedom, 0.1 %; the seeds are fixed
}

TEST_F(EngineTest, PenaltiesSeeCommittedTokensAndOwnDrafts) {
  sampling_.repeat_penalty = 1e6F;
  sampling_.penalty_window = -1;
  const OpenWorkingSet job = open(1, full());
  ASSERT_FALSE(prefill(job.id, 0, 95).error);
  std::vector<TokenId> tokens = engine_.run(first_draft(job.id)).tokens;
  for (const TokenId token : tokens) {
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), token), 1);
    EXPECT_EQ(std::count(prompt_.begin(), prompt_.end(), token), 0);
  }
}

}  // namespace
}  // namespace rift::draft_node
