// SPDX-License-Identifier: Apache-2.0
#include "cli/law_test.h"

#include "common/cpu_list.h"
#include "common/error.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/sampling.h"

#include <boost/json.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace rift::cli {
namespace {

constexpr std::int32_t kTokens = 3;
constexpr std::int32_t kTopK = 4;
constexpr double kLeastExpected = 5.0;

/// Law of all answers of `depth` more tokens after `context`, by plain forward passes.
class ExactLaw {
 public:
  ExactLaw(const ModelPair& models, const RunOptions& options, const SamplingParams& sampling)
      : pool_(thread_count(options.cluster.threads, options.cpus)),
        runner_(models.target,
                {.max_batch = 512,
                 .max_logit_rows = 1,
                 .mode = options.cluster.exact ? kernels::MatmulMode::kExact
                                               : kernels::MatmulMode::kQuantized},
                pool_),
        cache_(models.target->config, DType::kF16, 1024),
        sampler_(sampling),
        logits_(static_cast<std::size_t>(models.target->config.vocab)) {}

  void expand(std::vector<TokenId>& context,
              std::size_t prompt,
              double probability,
              std::map<std::vector<TokenId>, double>& out) {
    if (context.size() == prompt + kTokens) {
      out[{context.begin() + static_cast<std::ptrdiff_t>(prompt), context.end()}] += probability;
      return;
    }
    const model::Distribution law = next(context);
    for (std::size_t i = 0; i < law.ids.size(); ++i) {
      context.push_back(law.ids[i]);
      expand(context, prompt, probability * static_cast<double>(law.probabilities[i]), out);
      context.pop_back();
    }
  }

 private:
  model::Distribution next(std::span<const TokenId> context) {
    // Answers are walked depth first: what is cached before the newest token is this context's.
    const auto keep = std::min(static_cast<std::size_t>(cache_.size()), context.size() - 1);
    cache_.truncate(static_cast<std::int32_t>(keep));
    const auto fed = context.subspan(keep);
    std::vector<Position> positions(fed.size());
    std::iota(positions.begin(), positions.end(), static_cast<Position>(keep));
    const auto last = static_cast<std::int32_t>(fed.size() - 1);
    const MatView<float> row(logits_.data(), 1, std::ssize(logits_));
    runner_.forward(fed, positions, cache_, {&last, 1}, row);
    return sampler_.distribution(logits_, context, 0);
  }

  ThreadPool pool_;
  model::Runner runner_;
  model::KvCache cache_;
  model::SamplerChain sampler_;
  std::vector<float> logits_;
};

}  // namespace

std::string LawResult::summary() const {
  return fmt::format("{}: chi-square {:.2f} over {} cells, p = {:.4f}, {} answers, AL {:.2f}",
                     holds()    ? "the target's"
                     : tested() ? "NOT the target's"
                                : "NOT TESTED, too few answers (--law-samples)",
                     statistic,
                     cells,
                     p_value,
                     samples,
                     accepted_length);
}

boost::json::object LawResult::to_json() const {
  return {{"samples", samples},
          {"cells", cells},
          {"chi_square", statistic},
          {"p_value", p_value},
          {"alpha", kAlpha},
          {"accepted_length", accepted_length},
          {"holds", holds()}};
}

LawResult chi_square(const std::vector<std::int64_t>& counts,
                     const std::vector<double>& probabilities) {
  struct Cell {
    double observed = 0.0;
    double expected = 0.0;
  };
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  std::vector<std::size_t> likeliest(counts.size());
  std::iota(likeliest.begin(), likeliest.end(), std::size_t{0});
  std::stable_sort(likeliest.begin(), likeliest.end(), [&](std::size_t a, std::size_t b) {
    return probabilities[a] > probabilities[b];
  });
  std::vector<Cell> cells;
  Cell open;
  for (const std::size_t i : likeliest) {
    open.observed += static_cast<double>(counts[i]);
    open.expected += probabilities[i] * static_cast<double>(total);
    if (open.expected >= kLeastExpected) {
      cells.push_back(open);
      open = {};
    }
  }
  if (!cells.empty()) {
    cells.back().observed += open.observed;
    cells.back().expected += open.expected;
  }
  LawResult result;
  result.samples = static_cast<std::int32_t>(total);
  result.cells = static_cast<std::int32_t>(cells.size());
  for (const Cell& cell : cells) {
    const double off = cell.observed - cell.expected;
    result.statistic += off * off / cell.expected;
  }
  if (result.tested()) {
    const boost::math::chi_squared law(result.cells - 1);
    result.p_value = boost::math::cdf(boost::math::complement(law, result.statistic));
  }
  return result;
}

LawResult test_law(Backend& backend,
                   const ModelPair& models,
                   const RunOptions& options,
                   std::int32_t samples) {
  target_node::Request request = options.request;
  request.prompt = models.tokenizer->encode("The next word of this sentence is a", false);
  request.max_tokens = kTokens + 2;  // so that the last one tested can be a draft as well
  request.ignore_stop = true;
  request.use_draft = true;
  request.auto_draft_len = false;
  request.draft_len = kTokens - 1;
  request.sampling = {};
  request.sampling.temperature = 1.0F;
  request.sampling.top_k = kTopK;

  std::map<std::vector<TokenId>, double> law;
  std::vector<TokenId> context = request.prompt;
  ExactLaw(models, options, request.sampling).expand(context, context.size(), 1.0, law);

  std::map<std::vector<TokenId>, std::int64_t> counts;
  double steps = 0.0;
  double committed = 0.0;
  for (std::int32_t seed = 1; seed <= samples; ++seed) {
    request.sampling.seed = static_cast<std::uint64_t>(seed);
    const target_node::Outcome outcome = backend.generate(request, {});
    if (!outcome.draft_error.empty()) {
      throw fail(Errc::kUnavailable, "the test of law needs drafts: {}", outcome.draft_error);
    }
    ++counts[{outcome.tokens.begin(), outcome.tokens.begin() + kTokens}];
    steps += static_cast<double>(outcome.progress.steps);
    committed += static_cast<double>(outcome.committed_by_steps);
  }
  std::vector<std::int64_t> observed;
  std::vector<double> probabilities;
  for (const auto& [answer, probability] : law) {
    observed.push_back(counts[answer]);
    probabilities.push_back(probability);
    counts.erase(answer);
  }
  LawResult result = chi_square(observed, probabilities);
  if (!counts.empty()) {
    result.p_value = 0.0;  // an answer that the target never gives
  }
  result.accepted_length = steps > 0 ? committed / steps : 0.0;
  return result;
}

}  // namespace rift::cli
