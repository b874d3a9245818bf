// SPDX-License-Identifier: Apache-2.0
#include "model/config.h"

#include "common/error.h"
#include "model/gguf.h"
#include "model/weights.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/gguf_builder.h"
#include "tests/unit/model/temporary_folder.h"

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace rift::model {
namespace {

namespace json = boost::json;

constexpr double kEps = std::numeric_limits<float>::epsilon();

json::object llama_json() {
  return json::parse(R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,
      "max_position_embeddings":256,"num_attention_heads":4,"num_hidden_layers":3,
      "num_key_value_heads":2,"rms_norm_eps":1e-5,"vocab_size":320,"rope_theta":10000.0})")
      .as_object();
}

void expect_json_refused(const json::object& document, Errc code, std::string_view phrase) {
  expect_error(code, phrase, [&] { (void)config_from_json(document, "config.json"); });
}

TEST(ConfigJson, FillsWhatIsNotStated) {
  json::object document = llama_json();
  document.erase("num_key_value_heads");
  document["head_dim"] = nullptr;
  const ModelConfig config = config_from_json(document, "tiny");
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FLOAT_EQ(config.attention_scale, 0.25F);
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.rope_layout, RopeLayout::kHalf);
  EXPECT_EQ(config.name, "tiny");
}

TEST(ConfigJson, GivesPlainRopeFrequencies) {
  const ModelConfig config = config_from_json(llama_json(), "tiny");
  ASSERT_EQ(config.rope_frequencies.size(), 8U);
  EXPECT_EQ(config.rope_frequencies[0], 1.0F);
  EXPECT_NEAR(config.rope_frequencies[4], 0.01, kEps * 0.01);  // 10000^(-1/2)
}

