// SPDX-License-Identifier: Apache-2.0
// The three node services on tiny random checkpoints: whatever is drafted, greedy answers are the
// target's own. A draft that is the target's own checkpoint is accepted often, another one seldom.
#include "tests/golden/golden_data.h"
#include "tests/lossless/tiny_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

namespace rift::test {
namespace {

using target_node::Outcome;
using target_node::Request;
using ::testing::ElementsAreArray;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

constexpr std::int32_t kAnswer = 16;
constexpr std::int32_t kPrompts[] = {3, 30, 150};

Request request(std::int32_t prompt) {
  Request r;
  r.prompt = tiny_prompt(prompt);
  r.max_tokens = kAnswer;
  r.policy.budget = 64;
  r.policy.delta = 8;
  r.policy.window = 16;
  return r;
}

std::vector<TokenId> plain(cli::LocalNodes& nodes, Request r) {
  r.use_draft = false;
  return nodes.generate(r, {}).tokens;
}

constexpr std::int32_t kAutoDraftLen = 0;

/// Policies with every budget and block size that they know.
std::vector<PolicySpec> policies() {
  std::vector<PolicySpec> out;
  PolicySpec spec = request(3).policy;
  spec.policy = Policy::kFull;
  out.push_back(spec);
  for (const std::int32_t budget : {1, 64, 256, 1024}) {
    spec.budget = budget;
    for (const Policy policy : {Policy::kSwa, Policy::kStreamingLlm}) {
      spec.policy = policy;
      out.push_back(spec);
    }
    for (const std::int32_t block : {1, 16, 128}) {
      for (const Policy policy : {Policy::kSnapKv, Policy::kRiftStat, Policy::kRiftDyn}) {
        PolicySpec blocked = spec;
        blocked.policy = policy;
        blocked.block = block;
        out.push_back(blocked);
      }
    }
  }
  return out;
}

/// Every selector with every allocation, in blocks of 1 and more.
std::vector<PolicySpec> selectors() {
  std::vector<PolicySpec> out;
  PolicySpec spec = request(3).policy;
  for (const Selector selector : {Selector::kSnapKv,
                                  Selector::kCriticalKv,
                                  Selector::kExpectedAttention,
                                  Selector::kCurDkv,
                                  Selector::kTriAttention,
                                  Selector::kH2o}) {
    for (const Allocation allocation :
         {Allocation::kUniform, Allocation::kAdaKv, Allocation::kPyramidKv}) {
      for (const std::int32_t budget : {1, 48, 1024}) {
        if (budget != 48 && allocation != Allocation::kUniform) {
          continue;
        }
        for (const std::int32_t block : {1, 16}) {
          spec.selector = selector;
          spec.allocation = allocation;
          spec.budget = budget;
          spec.block = block;
          spec.pooling = block == 1 ? Pooling::kAverage : Pooling::kNone;
          out.push_back(spec);
        }
      }
    }
  }
  return out;
}

std::string describe(const Request& r) {
  return fmt::format("{} {} {} B {} P {} gamma {} prompt {}",
                     to_string(r.policy.policy),
                     to_string(r.policy.selector),
                     to_string(r.policy.allocation),
                     r.policy.budget,
                     r.policy.block,
                     r.auto_draft_len ? "auto" : std::to_string(r.draft_len),
                     r.prompt.size());
}

std::string name_of(const ::testing::TestParamInfo<TinyPair>& info) { return info.param.name(); }

class TinyLossless : public ::testing::TestWithParam<TinyPair> {
 protected:
  std::unique_ptr<cli::LocalNodes> nodes_ = tiny_nodes(GetParam());
};

TEST_P(TinyLossless, EveryPolicyBudgetBlockAndDraftLengthGivesTheTargetsTokens) {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
  for (const std::int32_t prompt : kPrompts) {
    Request r = request(prompt);
    const std::vector<TokenId> expected = plain(*nodes_, r);
    ASSERT_EQ(std::ssize(expected), kAnswer);
    for (const PolicySpec& policy : policies()) {
      for (const std::int32_t draft_len : {1, 4, 11, kAutoDraftLen}) {
        r.policy = policy;
        r.auto_draft_len = draft_len == kAutoDraftLen;
        r.draft_len = r.auto_draft_len ? 11 : draft_len;
        const Outcome outcome = nodes_->generate(r, {});
        ASSERT_THAT(outcome.tokens, ElementsAreArray(expected)) << describe(r);
        ASSERT_EQ(outcome.draft_error, "") << describe(r);
        // Left to the target, it may find that these small models are faster alone. What was
        // drafted need not be in the target's vocabulary.
        ASSERT_GT(outcome.draft_closed.draft_steps + (r.auto_draft_len ? 1 : 0), 0U) << describe(r);
        drafted += outcome.progress.drafted_tokens;
        accepted += outcome.progress.accepted_tokens;
      }
    }
  }
  // Both ways through verification were taken.
  EXPECT_LT(accepted, drafted);
  EXPECT_GT(accepted, GetParam().target == GetParam().draft ? drafted / 10 : 0U);
}

TEST_P(TinyLossless, EverySelectorAndAllocationTakesPromptsOfAnyLength) {
  for (const std::int32_t prompt : {1, 63, 64, 65}) {
    Request r = request(prompt);
    const std::vector<TokenId> expected = plain(*nodes_, r);
    for (const PolicySpec& policy : selectors()) {
      r.policy = policy;
      r.policy.policy = Policy::kRiftDyn;
      r.policy.window = prompt == 65 ? 64 : 16;
      const Outcome outcome = nodes_->generate(r, {});
      ASSERT_THAT(outcome.tokens, ElementsAreArray(expected)) << describe(r);
      ASSERT_EQ(outcome.draft_error, "") << describe(r);
      ASSERT_EQ(outcome.draft_closed.score_lost, 0U) << describe(r);
    }
  }
}

TEST_P(TinyLossless, RefreshesInWavesAndAfterEveryTokenChangeNothing) {
  std::uint32_t most_waves = 0;
  for (const auto mode : {draft_node::RefreshMode::kStage, draft_node::RefreshMode::kPause}) {
    const auto nodes = tiny_nodes(GetParam(), mode);
    for (const std::int32_t delta : {1, 8}) {
      for (const std::int32_t staging : {0, 1, 100}) {
        Request r = request(150);
        const std::vector<TokenId> expected = plain(*nodes, r);
        r.policy.block = 4;
        r.policy.delta = delta;
        r.policy.staging_percent = staging;
        const Outcome outcome = nodes->generate(r, {});
        EXPECT_THAT(outcome.tokens, ElementsAreArray(expected)) << delta << " " << staging;
        EXPECT_EQ(outcome.draft_error, "");
        // Staged, a refresh may arrive after the answer's last round.
        if (mode == draft_node::RefreshMode::kPause) {
          EXPECT_GT(outcome.progress.refreshes, 0U) << delta << " " << staging;
        }
        for (const transport::RefreshRecord& refresh : outcome.draft_closed.refreshes) {
          most_waves = std::max(most_waves, refresh.waves);
        }
      }
    }
  }
  EXPECT_GT(most_waves, 1U) << "no refresh was larger than its staging area";
}

using kernels::MatmulMode;
INSTANTIATE_TEST_SUITE_P(
    Pairs,
    TinyLossless,
    ::testing::Values(TinyPair{"qwen2", "qwen2", DType::kF32, MatmulMode::kExact},
                      TinyPair{"llama_tied", "llama_tied", DType::kF16, MatmulMode::kQuantized},
                      TinyPair{"llama", "qwen3", DType::kF16, MatmulMode::kExact},
                      TinyPair{"qwen3", "llama", DType::kF32, MatmulMode::kQuantized},
                      // Draft ids beyond the target's vocabulary are not used.
                      TinyPair{"llama_tied", "qwen2", DType::kF16, MatmulMode::kExact}),
    name_of);

// What all of this is compared with is right itself.
TEST(TinyTarget, PlainDecodingGivesTheGoldenTokens) {
  for (const char* name : {"llama", "llama_tied", "qwen2", "qwen3"}) {
    const auto golden =
        testing::golden_tensors(testing::golden_path("models") / name / "golden.safetensors");
    const auto nodes = tiny_nodes({name, name});
    Request r;
    r.prompt = golden.at("input_ids").ints;
    const std::vector<std::int32_t>& expected = golden.at("decode_ids").ints;
    r.max_tokens = static_cast<std::int32_t>(expected.size());
    EXPECT_THAT(plain(*nodes, r), ElementsAreArray(expected)) << name;
    EXPECT_THAT(nodes->generate(r, {}).tokens, ElementsAreArray(expected)) << name;
  }
}

/// What happens to the links once the answer has some tokens.
struct Fault {
  const char* name;
  std::function<void(transport::InprocNetwork&)> strike;
  std::vector<std::size_t> after;
  bool draft_lost;
  std::optional<bool> score_lost;  // nothing: as it happens
};

std::vector<Fault> faults() {
  const std::vector<std::size_t> often{1, 5, 9, 14};
  const std::vector<std::size_t> seldom{1, 9};  // a cut takes peer_timeout to be noticed
  return {
      {"killed draft node", [](auto& net) { net.kill("draft0"); }, often, true, false},
      {"killed score node", [](auto& net) { net.kill("score0"); }, often, false, true},
      {"cut draft node", [](auto& net) { net.cut("target0", "draft0"); }, seldom, true, false},
      {"cut score node", [](auto& net) { net.cut("draft0", "score0"); }, seldom, false, {}},
      {"late draft node",
       [](auto& net) { net.delay("target0", "draft0", 10ms); },
       often,
       false,
       false},
      {"late score node",
       [](auto& net) { net.delay("draft0", "score0", 10ms); },
       often,
       false,
       false},
  };
}

TEST(TinyFault, NoFaultAtAnyPointOfTheAnswerChangesIt) {
  const TinyPair pair{"qwen2", "qwen2", DType::kF16, MatmulMode::kQuantized};
  for (const Fault& fault : faults()) {
    for (const std::size_t after : fault.after) {
      const auto nodes = tiny_nodes(pair);
      Request r = request(150);
      r.policy.delta = 1;
      const std::vector<TokenId> expected = plain(*nodes, r);
      std::size_t emitted = 0;
      bool struck = false;
      cli::AnswerEvents events;
      events.on_tokens = [&](std::span<const TokenId> tokens, const target_node::Progress&) {
        emitted += tokens.size();
        if (emitted >= after && !std::exchange(struck, true)) {
          fault.strike(nodes->network());
        }
      };
      const Outcome outcome = nodes->generate(r, events);
      const std::string what = fmt::format("{} after {} tokens", fault.name, after);
      EXPECT_TRUE(struck) << what;
      EXPECT_THAT(outcome.tokens, ElementsAreArray(expected)) << what;
      EXPECT_EQ(outcome.finish, target_node::FinishReason::kLength) << what;
      if (after < 10) {  // later, the answer may be complete before the loss shows
        EXPECT_EQ(outcome.draft_lost, fault.draft_lost ? 1U : 0U) << what;
        if (fault.score_lost) {
          EXPECT_EQ(outcome.draft_closed.score_lost, *fault.score_lost ? 1U : 0U) << what;
        }
      }
      // The nodes that are left answer the next request.
      EXPECT_THAT(nodes->generate(r, {}).tokens, ElementsAreArray(expected)) << what;
    }
  }
}

// A target token that the draft's vocabulary lacks ends the draft's session, not the answer.
TEST(TinyFault, ADraftWithASmallerVocabularyOnlyCostsItsHelp) {
  const auto nodes = tiny_nodes({"qwen2", "llama_tied"});
  for (const std::int32_t prompt : kPrompts) {
    const Request r = request(prompt);
    const std::vector<TokenId> expected = plain(*nodes, r);
    EXPECT_THAT(nodes->generate(r, {}).tokens, ElementsAreArray(expected));
  }
}

}  // namespace
}  // namespace rift::test
