// SPDX-License-Identifier: Apache-2.0
#include "draft_node/working_set.h"

#include "common/f16.h"
#include "common/thread_pool.h"
#include "policy/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace rift::draft_node {
namespace {

constexpr std::int32_t kLayers = 2;
constexpr std::int32_t kKvHeads = 2;
constexpr std::int32_t kQueryHeads = 6;
constexpr std::int32_t kDim = 16;
constexpr std::int32_t kMaxContext = 400;
constexpr std::int32_t kDraftLen = 4;
constexpr float kScale = 0.25F;

/// Which keys each (layer, head) should see, written down position by position, and softmax over
/// them in double. Knows nothing of rings, slots and runs.
class Reference {
 public:
  using Vector = std::vector<float>;

  static const Vector& keys(std::int32_t layer, Position p) { return at(layer, p, 0); }
  static const Vector& values(std::int32_t layer, Position p) { return at(layer, p, 1); }

  /// out [H, D] of a query over `positions`.
  static std::vector<double> attend(std::int32_t layer,
                                    const std::vector<std::set<Position>>& positions,
                                    const float* q) {
    std::vector<double> out(kQueryHeads * kDim);
    constexpr std::int32_t kGroup = kQueryHeads / kKvHeads;
    for (std::int32_t h = 0; h < kQueryHeads; ++h) {
      const std::int32_t g = h / kGroup;
      double sum = 0;
      for (const Position p : positions[static_cast<std::size_t>(g)]) {
        const Vector& k = keys(layer, p);
        const Vector& v = values(layer, p);
        double dot = 0;
        for (std::int32_t d = 0; d < kDim; ++d) {
          dot += static_cast<double>(q[h * kDim + d]) *
                 static_cast<double>(k[static_cast<std::size_t>(g * kDim + d)]);
        }
        const double weight = std::exp(dot * static_cast<double>(kScale));
        sum += weight;
        for (std::int32_t d = 0; d < kDim; ++d) {
          out[static_cast<std::size_t>(h * kDim + d)] +=
              weight * static_cast<double>(v[static_cast<std::size_t>(g * kDim + d)]);
        }
      }
      for (std::int32_t d = 0; d < kDim; ++d) {
        out[static_cast<std::size_t>(h * kDim + d)] /= sum;
      }
    }
    return out;
  }

 private:
  // [L][position][k, v][G, D]; values that f16 holds exactly, so that storing rounds nothing.
  static const std::vector<Vector>& table() {
    static const std::vector<Vector> made = [] {
      std::mt19937 random(11);
      std::vector<Vector> vectors(kLayers * kMaxContext * 2);
      for (Vector& v : vectors) {
        v.resize(kKvHeads * kDim);
        for (float& x : v) {
          x = static_cast<float>(static_cast<std::int32_t>(random() % 1025) - 512) / 256.0F;
        }
      }
      return vectors;
    }();
    return made;
  }
  static const Vector& at(std::int32_t layer, Position p, std::int32_t kind) {
    return table().at(static_cast<std::size_t>((layer * kMaxContext + p) * 2 + kind));
  }
};

struct Case {
  std::string name;
  Policy policy;
  std::int32_t budget;
  std::int32_t block;
  float rho;
  Allocation allocation = Allocation::kUniform;
};

/// A working set with a model of what it should hold.
class Bench {
 public:
  explicit Bench(const Case& c, int threads = 1) : pool_(threads) {
    PolicySpec spec;
    spec.policy = c.policy;
    spec.budget = c.budget;
    spec.block = c.block;
    spec.rho = c.rho;
    spec.allocation = c.allocation;
    budget_ = c.budget;
    plan_ = policy::plan_budget(spec, kMaxContext);
    params_.layout =
        policy::plan_layout(spec, {kLayers, kKvHeads, kDim, DType::kF16}, kMaxContext, kDraftLen);
    params_.recent = plan_.recent;
    params_.query_heads = kQueryHeads;
    params_.attention_scale = kScale;
    params_.max_rows = 64;
    memory_.resize(params_.layout.total_bytes(), std::byte{0xFF});  // f16 NaN where not written
    set_ = std::make_unique<WorkingSet>(params_, memory_);
    table_.resize(kLayers * kKvHeads);
  }

