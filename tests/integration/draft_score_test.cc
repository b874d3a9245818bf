// SPDX-License-Identifier: Apache-2.0
// Draft and score node together over the in-process transport, with a target of the test's own. The
// budget holds the whole history in blocks and ring, so the first draft of every round is the
// reference's greedy token (golden data, models/qwen2) if, and only if, what was streamed is right.
#include "draft_node/service.h"
#include "score_node/service.h"
#include "tests/contract/harness.h"
#include "tests/golden/golden_data.h"
#include "transport/inproc/inproc.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rift {
namespace {

using draft_node::DraftNode;
using draft_node::DraftNodeOptions;
using score_node::ScoreNode;
using score_node::ScoreNodeOptions;
using transport::Role;
using transport::test::run_until;

constexpr SessionId kSession{77};
constexpr std::int32_t kDraftLen = 3;

class DraftScoreTest : public ::testing::Test {
 protected:
  DraftScoreTest() {
    const auto folder = testing::golden_path("models/qwen2");
    const auto golden = testing::golden_tensors(folder / "golden.safetensors");
    tokens_ = golden.at("input_ids").ints;
    prompt_ = static_cast<std::int32_t>(tokens_.size()) - 1;
    const std::vector<TokenId>& decoded = golden.at("decode_ids").ints;
    tokens_.insert(tokens_.end(), decoded.begin(), decoded.end());
    weights_ = model::load_weights(folder);
  }
  ~DraftScoreTest() override {
    if (draft_) {
      draft_->stop();
    }
    if (target_.transport) {
      target_.transport->stop();
    }
    stop_score();
  }

  transport::TransportOptions link(Role role, const std::string& name) const {
    transport::TransportOptions options;
    options.node = draft_node::node_info(*weights_, DType::kF32, name, "tokenizer");
    options.node.role = role;
    return options;
  }
  void start_score(const std::string& name) {
    ScoreNodeOptions options;
    options.weights = weights_;
    options.engine.chunk = 32;
    options.engine.kv_dtype = DType::kF32;
    options.engine.mode = kernels::MatmulMode::kExact;
    options.send_chunks = 2;
    options.send_chunk_bytes = 65536;
    score_transport_ = make_inproc_transport(io_, network_, link(Role::kScore, name));
    score_ = std::make_unique<ScoreNode>(io_, *score_transport_, options);
    score_->start({"score", 7003});
  }
  void stop_score() {
    if (score_) {
      score_->stop();
      score_transport_->stop();
      score_.reset();
      score_transport_.reset();
    }
  }
  void start_draft(draft_node::RefreshMode mode, bool with_score) {
    DraftNodeOptions options;
    options.weights = weights_;
    options.arena_bytes = 4U << 20U;
    options.refresh_mode = mode;
    options.engine.kv_dtype = DType::kF32;
    options.engine.mode = kernels::MatmulMode::kExact;
    options.score_retry = std::chrono::milliseconds(10);
    options.score = transport::Endpoint{"score", 7003};
    draft_ = std::make_unique<DraftNode>(
        io_, make_inproc_transport(io_, network_, link(Role::kDraft, "draft")), options);
    const std::uint16_t port = draft_->start({"draft", 0});
    target_.transport = make_inproc_transport(io_, network_, link(Role::kTarget, "target"));
    target_.transport->connect(
        {"draft", port}, std::chrono::seconds(5), target_.handler(), target_.on_failed());
    ASSERT_TRUE(run_until(
        io_, [&] { return !target_.ups.empty() && draft_->score_connected() == with_score; }));
  }
  template <typename T>
  std::optional<T> await() {
    std::optional<T> result;
    run_until(io_, [&] {
      while (seen_ < target_.messages.size()) {
        if (const T* found = std::get_if<T>(&target_.messages[seen_++])) {
          result = *found;
          return true;
        }
      }
      return false;
    });
    return result;
  }
  void send(const transport::Message& message) { ASSERT_TRUE(target_.peer().send(message).ok()); }

