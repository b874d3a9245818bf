// SPDX-License-Identifier: Apache-2.0
#include "target_node/engine.h"

#include "tests/unit/model/count_allocations.h"
#include "tests/unit/model/tiny_model.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rift::target_node {
namespace {

constexpr SessionId kSession{1};

class TargetEngineTest : public testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions o;
    o.max_context = 100;
    o.max_draft_len = 7;
    return o;
  }

  void prefill() {
    Prefill job;
    job.session = kSession;
    job.prompt = model::random_tokens(20, weights_->config.vocab);
    history_ = job.prompt;
    history_.push_back(engine_.prefill(job, [](std::int32_t, std::int32_t) {}).first);
  }
  Verify verify(std::vector<TokenId> drafted) const {
    Verify job;
    job.session = kSession;
    job.committed = static_cast<std::int32_t>(history_.size());
    job.drafted = std::move(drafted);
    return job;
  }
  void commit(const Verify& job, const VerifyDone& done) {
    history_.insert(history_.end(), job.drafted.begin(), job.drafted.begin() + done.accepted);
    history_.push_back(done.next);
  }

  std::shared_ptr<const model::Weights> weights_ = model::tiny_model({});
  TargetEngine engine_{weights_, options(), 2};
  std::vector<TokenId> history_;
};

TEST_F(TargetEngineTest, AVerificationAllocatesNothing) {
  prefill();
  for (int round = 0; round < 20; ++round) {
    const Verify job = verify(round % 2 == 0 ? std::vector<TokenId>{} : std::vector<TokenId>(7, 3));
    const std::int64_t before = model::allocations();
    const VerifyDone done = engine_.verify(job);
    EXPECT_EQ(model::allocations() - before, 0) << "round " << round;
    commit(job, done);
  }
}

TEST_F(TargetEngineTest, KnowsACostForEveryWidthThatDoesNotFall) {
  const VerifyCosts costs = engine_.measure_verify();
  for (const std::vector<double>& seconds : {costs.empty, costs.deep}) {
    ASSERT_EQ(seconds.size(), 8U);
    EXPECT_GT(seconds.front(), 0.0);
    EXPECT_TRUE(std::is_sorted(seconds.begin(), seconds.end()));
  }
  EXPECT_GT(costs.depth, 0);
}

}  // namespace
}  // namespace rift::target_node