  /// As a score node does: a random selection over [0, covered - r) into free slots.
  void install_random(std::int32_t covered, std::mt19937& random) {
    const std::int32_t limit = std::max(0, covered - plan_.recent);
    const std::int32_t block = params_.layout.block;
    const std::int32_t candidates = (limit + block - 1) / block;
    std::vector<transport::TableUpdate> wave;
    std::set<std::uint32_t> used;
    for (const auto& head : table_) {
      for (const auto& [entry, e] : head) {
        used.insert(e.slot);
      }
    }
    std::uint32_t slot = 0;
    for (std::int32_t at = 0; at < kLayers * kKvHeads; ++at) {
      auto& head = table_[static_cast<std::size_t>(at)];
      for (std::int32_t entry = 0; entry < params_.layout.entries(); ++entry) {
        while (used.contains(slot)) {
          ++slot;
        }
        if (head.contains(entry) && random() % 4 == 0) {
          const auto& old = head.at(entry);
          wave.push_back({static_cast<std::uint16_t>(at / kKvHeads),
                          static_cast<std::uint16_t>(at % kKvHeads),
                          static_cast<std::uint32_t>(entry),
                          old.slot,
                          old.block,
                          0});
          head.erase(entry);
          continue;
        }
        if (candidates == 0 || slot >= params_.layout.slot_count() || random() % 3 == 0 ||
            (!head.contains(entry) && full(at))) {
          continue;
        }
        const std::uint32_t chosen =
            static_cast<std::uint32_t>(random()) % static_cast<std::uint32_t>(candidates);
        if (std::any_of(head.begin(), head.end(), [&](const auto& e) {
              return e.second.block == chosen;
            })) {
          continue;
        }
        const auto count = static_cast<std::uint16_t>(
            std::min(block, limit - static_cast<std::int32_t>(chosen) * block));
        wave.push_back({static_cast<std::uint16_t>(at / kKvHeads),
                        static_cast<std::uint16_t>(at % kKvHeads),
                        static_cast<std::uint32_t>(entry),
                        slot,
                        chosen,
                        count});
        write_block(at / kKvHeads, at % kKvHeads, slot, chosen, count);
        head[entry] = {slot, chosen, count};
        used.insert(slot);
      }
    }
    ASSERT_TRUE(set_->install(wave, covered).ok());
  }

  /// Runs `rows` tokens from the end and compares every row of every layer.
  void step(std::int32_t rows, std::mt19937& random) {
    const Position first = set_->size();
    std::vector<Position> positions;
    for (std::int32_t t = 0; t < rows; ++t) {
      positions.push_back(first + t);
    }
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      std::vector<float> q(static_cast<std::size_t>(rows) * kQueryHeads * kDim);
      for (float& x : q) {
        x = static_cast<float>(static_cast<std::int32_t>(random() % 2001) - 1000) / 500.0F;
      }
      std::vector<float> k;
      std::vector<float> v;
      for (const Position p : positions) {
        const auto& pk = Reference::keys(layer, p);
        const auto& pv = Reference::values(layer, p);
        k.insert(k.end(), pk.begin(), pk.end());
        v.insert(v.end(), pv.begin(), pv.end());
      }
      std::vector<float> out(q.size());
      set_->attend(layer,
                   positions,
                   MatView<const float>(q.data(), rows, kQueryHeads * kDim),
                   MatView<const float>(k.data(), rows, kKvHeads * kDim),
                   MatView<const float>(v.data(), rows, kKvHeads * kDim),
                   MatView<float>(out.data(), rows, kQueryHeads * kDim),
                   pool_);
      for (std::int32_t t = 0; t < rows; ++t) {
        compare(layer,
                first + t,
                q.data() + t * kQueryHeads * kDim,
                out.data() + t * kQueryHeads * kDim);
      }
    }
    stored_end_ = first + rows;
    EXPECT_EQ(set_->size(), stored_end_);
  }