  /// The prompt's last token is left for the first verdict, as the target's own.
  transport::SessionReady open() {
    transport::OpenSession open;
    open.session = kSession;
    open.tokens.assign(tokens_.begin(), tokens_.begin() + prompt_);
    open.max_context = 200;
    open.max_draft_len = kDraftLen;
    open.policy.budget = 160;  // r = 16, nine slots of 16
    open.policy.rho = 0.1F;
    open.policy.block = 16;
    open.policy.delta = 1;
    open.policy.window = 16;
    send(open);
    const auto ready = await<transport::SessionReady>();
    EXPECT_TRUE(ready);
    committed_ = prompt_;
    return ready.value_or(transport::SessionReady{});
  }
  /// One round in which the target accepts what agrees with the reference.
  std::optional<transport::Proposal> round() {
    std::int32_t accepted = 0;
    while (accepted < static_cast<std::int32_t>(proposal_.tokens.size()) &&
           committed_ + 1 < static_cast<std::int32_t>(tokens_.size()) &&
           proposal_.tokens[static_cast<std::size_t>(accepted)] == token(committed_)) {
      ++accepted;
      ++committed_;
    }
    const TokenId next = token(committed_++);
    send(transport::Verdict{kSession, ++round_, accepted, next, committed_, kDraftLen});
    const auto proposal = await<transport::Proposal>();
    EXPECT_TRUE(proposal);
    proposal_ = proposal.value_or(transport::Proposal{});
    return proposal;
  }
  TokenId token(std::int32_t position) const {
    return tokens_.at(static_cast<std::size_t>(position));
  }
  bool more() const { return committed_ + 1 < static_cast<std::int32_t>(tokens_.size()); }

  boost::asio::io_context io_;
  transport::InprocNetwork network_;
  std::shared_ptr<const model::Weights> weights_;
  std::vector<TokenId> tokens_;
  std::int32_t prompt_ = 0;
  std::unique_ptr<transport::Transport> score_transport_;
  std::unique_ptr<ScoreNode> score_;
  std::unique_ptr<DraftNode> draft_;
  transport::test::Node target_;
  std::size_t seen_ = 0;
  std::int32_t committed_ = 0;
  std::uint32_t round_ = 0;
  transport::Proposal proposal_;
};

TEST_F(DraftScoreTest, StreamedKeysAndValuesGiveTheReferencesTokens) {
  start_score("score");
  start_draft(draft_node::RefreshMode::kPause, true);
  const transport::SessionReady ready = open();
  EXPECT_TRUE(ready.score_attached);
  EXPECT_GT(ready.score_history_bytes, 0U);
  int rounds = 0;
  while (more()) {
    const auto proposal = round();
    ASSERT_TRUE(proposal);
    ASSERT_EQ(proposal->tokens.size(), 3U);
    if (more()) {
      EXPECT_EQ(proposal->tokens[0], token(committed_)) << "round " << rounds;
    }
    ++rounds;
  }
  send(transport::CloseSession{kSession});
  const auto closed = await<transport::SessionClosed>();
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->score_lost, 0U);
  ASSERT_EQ(closed->refreshes.size(), static_cast<std::size_t>(rounds) + 1);
  for (const transport::RefreshRecord& record : closed->refreshes) {
    EXPECT_GT(record.total_ns, 0U);
  }
  EXPECT_TRUE(run_until(io_, [&] { return draft_->core().arena().used_bytes() == 0; }));
}

TEST_F(DraftScoreTest, RefreshesWhileDraftingGoesOn) {
  start_score("score");
  start_draft(draft_node::RefreshMode::kStage, true);
  open();
  while (more()) {
    ASSERT_TRUE(round());
  }
  EXPECT_GT(proposal_.refreshes, 0U);
  EXPECT_GT(proposal_.refresh_bytes, 0U);
}

TEST_F(DraftScoreTest, AScoreNodeThatComesBackIsUsedAgain) {
  start_score("first");
  start_draft(draft_node::RefreshMode::kPause, true);
  open();
  ASSERT_TRUE(round());
  network_.kill("first");
  ASSERT_TRUE(run_until(io_, [&] { return !draft_->score_connected(); }));
  ASSERT_TRUE(round());
  const std::uint32_t before = proposal_.refreshes;
  stop_score();
  start_score("second");
  // The new score node fills a second range, which then takes the first one's place.
  const std::uint64_t one = draft_->core().arena().used_bytes();
  ASSERT_TRUE(run_until(io_, [&] { return draft_->core().arena().used_bytes() == 2 * one; }));
  ASSERT_TRUE(run_until(io_, [&] { return draft_->core().arena().used_bytes() == one; }));
  ASSERT_TRUE(round());
  ASSERT_TRUE(round());
  EXPECT_GT(proposal_.refreshes, before);
  if (more()) {
    EXPECT_EQ(proposal_.tokens.at(0), token(committed_));
  }
}

}  // namespace
}  // namespace rift
