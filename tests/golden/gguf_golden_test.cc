// SPDX-License-Identifier: Apache-2.0
// Published GGUF files against reference logits (golden data, gguf_reference.json). Tolerances are
// the golden README's: exact mode (weights dequantised, float32) 2e-3 on logits and 1e-4 on the
// mean NLL; 8-bit activations 0.6 on the log-probability of the top 20 at a prompt's end, the same
// argmax where the margin is above 1, and 0.02 on the mean NLL.
#include "common/thread_pool.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/weights.h"
#include "tests/golden/golden_json.h"
#include "tests/golden/published_model.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace rift::model {
namespace {

namespace json = boost::json;
using kernels::MatmulMode;

constexpr std::int32_t kBatch = 128;
constexpr std::int32_t kLogitRows = 64;
constexpr std::int32_t kContext = 512;

struct PublishedFile {
  const char* label;
  const char* golden_name;  // in gguf_reference.json
  const char* file_name;    // in the models folder
};
constexpr PublishedFile kFiles[] = {
    {"smollm2_135m", "SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"},
    {"qwen2_0_5b", "q05.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
    {"qwen2_1_5b", "q15.gguf", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"},
};

json::value reference_of(const char* golden_name) {
  static const json::value all = rift::testing::golden_json("gguf_reference.json");
  for (const json::value& model : all.at("models").as_array()) {
    if (model.at("file").as_string() == golden_name) {
      return model;
    }
  }
  throw std::runtime_error(std::string("no reference for ") + golden_name);
}

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - top);
  }
  return top + std::log(sum);
}

TokenId best(std::span<const float> logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class PublishedModel : public ::testing::TestWithParam<PublishedFile> {
 protected:
  void SetUp() override {
    const std::filesystem::path path = rift::testing::model_path(GetParam().file_name);
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << GetParam().file_name << " is not here; `rift models fetch` gets it";
    }
    reference_ = reference_of(GetParam().golden_name);
    weights_ = load_weights(path);
  }

  /// Gives visit(position, logits) the logits of every token of `ids`, from position 0.
  template <typename Visit>
  void forward_all(MatmulMode mode, const std::vector<TokenId>& ids, const Visit& visit) {
    Runner runner(
        weights_, {.max_batch = kBatch, .max_logit_rows = kLogitRows, .mode = mode}, pool_);
    const DType kv = mode == MatmulMode::kExact ? DType::kF32 : DType::kF16;
    KvCache cache(weights_->config, kv, kContext);
    const std::int64_t vocab = weights_->config.vocab;
    std::vector<float> logits(static_cast<std::size_t>(kLogitRows * vocab));
    for (std::size_t at = 0; at < ids.size(); at += kLogitRows) {
      const auto part =
          std::span(ids).subspan(at, std::min<std::size_t>(kLogitRows, ids.size() - at));
      std::vector<Position> positions(part.size());
      std::iota(positions.begin(), positions.end(), cache.size());
      std::vector<std::int32_t> rows(part.size());
      std::iota(rows.begin(), rows.end(), 0);
      const MatView<float> out(logits.data(), static_cast<std::int64_t>(rows.size()), vocab);
      runner.forward(part, positions, cache, rows, out);
      for (std::int64_t t = 0; t < out.rows; ++t) {
        visit(at + static_cast<std::size_t>(t), std::span<const float>(out.row_span(t)));
      }
    }
  }

  double mean_nll(MatmulMode mode) {
    const auto ids = json::value_to<std::vector<TokenId>>(reference_.at("nll").at("ids"));
    double sum = 0.0;
    forward_all(mode, ids, [&](std::size_t position, std::span<const float> logits) {
      if (position + 1 < ids.size()) {
        const auto next = static_cast<std::size_t>(ids[position + 1]);
        sum += log_sum_exp(logits) - static_cast<double>(logits[next]);
      }
    });
    return sum / static_cast<double>(ids.size() - 1);
  }

  double reference_nll() { return reference_.at("nll").at("mean_nll").to_number<double>(); }

  json::value reference_;
  std::shared_ptr<const Weights> weights_;
  ThreadPool pool_{static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U))};
};

