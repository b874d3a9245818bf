// SPDX-License-Identifier: Apache-2.0
// Random sessions: whatever the order in which jobs, writes, commits and installations happen, no
// write meets a slot in use (checked in FakeDraft), and in the end the draft node holds exactly
// what was selected.
#include "policy/budget.h"
#include "tests/unit/score_node/core_rig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

namespace rift::score_node {
namespace {

struct Shape {
  std::int32_t budget, block, staging_percent;
  float rho;
  bool rollbacks;
  Allocation allocation = Allocation::kUniform;
};

class RefreshProperty : public ::testing::TestWithParam<Shape> {
 protected:
  void commit(FakeDraft& draft, CoreRig& rig) {
    auto start = static_cast<std::int32_t>(draft.tokens.size());
    if (GetParam().rollbacks && rig.random() % 4 == 0) {
      start -= std::min<std::int32_t>(start, static_cast<std::int32_t>(rig.random() % 30));
    }
    std::vector<TokenId> tokens(1 + rig.random() % 6);
    std::generate(tokens.begin(), tokens.end(), [&] {
      return static_cast<TokenId>(rig.random() % static_cast<std::uint32_t>(kVocab));
    });
    if (start + std::ssize(tokens) > draft.context) {
      return;
    }
    draft.tokens.resize(static_cast<std::size_t>(start));
    draft.tokens.insert(draft.tokens.end(), tokens.begin(), tokens.end());
    rig.send(draft, transport::Commit{draft.id, start, tokens});
  }

  void request(FakeDraft& draft, CoreRig& rig) {
    const auto size = static_cast<std::int32_t>(draft.tokens.size());
    const auto back = static_cast<std::int32_t>(rig.random() % 3);
    rig.send(draft, transport::RefreshRequest{draft.id, Epoch{++epoch_}, std::max(1, size - back)});
  }

  void drain(FakeDraft& draft, CoreRig& rig) {
    for (;;) {
      rig.run_all();
      if (draft.ready.empty()) {
        return;
      }
      rig.send(draft, draft.install());
    }
  }

  void expect_selection(const FakeDraft& draft, const CoreRig& rig) {
    const std::int32_t covered = draft.history.back().covered_tokens;
    const std::int32_t limit = covered - policy::plan_budget(draft.policy, draft.context).recent;
    for (std::int32_t head = 0; head < kGeometry.layers * kGeometry.kv_heads; ++head) {
      std::set<std::pair<std::uint32_t, std::int32_t>> want;
      for (const std::int32_t b : rig.last_selection[static_cast<std::size_t>(head)].ranked) {
        want.emplace(static_cast<std::uint32_t>(b),
                     std::min(draft.layout.block, limit - b * draft.layout.block));
      }
      EXPECT_EQ(draft.blocks(head), want) << "head " << head;
    }
    draft.check_contents();
  }

  std::uint32_t epoch_ = 0;
};

TEST_P(RefreshProperty, EndsWithTheSelectionAndNeverWritesASlotInUse) {
  const Shape shape = GetParam();
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    PolicySpec spec;
    spec.budget = shape.budget;
    spec.block = shape.block;
    spec.rho = shape.rho;
    spec.window = 8;
    spec.allocation = shape.allocation;
    spec.staging_percent = shape.staging_percent;
    CoreRig rig(small_options(), seed);
    FakeDraft draft(SessionId{1}, spec, 300);
    rig.draft = &draft;
    epoch_ = 0;
    draft.tokens.resize(1 + rig.random() % 80, 17);
    rig.send(draft, draft.open_message());
    for (int step = 0; step < 400; ++step) {
      switch (rig.random() % 6) {
        case 0:
          commit(draft, rig);
          break;
        case 1:
          if (rig.random() % 4 == 0) {
            request(draft, rig);
          }
          break;
        case 2:
          if (!draft.ready.empty()) {
            rig.send(draft, draft.install());
          }
          break;
        case 3:
          rig.run_put();
          break;
        default:
          rig.run_compute();
          break;
      }
      ASSERT_THAT(draft.refused, ::testing::IsEmpty()) << draft.refused.front().message;
      ASSERT_FALSE(HasFailure());
    }
    drain(draft, rig);
    draft.tokens.resize(std::max<std::size_t>(draft.tokens.size(), 60), 99);
    rig.send(draft, transport::Commit{draft.id, 0, draft.tokens});
    request(draft, rig);
    drain(draft, rig);
    expect_selection(draft, rig);
    ASSERT_FALSE(HasFailure());
    rig.send(draft, transport::CloseSession{draft.id});
    rig.run_all();
    EXPECT_TRUE(rig.core.idle());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes,
                         RefreshProperty,
                         ::testing::Values(Shape{24, 4, 100, 0.5F, false},
                                           Shape{24, 4, 0, 0.5F, false},
                                           Shape{40, 4, 10, 0.0F, true},
                                           Shape{17, 1, 25, 0.3F, true},
                                           Shape{48, 16, 50, 0.25F, true},
                                           Shape{2, 1, 0, 0.5F, true},
                                           Shape{24, 4, 100, 0.5F, true, Allocation::kAdaKv},
                                           Shape{24, 4, 0, 0.5F, false, Allocation::kAdaKv},
                                           Shape{17, 1, 25, 0.3F, true, Allocation::kAdaKv},
                                           Shape{24, 4, 0, 0.5F, true, Allocation::kPyramidKv},
                                           Shape{17, 1, 25, 0.3F, true, Allocation::kPyramidKv}));

}  // namespace
}  // namespace rift::score_node