  /// As a draft node without a score node does: the sinks, then from `position` on.
  void start_at(Position position, std::mt19937& random) {
    const std::int32_t sinks = std::min(params_.layout.sinks, position);
    if (sinks > 0) {
      step(sinks, random);
    }
    set_->set_ring(position, position, sinks);
    stored_begin_ = position;
  }
  void rollback(Position position) { set_->truncate(position); }

  /// What the heads of all layers may see together never exceeds that many times the budget.
  void expect_budget() const {
    std::int64_t total = 0;
    for (std::int32_t layer = 0; layer < kLayers; ++layer) {
      total += set_->max_layer_cached(layer);
      if (params_.layout.layer_slots.empty()) {
        EXPECT_LE(set_->max_layer_cached(layer), std::int64_t{budget_} * kKvHeads);
      }
    }
    EXPECT_LE(total, std::int64_t{budget_} * kKvHeads * kLayers);
  }

  const WorkingSet& set() const { return *set_; }
  const policy::BudgetPlan& plan() const { return plan_; }
  const WorkingSetLayout& layout() const { return params_.layout; }

 private:
  /// Whether the head or its layer has all the blocks that it may have.
  [[nodiscard]] bool full(std::int32_t at) const {
    const std::int32_t layer = at / kKvHeads;
    std::int64_t of_layer = 0;
    for (std::int32_t head = 0; head < kKvHeads; ++head) {
      of_layer += std::ssize(table_[static_cast<std::size_t>(layer * kKvHeads + head)]);
    }
    return std::ssize(table_[static_cast<std::size_t>(at)]) >= params_.layout.head_limit(layer) ||
           of_layer >= params_.layout.layer_limit(layer);
  }

  void write_block(std::int32_t layer,
                   std::int32_t head,
                   std::uint32_t slot,
                   std::uint32_t block,
                   std::int32_t count) {
    std::byte* at = memory_.data() + params_.layout.slot_offset(slot);
    const std::size_t half = params_.layout.block_bytes() / 2;
    for (std::int32_t i = 0; i < count; ++i) {
      const Position p = static_cast<Position>(block) * params_.layout.block + i;
      const auto& k = Reference::keys(layer, p);
      const auto& v = Reference::values(layer, p);
      for (std::int32_t d = 0; d < kDim; ++d) {
        const auto from = static_cast<std::size_t>(head * kDim + d);
        const std::uint16_t kh = f32_to_f16(k[from]);
        const std::uint16_t vh = f32_to_f16(v[from]);
        const std::size_t to = static_cast<std::size_t>(i * kDim + d) * 2;
        std::memcpy(at + to, &kh, 2);
        std::memcpy(at + half + to, &vh, 2);
      }
    }
  }

  void compare(std::int32_t layer, Position p, const float* q, const float* out) {
    std::vector<std::set<Position>> seen(kKvHeads);
    std::size_t in_layer = 0;
    for (std::int32_t g = 0; g < kKvHeads; ++g) {
      auto& positions = seen[static_cast<std::size_t>(g)];
      for (const auto& [entry, e] : table_[static_cast<std::size_t>(layer * kKvHeads + g)]) {
        for (std::int32_t i = 0; i < e.count; ++i) {
          const Position at = static_cast<Position>(e.block) * params_.layout.block + i;
          if (at < p - plan_.recent) {
            positions.insert(at);
          }
        }
      }
      const Position ring = std::max(stored_begin_, p - plan_.recent);
      for (Position at = 0; at < std::min(plan_.sinks, ring); ++at) {
        positions.insert(at);
      }
      for (Position at = ring; at < p; ++at) {
        positions.insert(at);
      }
      in_layer += positions.size();
      ASSERT_LE(positions.size(), static_cast<std::size_t>(set_->max_cached()));
      positions.insert(p);
    }
    ASSERT_LE(in_layer, static_cast<std::size_t>(set_->max_layer_cached(layer)));
    const std::vector<double> expected = Reference::attend(layer, seen, q);
    // f32 softmax over at most 401 keys of magnitude <= 2: 64 eps(f32) of that.
    const double tolerance = 64 * 1.2e-7 * 2;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(out[i]), expected[i], tolerance)
          << "layer " << layer << " position " << p << " element " << i;
    }
  }

  ThreadPool pool_;
  std::int32_t budget_ = 0;
  policy::BudgetPlan plan_;
  WorkingSetParams params_;
  std::vector<std::byte> memory_;
  std::unique_ptr<WorkingSet> set_;
  std::vector<std::map<std::int32_t, TableEntry>> table_;  // [L G] entry -> what it names
  Position stored_begin_ = 0;
  Position stored_end_ = 0;
};

