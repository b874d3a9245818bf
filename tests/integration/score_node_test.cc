// SPDX-License-Identifier: Apache-2.0
// The whole score node over the in-process transport, with a draft node of the test's own: what
// arrives in its memory is what the reference recorded (golden data, models/llama).
#include "model/weights.h"
#include "policy/budget.h"
#include "score_node/service.h"
#include "tests/contract/harness.h"
#include "tests/golden/golden_data.h"
#include "transport/inproc/inproc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace rift::score_node {
namespace {

using rift::testing::Tensor;
using transport::Role;
using transport::test::run_until;

constexpr std::int32_t kContext = 112;
constexpr std::int32_t kPrompt = 80;

PolicySpec small_policy() {
  PolicySpec spec;
  spec.budget = 40;  // r = 20, five slots of 4
  spec.block = 4;
  spec.window = 16;
  spec.staging_percent = 20;
  return spec;
}

class ScoreNodeTest : public ::testing::Test {
 protected:
  ScoreNodeTest() {
    const auto folder = rift::testing::golden_path("models/llama");
    golden_ = rift::testing::golden_tensors(folder / "golden.safetensors");
    tolerance_ = rift::testing::golden_json("models/llama/golden.json")
                     .at("logits_abs_tolerance")
                     .to_number<float>();
    tokens_ = golden_.at("input_ids").ints;
    const std::vector<TokenId>& decoded = golden_.at("decode_ids").ints;
    tokens_.insert(tokens_.end(), decoded.begin(), decoded.end());

    ScoreNodeOptions options;
    options.weights = model::load_weights(folder);
    options.engine.chunk = 32;
    options.engine.kv_dtype = DType::kF32;
    options.engine.mode = kernels::MatmulMode::kExact;
    options.send_chunks = 2;
    options.send_chunk_bytes = 4096;
    transport::TransportOptions link;
    link.node = node_info(*options.weights, DType::kF32, "score0");
    link.node.version = "0.1.0";
    link.node.incarnation = {1};
    geometry_ = link.node.geometry;
    score_transport_ = make_inproc_transport(io_, network_, link);
    node_ = std::make_unique<ScoreNode>(io_, *score_transport_, options);
    port_ = node_->start({"score", 0});

    link.node.role = Role::kDraft;
    link.node.node_id = "draft0";
    link.node.incarnation = {2};
    draft_.transport = make_inproc_transport(io_, network_, link);
    layout_ = policy::plan_layout(small_policy(), geometry_, kContext, 3);
    draft_.region = draft_.transport->allocate(kOffset + layout_.total_bytes());
    draft_.transport->connect(
        {"score", port_}, std::chrono::seconds(5), draft_.handler(), draft_.on_failed());
    EXPECT_TRUE(run_until(io_, [&] { return !draft_.ups.empty(); }));
  }
  ~ScoreNodeTest() override {
    node_->stop();
    draft_.transport->stop();
    score_transport_->stop();
  }

  void send(const transport::Message& message) { ASSERT_TRUE(draft_.peer().send(message).ok()); }
  void open() {
    transport::ScoreOpen open;
    open.session = kSession;
    open.tokens.assign(tokens_.begin(), tokens_.begin() + kPrompt);
    open.max_context = kContext;
    open.policy = small_policy();
    open.layout = layout_;
    open.arena_region = draft_.region->id();
    open.arena_offset = kOffset;
    send(open);
  }
  /// The next message; the session's tables follow it.
  transport::RefreshReady next_ready() {
    const std::size_t seen = draft_.messages.size();
    EXPECT_TRUE(run_until(io_, [&] { return draft_.messages.size() > seen; }));
    const auto* ready = std::get_if<transport::RefreshReady>(&draft_.messages.back());
    if (ready == nullptr) {
      ADD_FAILURE() << "another message came";
      return {};
    }
    for (const transport::TableUpdate& u : ready->updates) {
      table_[{u.layer, u.head, u.entry}] = u;
    }
    send(transport::Installed{kSession, ready->epoch, ready->wave});
    return *ready;
  }

