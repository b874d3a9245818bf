// SPDX-License-Identifier: Apache-2.0
#include "cli/models/inspect.h"

#include "common/error.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/gguf_builder.h"
#include "tests/unit/model/temporary_folder.h"

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace rift::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::filesystem::path golden_models() {
  const char* env = std::getenv("RIFT_GOLDEN");
  return std::filesystem::path(env != nullptr ? env : RIFT_GOLDEN_DEFAULT) / "models";
}

PolicySpec spec_of(std::int32_t budget, std::int32_t block) {
  PolicySpec spec;
  spec.budget = budget;
  spec.block = block;
  return spec;
}

TEST(BudgetCost, CountsRingSlotsAndStaging) {
  // L = 2, G = 3, D = 8 in f16: a vector takes 16 bytes. B = 100: r = 50, k = 50, 3 slots of 16.
  const KvGeometry geometry{2, 3, 8, DType::kF16};
  const BudgetCost cost = budget_cost(geometry, spec_of(100, 16), 4);
  EXPECT_EQ(cost.recent, 50);
  EXPECT_EQ(cost.layout.slots_per_head, 3);
  EXPECT_EQ(cost.unused, 2);
  EXPECT_EQ(cost.layout.ring_bytes(), 6U * 2 * (50 + 4 + 1) * 16);
  EXPECT_EQ(cost.layout.working_set_bytes() - cost.layout.ring_bytes(), 6U * 3 * 2 * 16 * 16);
}

TEST(BudgetCost, RefusesBudgetsBelowOne) {
  expect_error(Errc::kInvalidArgument, "budget is 0", [] {
    (void)budget_cost(KvGeometry{1, 1, 8, DType::kF16}, spec_of(0, 16), 4);
  });
}

TEST(Inspect, ShowsATinyModel) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  model::tiny_model("llama", model::tiny_llama_tensors()).save(path);
  const ModelSummary summary = summarise_model(path);
  // 16 x 32 + 32 + 2 x 32 x 32 + 2 x 16 x 32 + 32 + 3 x 64 x 32 + 32.
  EXPECT_EQ(summary.parameters, 9824);
  const std::string text = inspect_text(summary, spec_of(64, 16), 4);
  // One layer, two heads of 8: 1 x 2 x 8 x 2 x 2 bytes.
  EXPECT_THAT(text, HasSubstr("64 bytes per token in f16"));
  EXPECT_THAT(text, HasSubstr("32 recent and 32 selected positions (2 slots per head)"));
  EXPECT_THAT(text, HasSubstr("blk.0.ffn_gate.weight"));
  EXPECT_THAT(text, HasSubstr("[64, 32]"));
  EXPECT_THAT(text, Not(HasSubstr("cannot be run")));
}

TEST(Inspect, ShowsAModelThatCannotRun) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  model::tiny_model("gemma9", model::tiny_llama_tensors()).save(path);
  const ModelSummary summary = summarise_model(path);
  EXPECT_EQ(summary.architecture, "gemma9");
  EXPECT_THAT(summary.cannot_run, HasSubstr("architecture 'gemma9' cannot be run"));
  ASSERT_TRUE(summary.geometry.has_value());
  EXPECT_EQ(summary.geometry->bytes_per_position(), 64U);
}

TEST(Inspect, ShortensArraysAndEscapesWhatWouldSteerATerminal) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "tiny.gguf";
  model::GgufBuilder b;
  b.header(0, 2).key_string("general.name", "\x1b[2Jboo\n");
  b.key("numbers", 9).put<std::uint32_t>(4).put<std::uint64_t>(9);
  for (std::uint32_t i = 0; i < 9; ++i) {
    b.put(i);
  }
  b.save(path);
  const std::string text = inspect_text(summarise_model(path), spec_of(64, 16), 4);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("u32 array [9]"));
  EXPECT_THAT(text, HasSubstr("[0,1,2,3,4,5] (first of them)"));
  EXPECT_THAT(text, HasSubstr("not stated"));
}

TEST(Inspect, WritesJson) {
  const auto value =
      inspect_json(summarise_model(golden_models() / "qwen2"), spec_of(1024, 16), 11);
  EXPECT_EQ(value.at("architecture"), "qwen2");
  EXPECT_EQ(value.at("can_run"), true);
  EXPECT_EQ(value.at("parameters"), 136000);  // total_parameters of the golden's index
  // 3 layers, 2 heads of 16.
  EXPECT_EQ(value.at("kv_bytes_per_token").to_number<int>(), 3 * 2 * 16 * 2 * 2);
  EXPECT_EQ(value.at("budget").at("slots_per_head"), 32);
  EXPECT_EQ(value.at("metadata").at("vocab_size").at("value"), 384);
  EXPECT_EQ(value.at("tensors").as_array().size(), 38U);
}

}  // namespace
}  // namespace rift::cli