class WorkingSetAttention : public ::testing::TestWithParam<Case> {};

TEST_P(WorkingSetAttention, MatchesExplicitKeySetsThroughRefreshesRollbacksAndWraps) {
  std::mt19937 random(7);
  Bench bench(GetParam(), 2);
  bench.step(1, random);
  bench.step(13, random);
  Position committed = 14;
  while (committed < 130 && !HasFatalFailure()) {
    if (random() % 4 == 0) {
      bench.install_random(committed, random);
    }
    // A round: one or two tokens, then drafts, some of which are taken back.
    const std::int32_t fed = 1 + static_cast<std::int32_t>(random() % 2);
    bench.step(fed, random);
    const auto drafts = static_cast<std::int32_t>(random() % kDraftLen);
    for (std::int32_t i = 0; i < drafts; ++i) {
      bench.step(1, random);
    }
    const std::int32_t kept =
        drafts > 0 ? static_cast<std::int32_t>(random() % 5) % (drafts + 1) : 0;
    committed += fed + kept;
    bench.rollback(committed);
  }
  EXPECT_LE(bench.set().peak_cached(), bench.set().max_cached());
  if (GetParam().policy != Policy::kFull) {
    bench.expect_budget();
    if (GetParam().allocation == Allocation::kUniform) {
      EXPECT_LE(bench.set().peak_cached(), GetParam().budget);
    }
  }
}

TEST_P(WorkingSetAttention, MatchesExplicitKeySetsInLongPasses) {
  std::mt19937 random(8);
  Bench bench(GetParam());
  bench.start_at(20, random);
  bench.step(64, random);
  bench.install_random(84, random);
  bench.step(33, random);
  bench.install_random(100, random);
  bench.step(64, random);
}

INSTANTIATE_TEST_SUITE_P(
    Budgets,
    WorkingSetAttention,
    ::testing::Values(
        Case{"B1_P1_half", Policy::kRiftDyn, 1, 1, 0.5F},
        Case{"B1_P1_recent", Policy::kRiftDyn, 1, 1, 1.0F},
        Case{"B1_P16_noRecent", Policy::kRiftDyn, 1, 16, 0.0F},
        Case{"B16_P1_half", Policy::kRiftDyn, 16, 1, 0.5F},
        Case{"B40_P16_noRecent", Policy::kRiftDyn, 40, 16, 0.0F},
        Case{"B64_P16_half", Policy::kRiftDyn, 64, 16, 0.5F},
        Case{"B70_P7_third", Policy::kRiftDyn, 70, 7, 0.3F},
        Case{"B64_P128_half", Policy::kRiftDyn, 64, 128, 0.5F},
        Case{"B24_swa", Policy::kSwa, 24, 16, 0.5F},
        Case{"B1_streaming", Policy::kStreamingLlm, 1, 16, 0.5F},
        Case{"B4_streaming", Policy::kStreamingLlm, 4, 1, 0.5F},
        Case{"B5_streaming", Policy::kStreamingLlm, 5, 128, 0.5F},
        Case{"B24_streaming", Policy::kStreamingLlm, 24, 16, 0.5F},
        Case{"B40_P1_adaKv", Policy::kRiftDyn, 40, 1, 0.5F, Allocation::kAdaKv},
        Case{"B70_P7_adaKv", Policy::kRiftDyn, 70, 7, 0.3F, Allocation::kAdaKv},
        Case{"B40_P1_pyramidKv", Policy::kRiftDyn, 40, 1, 0.5F, Allocation::kPyramidKv},
        Case{"B70_P7_pyramidKv", Policy::kRiftDyn, 70, 7, 0.3F, Allocation::kPyramidKv},
        Case{"Full", Policy::kFull, 24, 16, 0.5F}),
    [](const auto& test) { return test.param.name; });