  void expect_vector(std::uint64_t at,
                     std::int32_t layer,
                     std::int32_t head,
                     const char* what,
                     Position position) {
    const Tensor& t = golden_.at("layer." + std::to_string(layer) + "." + what);
    const auto dim = static_cast<std::size_t>(geometry_.head_dim);
    const float* want =
        t.floats.data() +
        (static_cast<std::size_t>(head) * kContext + static_cast<std::size_t>(position)) * dim;
    std::vector<float> got(dim);
    std::memcpy(got.data(), draft_.region->bytes().data() + kOffset + at, dim * sizeof(float));
    for (std::size_t i = 0; i < dim; ++i) {
      ASSERT_NEAR(got[i], want[i], tolerance_)
          << what << " layer " << layer << " head " << head << " position " << position;
    }
  }
  void expect_table_contents() {
    for (const auto& [key, u] : table_) {
      for (std::int32_t i = 0; i < u.count; ++i) {
        const Position position = static_cast<Position>(u.block) * layout_.block + i;
        const std::uint64_t at =
            layout_.slot_offset(u.slot) + static_cast<std::uint64_t>(i) * geometry_.vector_bytes();
        expect_vector(at, u.layer, u.head, "k", position);
        expect_vector(at + layout_.block_bytes() / 2, u.layer, u.head, "v", position);
      }
    }
  }

  static constexpr std::uint64_t kOffset = 256;
  static constexpr SessionId kSession{42};
  boost::asio::io_context io_;
  transport::InprocNetwork network_;
  std::map<std::string, Tensor> golden_;
  float tolerance_ = 0.0F;
  std::vector<TokenId> tokens_;  // 112, those of the recorded keys and values
  KvGeometry geometry_;
  WorkingSetLayout layout_;
  std::unique_ptr<transport::Transport> score_transport_;
  std::unique_ptr<ScoreNode> node_;
  std::uint16_t port_ = 0;
  transport::test::Node draft_;
  std::map<std::tuple<int, int, std::uint32_t>, transport::TableUpdate> table_;
};

TEST_F(ScoreNodeTest, FillsTheWorkingSetWithTheModelsKeysAndValues) {
  open();
  const transport::RefreshReady ready = next_ready();
  EXPECT_TRUE(ready.last_wave);
  EXPECT_EQ(ready.covered_tokens, kPrompt);
  EXPECT_EQ(std::ssize(ready.updates), geometry_.layers * geometry_.kv_heads * 5);
  EXPECT_GT(ready.ingest_ns, 0U);
  EXPECT_GT(ready.history_bytes, kPrompt * geometry_.bytes_per_position());
  expect_table_contents();
  for (Position p = ready.ring_begin; p < kPrompt; ++p) {
    const auto at =
        static_cast<std::uint64_t>(p % layout_.ring_capacity) * geometry_.vector_bytes();
    expect_vector(layout_.key_ring_offset(1, 1) + at, 1, 1, "k", p);
    expect_vector(layout_.value_ring_offset(1, 1) + at, 1, 1, "v", p);
  }
}

TEST_F(ScoreNodeTest, RefreshesInWavesThroughSmallStaging) {
  open();
  next_ready();
  send(transport::Commit{kSession, kPrompt, {tokens_.begin() + kPrompt, tokens_.end()}});
  send(transport::RefreshRequest{kSession, Epoch{1}, kContext});
  transport::RefreshReady ready = next_ready();
  EXPECT_EQ(ready.epoch, Epoch{1});
  EXPECT_EQ(ready.covered_tokens, kContext);
  std::uint32_t waves = 1;
  while (!ready.last_wave) {
    EXPECT_LE(std::ssize(ready.updates), layout_.staging_slots);
    ready = next_ready();
    EXPECT_EQ(ready.wave, waves++);
  }
  EXPECT_GT(waves, 1U);
  expect_table_contents();
}

TEST_F(ScoreNodeTest, ARefusedSessionSaysWhyAndTheNodeGoesOn) {
  open();
  next_ready();
  send(transport::Commit{kSession, kPrompt + 5, {1}});
  ASSERT_TRUE(run_until(io_, [&] {
    return std::holds_alternative<transport::SessionRefused>(draft_.messages.back());
  }));
  EXPECT_EQ(node_->sessions(), 0U);
  table_.clear();
  open();  // the cached history is taken over
  EXPECT_EQ(next_ready().covered_tokens, kPrompt);
  expect_table_contents();
}

TEST_F(ScoreNodeTest, ALostDraftNodeLeavesNoSession) {
  open();
  ASSERT_TRUE(run_until(io_, [&] { return node_->sessions() == 1; }));
  network_.kill("draft0");
  EXPECT_TRUE(run_until(io_, [&] { return node_->sessions() == 0; }));
}

TEST_F(ScoreNodeTest, StopsInTheMiddleOfWork) {
  open();
  ASSERT_TRUE(run_until(io_, [&] { return node_->sessions() == 1; }));
  node_->stop();
  score_transport_->stop();
  io_.restart();
  io_.poll();
  EXPECT_TRUE(draft_.messages.empty());
}

}  // namespace
}  // namespace rift::score_node