TEST(ConfigJson, DividesFrequenciesUnderLinearScaling) {
  json::object document = llama_json();
  document["rope_scaling"] = json::object{{"type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(config_from_json(document, "tiny").rope_frequencies[0], 0.25F);
}

TEST(ConfigJson, ScalesFrequenciesAsLlama3) {
  json::object document = llama_json();
  document["rope_parameters"] = json::object{{"rope_type", "llama3"},
                                             {"rope_theta", 10000.0},
                                             {"factor", 8.0},
                                             {"low_freq_factor", 1.0},
                                             {"high_freq_factor", 4.0},
                                             {"original_max_position_embeddings", 32}};
  const auto frequencies = config_from_json(document, "tiny").rope_frequencies;
  // Wavelengths are 2 pi 10^(i/2): 6.28 is below 32/4 and stays, 19.9 lies between, 62.8 is above
  // 32 and is divided by 8.
  EXPECT_EQ(frequencies[0], 1.0F);
  const double f = 1.0 / std::sqrt(10.0);
  const double kept = (32.0 * f / (2.0 * M_PI) - 1.0) / 3.0;
  EXPECT_NEAR(frequencies[1], f * ((1.0 - kept) / 8.0 + kept), kEps * f);
  EXPECT_NEAR(frequencies[2], 0.1 / 8.0, kEps * 0.0125);
}

TEST(ConfigJson, NamesRopeScalingThatIsNotKnown) {
  json::object document = llama_json();
  document["rope_scaling"] = json::object{{"rope_type", "yarn"}, {"factor", 4.0}};
  expect_json_refused(document, Errc::kUnsupported, "rope scaling 'yarn'");
}

TEST(ConfigJson, NamesAnArchitectureThatCannotRun) {
  json::object document = llama_json();
  document["model_type"] = "gpt_oss";
  expect_json_refused(document, Errc::kUnsupported, "architecture 'gpt_oss'");
  document.erase("model_type");
  expect_json_refused(document, Errc::kCorrupt, "no model_type");
}

TEST(ConfigJson, NamesKeysThatAreAbsentOrWrong) {
  json::object document = llama_json();
  document.erase("hidden_size");
  expect_json_refused(document, Errc::kCorrupt, "no hidden_size");
  document["hidden_size"] = "64";
  expect_json_refused(document, Errc::kCorrupt, "hidden_size is not an integer");
  document["hidden_size"] = -1;
  expect_json_refused(document, Errc::kCorrupt, "hidden_size is -1, not between 1 and");
  document["hidden_size"] = std::int64_t{1} << 40;
  expect_json_refused(document, Errc::kCorrupt, "hidden_size is 1099511627776");
}

TEST(ConfigJson, RefusesLayerCountsAndHeadsThatCannotBe) {
  json::object document = llama_json();
  document["num_hidden_layers"] = 1'000'000'000;
  expect_json_refused(document, Errc::kCorrupt, "num_hidden_layers is 1000000000");
  document = llama_json();
  document["num_key_value_heads"] = 3;
  expect_json_refused(document, Errc::kCorrupt, "4 query heads cannot share 3 KV heads");
  document = llama_json();
  document["head_dim"] = 12;
  expect_json_refused(document, Errc::kUnsupported, "head dimension 12");
  document = llama_json();
  document["rms_norm_eps"] = 0.0;
  expect_json_refused(document, Errc::kCorrupt, "rms_norm_eps is 0");
}

TEST(ConfigJson, RefusesWhatTheForwardPassDoesNotCompute) {
  const auto with = [](std::string_view key, const json::value& value) {
    json::object document = llama_json();
    document[key] = value;
    return document;
  };
  expect_json_refused(with("attention_bias", true), Errc::kUnsupported, "attention_bias");
  expect_json_refused(with("mlp_bias", true), Errc::kUnsupported, "mlp_bias");
  expect_json_refused(with("hidden_act", "gelu"), Errc::kUnsupported, "hidden_act 'gelu'");
  expect_json_refused(with("use_sliding_window", true), Errc::kUnsupported, "sliding");
  expect_json_refused(
      with("layer_types", json::array{"sliding_attention"}), Errc::kUnsupported, "sliding");
  expect_json_refused(
      with("quantization_config", json::object{}), Errc::kUnsupported, "quantised checkpoint");
  expect_json_refused(with("partial_rotary_factor", 0.5), Errc::kUnsupported, "partial_rotary");
}

ModelConfig config_of(const GgufBuilder& b) {
  return config_from_gguf(*GgufFile::parse(b.bytes(), "tiny.gguf"));
}

// A tiny model's metadata with more keys behind it and the embedding as its only tensor.
template <typename More>
GgufBuilder tiny_with(const std::string& architecture, std::uint64_t keys, const More& more) {
  GgufBuilder b;
  b.header(1, kTinyKeys + keys);
  put_tiny_metadata(b, architecture);
  more(b);
  b.tensor("token_embd.weight", {32, 16}, 0, 0).data(32 * 16 * 4);
  return b;
}

void expect_gguf_refused(const GgufBuilder& b, Errc code, std::string_view phrase) {
  expect_error(code, phrase, [&] { (void)config_of(b); });
}

TEST(ConfigGguf, ReadsSizesAndRopeLayout) {
  const auto nothing = [](GgufBuilder&) {};
  const ModelConfig llama = config_of(tiny_with("llama", 0, nothing));
  EXPECT_EQ(llama.head_dim, 8);
  EXPECT_EQ(llama.kv_heads, 2);
  EXPECT_EQ(llama.vocab, 16);
  EXPECT_TRUE(llama.tied_embeddings);
  EXPECT_EQ(llama.rope_layout, RopeLayout::kInterleaved);
  const ModelConfig qwen2 = config_of(tiny_with("qwen2", 0, nothing));
  EXPECT_EQ(qwen2.rope_layout, RopeLayout::kHalf);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_TRUE(config_of(tiny_with("qwen3", 0, nothing)).qk_norm);
}

TEST(ConfigGguf, AppliesLinearScaling) {
  const auto b = tiny_with("llama", 2, [](GgufBuilder& more) {
    more.key_string("llama.rope.scaling.type", "linear").key_f32("llama.rope.scaling.factor", 2.0F);
  });
  EXPECT_EQ(config_of(b).rope_frequencies[0], 0.5F);
}

TEST(ConfigGguf, DividesFrequenciesByRopeFreqs) {
  GgufBuilder b;
  b.header(2, kTinyKeys);
  put_tiny_metadata(b, "llama");
  b.tensor("token_embd.weight", {32, 16}, 0, 0).tensor("rope_freqs.weight", {4}, 0, 2048);
  b.data(2048 + 16);
  GgufBuilder divisors;
  divisors.put(1.0F).put(1.0F).put(2.0F).put(8.0F);
  b.overwrite_tail(divisors.text());
  const auto frequencies = config_of(b).rope_frequencies;
  EXPECT_EQ(frequencies[0], 1.0F);
  EXPECT_NEAR(frequencies[2], 0.01 / 2, kEps * 0.005);
  EXPECT_NEAR(frequencies[3], 0.001 / 8, kEps * 0.000125);
}

TEST(ConfigGguf, RefusesRopeFreqsOfZeroOrAnotherSize) {
  GgufBuilder zero;
  zero.header(2, kTinyKeys);
  put_tiny_metadata(zero, "llama");
  zero.tensor("token_embd.weight", {32, 16}, 0, 0).tensor("rope_freqs.weight", {4}, 0, 2048);
  zero.data(2048 + 16);
  expect_gguf_refused(zero, Errc::kCorrupt, "rope_freqs.weight is 0");
  GgufBuilder size;
  size.header(2, kTinyKeys);
  put_tiny_metadata(size, "llama");
  size.tensor("token_embd.weight", {32, 16}, 0, 0).tensor("rope_freqs.weight", {5}, 0, 2048);
  size.data(2048 + 32);
  expect_gguf_refused(size, Errc::kCorrupt, "rope_freqs.weight has 5 elements");
}

TEST(ConfigGguf, NamesWhatCannotRun) {
  expect_gguf_refused(
      tiny_with("gemma3", 0, [](GgufBuilder&) {}), Errc::kUnsupported, "architecture 'gemma3'");
  expect_gguf_refused(
      tiny_with("llama",
                1,
                [](GgufBuilder& more) { more.key_string("llama.rope.scaling.type", "yarn"); }),
      Errc::kUnsupported,
      "rope scaling 'yarn'");
  expect_gguf_refused(
      tiny_with("llama", 1, [](GgufBuilder& more) { more.key_u32("llama.expert_count", 8); }),
      Errc::kUnsupported,
      "llama.expert_count is not 0");
  expect_gguf_refused(
      tiny_with(
          "llama", 1, [](GgufBuilder& more) { more.key_u32("llama.rope.dimension_count", 4); }),
      Errc::kUnsupported,
      "rope over 4 of 8");
}

TEST(ConfigGguf, NamesAbsentKeys) {
  GgufBuilder b;
  b.header(0, 1).key_string("general.architecture", "llama");
  expect_gguf_refused(b, Errc::kCorrupt, "no llama.block_count");
  GgufBuilder none;
  none.header(0, 0);
  expect_gguf_refused(none, Errc::kCorrupt, "no general.architecture");
}

TEST(TinyGguf, LoadsWithAllItsTensors) {
  const TemporaryFolder folder;
  tiny_model("llama", tiny_llama_tensors()).save(folder.path() / "tiny.gguf");
  const auto weights = load_weights(folder.path() / "tiny.gguf");
  EXPECT_EQ(weights->layers.size(), 1U);
  EXPECT_EQ(weights->layers[0].down.rows, 32);
  EXPECT_EQ(weights->layers[0].down.cols, 64);
}

TEST(TinyGguf, IsRefusedWithATensorMissingMisshapenUnknownOrOfAnotherType) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  const auto load = [&] { (void)load_weights(path); };
  auto tensors = tiny_llama_tensors();
  tensors.erase(tensors.begin() + 3);
  tiny_model("llama", tensors).save(path);
  expect_error(Errc::kCorrupt, "no tensor 'blk.0.attn_k.weight'", load);
  tensors = tiny_llama_tensors();
  tensors[3].dims = {16, 32};
  tiny_model("llama", tensors).save(path);
  expect_error(Errc::kCorrupt, "'blk.0.attn_k.weight' has shape [32, 16], the configuration", load);
  tensors = tiny_llama_tensors();
  tensors.push_back({"blk.0.attn_output.bias", {32}});
  tiny_model("llama", tensors).save(path);
  expect_error(Errc::kUnsupported, "tensor 'blk.0.attn_output.bias' (1 such in all)", load);
}

TEST(TinyGguf, FingerprintChangesWithItsDataShapeAndConfiguration) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  const auto fingerprint = [&](const GgufBuilder& b) {
    b.save(path);
    return load_weights(path)->fingerprint;
  };
  const GgufBuilder model = tiny_model("llama", tiny_llama_tensors());
  const std::string first = fingerprint(model);
  EXPECT_EQ(first, fingerprint(model));
  GgufBuilder other_data = model;
  EXPECT_NE(first, fingerprint(other_data.overwrite_tail("x")));
  auto tensors = tiny_llama_tensors();
  tensors.push_back({"output.weight", {32, 16}});  // the same shape, untied
  EXPECT_NE(first, fingerprint(tiny_model("llama", tensors)));
}

}  // namespace
}  // namespace rift::model