TEST(WorkingSet, AttendsOnlyToItsOwnKeyWhenNothingIsCached) {
  std::mt19937 random(1);
  Bench bench({"", Policy::kSwa, 8, 16, 0.5F});
  bench.start_at(100, random);  // the window's first query, with nothing before it
  bench.step(1, random);
  EXPECT_EQ(bench.set().peak_cached(), 0);
}

TEST(WorkingSet, SinksStayAfterTheRingHasLeftThemAndGoWithARollback) {
  for (const std::int32_t block : {1, 16, 128}) {
    for (std::int32_t budget = 1; budget <= 12; ++budget) {
      SCOPED_TRACE(testing::Message() << "B " << budget << " P " << block);
      std::mt19937 random(3);
      Bench bench({"", Policy::kStreamingLlm, budget, block, 0.5F});
      bench.step(3, random);
      bench.rollback(1);  // positions 1 and 2 are other tokens now
      for (int i = 0; i < 40; ++i) {
        bench.step(1, random);
      }
      EXPECT_EQ(bench.set().peak_cached(), budget);
      bench.rollback(2);
      bench.step(30, random);
      EXPECT_EQ(bench.set().peak_cached(), budget);
    }
  }
}

TEST(WorkingSet, AStreamingSetThatStartsLateStillHasItsSinks) {
  for (const Position start : {1, 2, 4, 5, 50}) {
    std::mt19937 random(4);
    Bench bench({"", Policy::kStreamingLlm, 10, 16, 0.5F});
    bench.start_at(start, random);
    bench.step(20, random);
    EXPECT_EQ(bench.set().peak_cached(), 10);
  }
}

TEST(WorkingSet, ValidRingPositionsFollowFillingRollbackAndOverwriting) {
  std::mt19937 random(1);
  Bench bench({"", Policy::kSwa, 8, 16, 0.5F});
  const std::int32_t capacity = bench.layout().ring_capacity;
  bench.start_at(5, random);
  bench.step(3, random);
  EXPECT_EQ(bench.set().ring_begin(), 5);
  bench.rollback(6);
  EXPECT_EQ(bench.set().size(), 6);
  bench.step(30, random);
  EXPECT_EQ(bench.set().size(), 36);
  EXPECT_EQ(bench.set().ring_begin(), 36 - capacity);
  bench.rollback(32);
  EXPECT_EQ(bench.set().ring_begin(), 36 - capacity);
}

TEST(WorkingSet, RefusesABadWaveWithoutChange) {
  Bench bench({"", Policy::kRiftDyn, 64, 16, 0.5F});
  WorkingSetParams params;
  params.layout = bench.layout();
  params.recent = bench.plan().recent;
  params.query_heads = kQueryHeads;
  std::vector<std::byte> memory(params.layout.total_bytes());
  WorkingSet set(params, memory);
  const std::vector<transport::TableUpdate> wave = {{0, 0, 0, 0, 1, 16}};
  EXPECT_FALSE(set.install(wave, 63).ok());  // candidates end at 31
  EXPECT_TRUE(set.install(wave, 64).ok());
}

}  // namespace
}  // namespace rift::draft_node
