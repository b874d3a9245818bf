// SPDX-License-Identifier: Apache-2.0
#include "model/weights.h"

#include "common/error.h"
#include "model/load_model.h"
#include "model/safetensors.h"
#include "tests/golden/published_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace rift::model {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path golden_models() {
  const char* env = std::getenv("RIFT_GOLDEN");
  return fs::path(env != nullptr ? env : RIFT_GOLDEN_DEFAULT) / "models";
}

// A copy of a golden checkpoint by links, with the named configuration as its config.json.
class Checkpoint {
 public:
  Checkpoint(const std::string& name, const std::string& config_file) {
    std::string pattern = (fs::temp_directory_path() / "rift-weights-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
    folder_ = root_ / name;  // the folder's name becomes the model's
    fs::create_directory(folder_);
    for (const auto& entry : fs::directory_iterator(golden_models() / name)) {
      if (entry.path().filename().string().starts_with("model")) {
        fs::create_symlink(entry.path(), folder_ / entry.path().filename());
      }
    }
    fs::copy_file(golden_models() / name / config_file, folder_ / "config.json");
    fs::permissions(folder_ / "config.json", fs::perms::owner_all);
  }
  ~Checkpoint() { fs::remove_all(root_); }
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;
  [[nodiscard]] const fs::path& folder() const { return folder_; }

 private:
  fs::path root_;
  fs::path folder_;
};

class GoldenCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenCheckpoint, GivesTheSameWeightsInBothConfigurationStyles) {
  const Checkpoint current(GetParam(), "config.json");
  const Checkpoint legacy(GetParam(), "config.legacy.json");
  const auto a = load_weights(current.folder());
  const auto b = load_weights(legacy.folder());
  EXPECT_EQ(a->config, b->config);
  EXPECT_EQ(a->config.name, GetParam());
  EXPECT_EQ(a->fingerprint, b->fingerprint);
  EXPECT_EQ(a->fingerprint.size(), 64U);
}

TEST_P(GoldenCheckpoint, CountsTheBytesOfAllItsTensors) {
  const fs::path folder = golden_models() / GetParam();
  std::uint64_t expected = 0;
  const auto file = Safetensors::open(folder);
  for (const Safetensor& tensor : file->tensors()) {
    expected += tensor.bytes;
  }
  EXPECT_EQ(load_weights(folder)->bytes, expected);
}

TEST_P(GoldenCheckpoint, IsTheSameModelLoadedToComputeWith) {
  const fs::path folder = golden_models() / GetParam();
  const auto plain = load_weights(folder);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> progress;
  LoadOptions options;
  options.threads = 2;
  options.on_progress = [&](std::uint64_t done, std::uint64_t total) {
    progress.emplace_back(done, total);
  };
  const LoadedModel loaded = load_model(folder, options);
  EXPECT_EQ(loaded.weights->config, plain->config);
  EXPECT_EQ(loaded.weights->fingerprint, plain->fingerprint);
  EXPECT_GT(loaded.seconds.open, 0.0);
  // The embedding, seven matrices of every layer, and the output where it is one of its own.
  const bool tied = plain->config.tied_embeddings;
  ASSERT_EQ(std::ssize(progress), 1 + 7 * plain->config.layers + (tied ? 0 : 1));
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back().first, progress.back().second);
  EXPECT_LT(progress.front().first, progress.front().second);
  EXPECT_EQ(tied, loaded.weights->output.data == loaded.weights->embedding.data);
}

INSTANTIATE_TEST_SUITE_P(All,
                         GoldenCheckpoint,
                         ::testing::Values("llama", "llama_tied", "qwen2", "qwen3"),
                         [](const auto& param) { return std::string(param.param); });

TEST(Weights, OfTheGoldenLlamaHaveItsShapes) {
  const auto weights = load_weights(golden_models() / "llama");
  const ModelConfig& c = weights->config;
  EXPECT_EQ(c.architecture, Architecture::kLlama);
  EXPECT_EQ(c.layers, 3);
  EXPECT_EQ(c.head_dim, 24);  // unlike hidden / heads = 16
  EXPECT_FALSE(c.tied_embeddings);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5F);
  EXPECT_NE(weights->output.data, weights->embedding.data);
  ASSERT_EQ(weights->layers.size(), 3U);
  EXPECT_EQ(weights->layers[2].q.rows, 96);
  EXPECT_EQ(weights->layers[2].k.rows, 48);
  EXPECT_EQ(weights->layers[2].o.cols, 96);
  EXPECT_EQ(weights->layers[2].down.cols, 128);
  EXPECT_TRUE(weights->layers[2].q_bias.empty());
}