/// A prompt of the reference and its greedy continuation as one sequence.
struct Sequence {
  explicit Sequence(const json::value& prompt)
      : ids(json::value_to<std::vector<TokenId>>(prompt.at("ids"))),
        prompt_size(ids.size()),
        greedy(json::value_to<std::vector<TokenId>>(prompt.at("greedy_ids"))),
        margins(json::value_to<std::vector<double>>(prompt.at("greedy_margin"))) {
    ids.insert(ids.end(), greedy.begin(), greedy.end());
  }
  std::vector<TokenId> ids;
  std::size_t prompt_size;
  std::vector<TokenId> greedy;
  std::vector<double> margins;
};

TEST_P(PublishedModel, ExactModeHasTheReferenceLogitsAndGreedyTokens) {
  constexpr double kTolerance = 2e-3;
  for (const json::value& prompt : reference_.at("prompts").as_array()) {
    const Sequence sequence(prompt);
    forward_all(MatmulMode::kExact, sequence.ids, [&](std::size_t at, std::span<const float> row) {
      if (at < sequence.prompt_size) {
        const auto top = json::value_to<std::vector<std::size_t>>(prompt.at("top_ids").at(at));
        const auto logits = json::value_to<std::vector<double>>(prompt.at("top_logits").at(at));
        for (std::size_t i = 0; i < top.size(); ++i) {
          ASSERT_NEAR(static_cast<double>(row[top[i]]), logits[i], kTolerance)
              << prompt.at("name") << " position " << at << " token " << top[i];
        }
        ASSERT_NEAR(log_sum_exp(row), prompt.at("logsumexp").at(at).to_number<double>(), kTolerance)
            << prompt.at("name") << " position " << at;
      }
      const std::size_t step = at + 1 - sequence.prompt_size;
      if (at + 1 >= sequence.prompt_size && step < sequence.greedy.size()) {
        ASSERT_EQ(best(row), sequence.greedy[step]) << prompt.at("name") << " step " << step;
      }
    });
  }
}

TEST_P(PublishedModel, ExactModeHasTheReferenceMeanNll) {
  EXPECT_NEAR(mean_nll(MatmulMode::kExact), reference_nll(), 1e-4);
}

TEST_P(PublishedModel, QuantizedModeStaysNearTheReferenceLogits) {
  constexpr double kTolerance = 0.6;
  constexpr double kClearMargin = 1.0;
  double worst = 0.0;
  for (const json::value& prompt : reference_.at("prompts").as_array()) {
    const Sequence sequence(prompt);
    forward_all(
        MatmulMode::kQuantized, sequence.ids, [&](std::size_t at, std::span<const float> row) {
          if (at + 1 == sequence.prompt_size) {
            const auto top = json::value_to<std::vector<std::size_t>>(prompt.at("top_ids").at(at));
            const auto logits = json::value_to<std::vector<double>>(prompt.at("top_logits").at(at));
            const double expected_sum = prompt.at("logsumexp").at(at).to_number<double>();
            const double sum = log_sum_exp(row);
            for (std::size_t i = 0; i < top.size(); ++i) {
              const double actual = static_cast<double>(row[top[i]]) - sum;
              worst = std::max(worst, std::fabs(actual - (logits[i] - expected_sum)));
            }
          }
          const std::size_t step = at + 1 - sequence.prompt_size;
          if (at + 1 >= sequence.prompt_size && step < sequence.greedy.size() &&
              sequence.margins[step] > kClearMargin) {
            EXPECT_EQ(best(row), sequence.greedy[step]) << prompt.at("name") << " step " << step;
          }
        });
  }
  EXPECT_LE(worst, kTolerance);
  RecordProperty("worst_log_probability_difference", std::to_string(worst));
}

TEST_P(PublishedModel, QuantizedModeHasTheReferenceMeanNll) {
  const double nll = mean_nll(MatmulMode::kQuantized);
  EXPECT_NEAR(nll, reference_nll(), 0.02);
  RecordProperty("mean_nll_difference", std::to_string(nll - reference_nll()));
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         PublishedModel,
                         ::testing::ValuesIn(kFiles),
                         [](const auto& param_info) {
                           return std::string(param_info.param.label);
                         });

}  // namespace
}  // namespace rift::model
