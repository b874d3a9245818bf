// SPDX-License-Identifier: Apache-2.0
// Evaluation over the node cores, on golden checkpoints: a replay gives what the target gives, an
// evaluation what the nodes give, and neither depends on how it is cut up.
#include "eval/nodes.h"
#include "eval/sweep.h"
#include "tests/lossless/tiny_nodes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace rift::eval {
namespace {

constexpr std::int32_t kAnswer = 90;
constexpr std::int32_t kContext = 256;

// Draft and target differ, so that drafts are rejected, and agree often enough to be accepted.
const char* const kTarget = "qwen2";
const char* const kDraft = "qwen2";

Setting setting(Policy policy, std::int32_t budget, std::int32_t block, std::int32_t lag) {
  Setting out;
  out.policy.policy = policy;
  out.policy.budget = budget;
  out.policy.block = block;
  out.policy.delta = 10;
  out.policy.window = 16;
  out.policy.refresh_lag = lag;
  out.policy.ada = {.stride = 4,
                    .min_age = 8,
                    .max_age = 40,
                    .acceptance_low = 1.2F,
                    .entropy_rise = 0.2F,
                    .drift_high = 0.3F};
  out.draft_len = 5;
  return out;
}

std::vector<Setting> all_settings() {
  std::vector<Setting> out = {setting(Policy::kFull, 1024, 16, -1)};
  for (const std::int32_t budget : {1, 24, 64}) {
    out.push_back(setting(Policy::kSwa, budget, 16, -1));
    out.push_back(setting(Policy::kStreamingLlm, budget, 16, -1));
    for (const Selector selector : {Selector::kCriticalKv,
                                    Selector::kExpectedAttention,
                                    Selector::kCurDkv,
                                    Selector::kTriAttention,
                                    Selector::kH2o}) {
      out.push_back(setting(Policy::kRiftDyn, budget, 8, 0));
      out.back().policy.selector = selector;
    }
    for (const Allocation allocation : {Allocation::kAdaKv, Allocation::kPyramidKv}) {
      out.push_back(setting(Policy::kRiftDyn, budget, 8, 0));
      out.back().policy.allocation = allocation;
    }
    for (const std::int32_t block : {1, 8}) {
      for (const Policy policy : {Policy::kSnapKv, Policy::kRiftStat}) {
        out.push_back(setting(policy, budget, block, -1));
      }
      for (const std::int32_t lag : {-1, 0, 7}) {
        out.push_back(setting(Policy::kRiftDyn, budget, block, lag));
        out.push_back(setting(Policy::kRiftAda, budget, block, lag));
      }
    }
  }
  return out;
}

NodesOptions options(bool live) {
  NodesOptions out;
  out.draft = test::tiny_weights(kDraft);
  out.target = live ? test::tiny_weights(kTarget) : nullptr;
  out.context = kContext;
  out.max_draft_len = 5;
  out.kv_dtype = DType::kF32;
  out.mode = kernels::MatmulMode::kExact;
  out.arena_bytes = session_bytes(all_settings(), out.draft->config, out.kv_dtype, kContext);
  return out;
}

Sequence sequence(std::int32_t prompt) {
  return {"prompt" + std::to_string(prompt), "", test::tiny_prompt(prompt), {}};
}

std::vector<std::pair<std::int32_t, std::int32_t>> steps(const Measurement& m) {
  std::vector<std::pair<std::int32_t, std::int32_t>> out;
  for (const Step& step : m.steps) {
    out.emplace_back(step.position, step.length);
  }
  return out;
}

TEST(Eval, AReplayGivesTheStepsOfTheTargetForEveryPolicy) {
  Nodes live(options(true));
  Nodes replay(options(false));
  int refreshes = 0;
  int rejections = 0;
  for (const std::int32_t prompt : {1, 63, 64, 65, 140}) {
    Sequence s = sequence(prompt);
    for (const Setting& what : all_settings()) {
      s.response.clear();
      const Measurement a = live.run(s, what, kAnswer, {}, nullptr);
      s.response = live.answer();
      ASSERT_EQ(s.response.size(), static_cast<std::size_t>(kAnswer));
      const Measurement b = replay.run(s, what, kAnswer, {}, nullptr);
      ASSERT_EQ(steps(a), steps(b)) << describe(what) << " " << prompt;
      EXPECT_EQ(a.accepted_per_position, b.accepted_per_position) << describe(what);
      EXPECT_EQ(a.drafted_per_position, b.drafted_per_position) << describe(what);
      EXPECT_EQ(a.refresh_positions, b.refresh_positions) << describe(what) << " " << prompt;
      EXPECT_EQ(a.refresh_lags, b.refresh_lags) << describe(what);
      EXPECT_EQ(a.refresh_bytes, b.refresh_bytes) << describe(what);
      ASSERT_EQ(a.strides.size(), b.strides.size()) << describe(what);
      for (std::size_t i = 0; i < a.strides.size(); ++i) {
        EXPECT_EQ(a.strides[i].signals, b.strides[i].signals) << describe(what) << " " << i;
        EXPECT_EQ(a.strides[i].decision.rule, b.strides[i].decision.rule) << describe(what);
      }
      EXPECT_EQ(a.committed(), kAnswer - 1);
      refreshes += static_cast<int>(a.refresh_positions.size());
      for (const Step& step : a.steps) {
        rejections += step.length < 6 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(refreshes, 100);
  EXPECT_GT(rejections, 1000);
}

TEST(Eval, AgreesWithTheNodesBehindATransport) {
  test::TinyPair pair{kTarget, kDraft};
  const auto nodes = test::tiny_nodes(pair, draft_node::RefreshMode::kPause);
  Nodes live(options(true));
  const Sequence s = sequence(140);
  for (const Setting& what : {setting(Policy::kFull, 1024, 16, -1),
                              setting(Policy::kSwa, 24, 16, -1),
                              setting(Policy::kRiftStat, 64, 8, -1),
                              setting(Policy::kRiftDyn, 64, 8, 0),
                              setting(Policy::kRiftDyn, 24, 1, 7)}) {
    const Measurement a = live.run(s, what, kAnswer, {}, nullptr);
    target_node::Request request;
    request.prompt = s.prompt;
    request.max_tokens = kAnswer;
    request.policy = what.policy;
    request.draft_len = what.draft_len;
    const target_node::Outcome b = nodes->generate(request, {});
    EXPECT_EQ(live.answer(), b.tokens);
    EXPECT_EQ(a.steps.size(), b.progress.steps) << describe(what);
    EXPECT_EQ(a.committed(), static_cast<std::int64_t>(b.committed_by_steps)) << describe(what);
    EXPECT_EQ(a.accepted_per_position, b.accepted_per_position) << describe(what);
  }
  nodes->stop();
}

TEST(Eval, RetainsAllMassWithEverythingAndLessWithLess) {
  Sequence s = sequence(140);
  {
    Nodes live(options(true));
    (void)live.run(s, setting(Policy::kFull, 1024, 16, -1), kAnswer, {}, nullptr);
    s.response = live.answer();
  }
  Nodes replay(options(false));
  const std::vector<std::int32_t> positions = {0, 1, 33, 60};
  const FullAttention full = replay.attention(s, positions, 16);
  ASSERT_EQ(full.at.size(), 4U);
  const auto mass = [&](Policy policy, std::int32_t budget) {
    return replay.run(s, setting(policy, budget, 1, 0), kAnswer, {}, &full).mass;
  };
  const auto everything = mass(Policy::kFull, 1024);
  const auto recent = mass(Policy::kSwa, 64);
  const auto little = mass(Policy::kSwa, 8);
  const auto chosen = mass(Policy::kRiftDyn, 64);
  ASSERT_EQ(everything.size(), 4U);
  ASSERT_EQ(chosen.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(everything[i].position, positions[i]);
    EXPECT_NEAR(everything[i].mass, 1.0F, 1e-5F);
    EXPECT_LT(recent[i].mass, 1.0F);
    EXPECT_LT(little[i].mass, recent[i].mass);
    EXPECT_GT(little[i].mass, 0.0F);
    EXPECT_GT(chosen[i].mass, little[i].mass);
  }
}

TEST(Eval, RefusesAReplayThatCannotBe) {
  Nodes replay(options(false));
  Sequence s = sequence(20);
  EXPECT_THROW((void)replay.run(s, setting(Policy::kSwa, 8, 16, 0), 8, {}, nullptr), Error);
  s.response = s.prompt;
  Setting sampled = setting(Policy::kSwa, 8, 16, 0);
  sampled.temperature = 0.5F;
  EXPECT_THROW((void)replay.run(s, sampled, 8, {}, nullptr), Error);
  // The nodes are as good as before.
  EXPECT_EQ(replay.run(s, setting(Policy::kSwa, 8, 16, 0), 8, {}, nullptr).committed(), 7);
}

class SweepTest : public ::testing::Test {
 protected:
  SweepTest() {
    for (const std::int32_t prompt : {30, 64, 90}) {
      Sequence s = sequence(prompt);
      s.response = test::tiny_prompt(40);
      sequences_.push_back(s);
    }
    settings_ = {setting(Policy::kSwa, 24, 16, -1), setting(Policy::kRiftDyn, 24, 8, 0)};
    options_.nodes = options(false);
    options_.max_tokens = 40;
    options_.mass_samples = 2;
  }

  std::vector<Sequence> sequences_;
  std::vector<Setting> settings_;
  SweepOptions options_;
};

void expect_equal(const std::vector<Row>& a, const std::vector<Row>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t s = 0; s < a.size(); ++s) {
    ASSERT_EQ(a[s].runs.size(), b[s].runs.size());
    EXPECT_EQ(a[s].setting, b[s].setting);
    for (std::size_t p = 0; p < a[s].runs.size(); ++p) {
      EXPECT_EQ(steps(a[s].runs[p]), steps(b[s].runs[p]));
      EXPECT_EQ(a[s].runs[p].refresh_bytes, b[s].runs[p].refresh_bytes);
      EXPECT_EQ(a[s].runs[p].first_set_bytes, b[s].runs[p].first_set_bytes);
      EXPECT_EQ(a[s].runs[p].refresh_positions, b[s].runs[p].refresh_positions);
      ASSERT_EQ(a[s].runs[p].mass.size(), b[s].runs[p].mass.size());
      for (std::size_t i = 0; i < a[s].runs[p].mass.size(); ++i) {
        EXPECT_EQ(a[s].runs[p].mass[i].mass, b[s].runs[p].mass[i].mass);
      }
    }
  }
}

TEST_F(SweepTest, DoesNotDependOnTheNumberOfJobs) {
  const std::vector<Row> one = run_sweep(settings_, sequences_, options_);
  options_.jobs = 3;
  expect_equal(one, run_sweep(settings_, sequences_, options_));
}

TEST_F(SweepTest, GoesOnWhereItWasInterrupted) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "rift_eval_test_state.jsonl";
  std::filesystem::remove(file);
  const std::vector<Row> whole = run_sweep(settings_, sequences_, options_);
  options_.state = file;
  std::size_t looked = 0;
  options_.cancelled = [&] { return ++looked > 3; };
  EXPECT_THROW((void)run_sweep(settings_, sequences_, options_), Error);
  {
    std::ofstream cut(file, std::ios::app);
    cut << R"({"key": "a line that was cut)";
  }
  options_.cancelled = nullptr;
  std::size_t measured = 0;
  options_.on_progress = [&](std::size_t, std::size_t total, double seconds) {
    EXPECT_EQ(total, 6U);
    measured += seconds > 0.0 ? 1 : 0;
  };
  expect_equal(whole, run_sweep(settings_, sequences_, options_));
  EXPECT_EQ(measured, 3U);
  measured = 0;
  expect_equal(whole, run_sweep(settings_, sequences_, options_));
  EXPECT_EQ(measured, 0U);
  // Another response is another measurement.
  sequences_[0].response[5] += 1;
  (void)run_sweep(settings_, sequences_, options_);
  EXPECT_EQ(measured, 2U);
  std::filesystem::remove(file);
}

TEST(Settings, LeaveOutWhatAPolicyDoesNotHave) {
  SweepAxes axes;
  axes.policies = {Policy::kFull, Policy::kSwa, Policy::kRiftStat, Policy::kRiftDyn};
  axes.budgets = {256, 512};
  axes.blocks = {16, 128};
  axes.rhos = {0.5F};
  axes.deltas = {16, 32, 64};
  axes.lags = {0};
  axes.draft_lens = {11};
  axes.temperatures = {0.0F};
  axes.selectors = {Selector::kSnapKv};
  axes.allocations = {Allocation::kUniform};
  // full 1, swa 2 budgets, stat 2 x 2, dyn 2 x 2 x 3
  EXPECT_EQ(settings_of(axes).size(), 1U + 2 + 4 + 12);
}

}  // namespace
}  // namespace rift::eval