TEST(Weights, OfTiedFloat16LlamaShareTheEmbedding) {
  const auto weights = load_weights(golden_models() / "llama_tied");
  EXPECT_TRUE(weights->config.tied_embeddings);
  EXPECT_EQ(weights->output.data, weights->embedding.data);
  EXPECT_EQ(weights->embedding.dtype, DType::kF16);
}

TEST(Weights, OfQwen2HaveBiasesAndOfQwen3HaveHeadNorms) {
  const auto qwen2 = load_weights(golden_models() / "qwen2");
  EXPECT_EQ(qwen2->layers[0].q_bias.size(), 64U);
  EXPECT_EQ(qwen2->layers[0].v_bias.size(), 32U);
  const auto qwen3 = load_weights(golden_models() / "qwen3");
  EXPECT_EQ(qwen3->layers[0].q_norm.size(), 32U);
  EXPECT_EQ(qwen3->layers[0].gate.dtype, DType::kBF16);
}

TEST(Weights, ConvertVectorsOfBfloat16Exactly) {
  const fs::path folder = golden_models() / "qwen3";
  const auto weights = load_weights(folder);
  const auto file = Safetensors::open(folder);
  const Safetensor* norm = file->find("model.norm.weight");
  ASSERT_NE(norm, nullptr);
  for (std::size_t i = 0; i < weights->output_norm.size(); ++i) {
    // A bfloat16 is the upper half of a float.
    std::uint32_t bits = 0;
    std::memcpy(reinterpret_cast<char*>(&bits) + 2, norm->data + 2 * i, 2);
    float expected = 0;
    std::memcpy(&expected, &bits, 4);
    EXPECT_EQ(weights->output_norm[i], expected) << i;
  }
}

TEST(Weights, OfARealLlamaFileRotateNeighbours) {
  const fs::path path = rift::testing::model_path("SmolLM2-135M-Instruct.Q4_1.gguf");
  RIFT_NEED_MODEL(path);
  const auto weights = load_weights(path);
  EXPECT_EQ(weights->config.architecture, Architecture::kLlama);
  EXPECT_EQ(weights->config.rope_layout, RopeLayout::kInterleaved);
  EXPECT_EQ(weights->config.layers, 30);
  EXPECT_EQ(weights->config.kv_heads, 3);
  EXPECT_EQ(weights->config.vocab, 49152);
  EXPECT_TRUE(weights->config.tied_embeddings);
}

TEST(Weights, OfTheRealDraftHaveItsPublishedShape) {
  const fs::path path = rift::testing::model_path("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
  RIFT_NEED_MODEL(path);
  const auto weights = load_weights(path);
  const ModelConfig& c = weights->config;
  EXPECT_EQ(c.architecture, Architecture::kQwen2);
  EXPECT_EQ(c.layers, 24);
  EXPECT_EQ(c.query_heads, 14);
  EXPECT_EQ(c.kv_heads, 2);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.hidden, 896);
  EXPECT_EQ(c.feed_forward, 4864);
  EXPECT_EQ(c.vocab, 151936);
  EXPECT_EQ(c.context_train, 32768);
  EXPECT_EQ(c.rope_layout, RopeLayout::kHalf);
  // theta = 1e6: the last of 32 frequencies is 1e6^(-62/64); 2 eps.
  EXPECT_NEAR(c.rope_frequencies.back(), std::pow(1e6, -62.0 / 64.0), 2.4e-7 * 1.54e-6);
}

TEST(Weights, AreRefusedForAnArchitectureThatCannotRun) {
  try {
    (void)load_weights(golden_models() / "gemma3");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kUnsupported);
    EXPECT_THAT(error.message(), HasSubstr("gemma3"));
    EXPECT_THAT(error.message(), HasSubstr("llama, qwen2, qwen3"));
  }
}

TEST(Weights, AreNotFoundWhereThereIsNoFile) {
  try {
    (void)load_weights("/nowhere/model.gguf");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::kNotFound);
  }
}

}  // namespace
}  // namespace rift::model
