// SPDX-License-Identifier: Apache-2.0
// At temperature 1 the first tokens of an answer have the target's law, with drafts that are mostly
// accepted and with drafts that are mostly rejected.
#include "cli/law_test.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "tests/lossless/tiny_nodes.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace rift::test {
namespace {

using target_node::Outcome;
using target_node::Request;

constexpr std::size_t kDepth = 3;  // tokens whose joint law is tested
constexpr std::int32_t kSamples = 1500;

// Six tokens are lifted above all others, of which target and draft each keep their four likeliest:
// overlapping, unequal supports.
SamplingParams sampling() {
  SamplingParams params;
  params.temperature = 1.0F;
  params.top_k = 4;
  for (const TokenId id : {7, 40, 99, 131, 180, 222}) {
    params.logit_bias.emplace_back(id, 30.0F);
  }
  return params;
}

/// The law of the first kDepth tokens: a whole forward pass for each context.
class ExactLaw {
 public:
  explicit ExactLaw(const TinyPair& pair)
      : pair_(pair),
        pool_(1),
        runner_(tiny_weights(pair.target), {.mode = pair.mode}, pool_),
        sampler_(sampling()) {}

  void expand(std::vector<TokenId>& context,
              std::size_t depth,
              double probability,
              std::map<std::vector<TokenId>, double>& out) {
    if (depth == kDepth) {
      out[{context.end() - static_cast<std::ptrdiff_t>(kDepth), context.end()}] = probability;
      return;
    }
    const model::Distribution law = next(context);
    for (std::size_t i = 0; i < law.ids.size(); ++i) {
      context.push_back(law.ids[i]);
      expand(context, depth + 1, probability * static_cast<double>(law.probabilities[i]), out);
      context.pop_back();
    }
  }

 private:
  model::Distribution next(const std::vector<TokenId>& context) {
    const auto size = static_cast<std::int32_t>(context.size());
    model::KvCache cache(runner_.config(), pair_.kv_dtype, size);
    std::vector<Position> positions(context.size());
    std::iota(positions.begin(), positions.end(), 0);
    std::vector<float> logits(static_cast<std::size_t>(runner_.config().vocab));
    const std::int32_t last = size - 1;
    runner_.forward(context,
                    positions,
                    cache,
                    {&last, 1},
                    MatView<float>(logits.data(), 1, std::ssize(logits)));
    return sampler_.distribution(logits, context, 0);
  }

  TinyPair pair_;
  ThreadPool pool_;
  model::Runner runner_;
  model::SamplerChain sampler_;
};

class TinyLaw : public ::testing::TestWithParam<TinyPair> {};

TEST_P(TinyLaw, OfTheFirstTokensIsTheTargets) {
  Request r;
  r.prompt = tiny_prompt(30);
  r.sampling = sampling();
  r.max_tokens = static_cast<std::int32_t>(kDepth) + 2;  // tokens 2 and 3 can both be drafts
  r.draft_len = static_cast<std::int32_t>(kDepth);
  r.top_n = 3;
  r.policy.budget = 8;
  r.policy.block = 2;
  r.policy.delta = 1;

  std::map<std::vector<TokenId>, double> law;
  std::vector<TokenId> context = r.prompt;
  ExactLaw(GetParam()).expand(context, 0, 1.0, law);
  ASSERT_EQ(law.size(), 64U);

  const auto nodes = tiny_nodes(GetParam());
  std::map<std::vector<TokenId>, std::int64_t> counts;
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;
  for (std::uint64_t seed = 1; seed <= kSamples; ++seed) {
    r.sampling.seed = seed;
    const Outcome outcome = nodes->generate(r, {});
    ASSERT_EQ(outcome.draft_error, "");
    ++counts[{outcome.tokens.begin(), outcome.tokens.begin() + kDepth}];
    drafted += outcome.progress.drafted_tokens;
    accepted += outcome.progress.accepted_tokens;
  }
  std::vector<std::int64_t> observed;
  std::vector<double> expected;
  for (const auto& [answer, probability] : law) {
    observed.push_back(counts[answer]);
    expected.push_back(probability);
    counts.erase(answer);
  }
  EXPECT_TRUE(counts.empty()) << "answers that the target never gives";
  const cli::LawResult result = cli::chi_square(observed, expected);
  EXPECT_GE(result.p_value, cli::LawResult::kAlpha) << result.summary();
  EXPECT_GE(result.cells, 8) << result.summary();
  // Both ways through rejection sampling were taken, and often.
  EXPECT_GT(accepted, drafted / 20);
  EXPECT_LT(accepted, drafted - drafted / 20);
  RecordProperty("summary", result.summary());
  RecordProperty("accepted", std::to_string(accepted) + " of " + std::to_string(drafted));
}

std::string name_of(const ::testing::TestParamInfo<TinyPair>& info) { return info.param.name(); }

using kernels::MatmulMode;
INSTANTIATE_TEST_SUITE_P(
    Pairs,
    TinyLaw,
    ::testing::Values(TinyPair{"qwen2", "qwen2", DType::kF32, MatmulMode::kExact},
                      TinyPair{"llama", "qwen3", DType::kF16, MatmulMode::kQuantized}),
    name_of);

}  // namespace
}  // namespace rift::test
