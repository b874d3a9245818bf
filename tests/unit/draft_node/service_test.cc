// SPDX-License-Identifier: Apache-2.0
// The whole node on the in-process transport, with a golden checkpoint and scripted neighbours.
#include "draft_node/service.h"

#include "tests/golden/golden_data.h"
#include "transport/inproc/inproc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rift::draft_node {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr SessionId kSession{5};

/// A neighbour of the node that keeps what it is sent.
struct Neighbour {
  std::unique_ptr<transport::Transport> transport;
  std::unique_ptr<transport::Region> region;
  std::shared_ptr<transport::Peer> peer;
  std::vector<transport::Message> messages;

  transport::PeerHandler handler() {
    return {.on_up = [this](std::shared_ptr<transport::Peer> p) { peer = std::move(p); },
            .on_message =
                [this](transport::Peer&, transport::Message message) {
                  messages.push_back(std::move(message));
                },
            .on_lost = [this](transport::Peer&, const Error&) { peer.reset(); }};
  }
  template <typename T>
  std::optional<T> take() {
    for (auto it = messages.begin(); it != messages.end(); ++it) {
      if (T* found = std::get_if<T>(&*it)) {
        std::optional<T> result = std::move(*found);
        messages.erase(it);
        return result;
      }
    }
    return std::nullopt;
  }
};

class DraftNodeTest : public ::testing::Test {
 protected:
  DraftNodeTest() {
    const auto folder = testing::golden_path("models/qwen2");
    const auto golden = testing::golden_tensors(folder / "golden.safetensors");
    prompt_ = golden.at("input_ids").ints;
    expected_ = golden.at("decode_ids").ints;
    options_.weights = model::load_weights(folder);
    options_.arena_bytes = 1U << 20U;
    options_.engine.kv_dtype = DType::kF32;
    options_.engine.mode = kernels::MatmulMode::kExact;
    options_.score_retry = std::chrono::milliseconds(20);
  }
  ~DraftNodeTest() override {
    node_.reset();
    for (Neighbour* n : {&target_, &score_}) {
      n->peer.reset();
      if (n->transport) {
        n->transport->stop();
      }
    }
  }

  void start_score(const std::string& name) {
    score_.transport =
        transport::make_inproc_transport(io_, network_, info(transport::Role::kScore, name));
    score_.region = score_.transport->allocate(4096);
    options_.score =
        transport::Endpoint{"score", score_.transport->listen({"score", 9}, score_.handler())};
  }
  void start_node() {
    node_ = std::make_unique<DraftNode>(
        io_,
        transport::make_inproc_transport(io_, network_, info(transport::Role::kDraft, "draft")),
        options_);
    const std::uint16_t port = node_->start({"draft", 0});
    target_.transport =
        transport::make_inproc_transport(io_, network_, info(transport::Role::kTarget, "target"));
    target_.transport->connect(
        {"draft", port}, std::chrono::seconds(10), target_.handler(), [](const Error& error) {
          ADD_FAILURE() << error.message();
        });
    ASSERT_TRUE(run_until([this] { return target_.peer != nullptr; }));
  }
  transport::TransportOptions info(transport::Role role, const std::string& name) {
    transport::TransportOptions options;
    options.node = node_info(*options_.weights, DType::kF32, name, "tokenizer");
    options.node.role = role;
    return options;
  }
  bool run_until(const std::function<bool()>& condition) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (Clock::now() >= deadline) {
        return false;
      }
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(100));
    }
    return true;
  }
  template <typename T>
  std::optional<T> await(Neighbour& from) {
    std::optional<T> message;
    run_until([&] {
      message = from.take<T>();
      return message.has_value();
    });
    return message;
  }
  transport::OpenSession open(Policy policy) {
    transport::OpenSession message;
    message.session = kSession;
    message.tokens.assign(prompt_.begin(), prompt_.end() - 1);
    message.max_context = 160;
    message.max_draft_len = 16;
    message.policy.policy = policy;
    message.policy.budget = 64;
    return message;
  }
  void send(transport::Message message) { ASSERT_TRUE(target_.peer->send(message).ok()); }

  boost::asio::io_context io_;
  transport::InprocNetwork network_;
  DraftNodeOptions options_;
  std::vector<TokenId> prompt_;
  std::vector<TokenId> expected_;
  Neighbour target_;
  Neighbour score_;
  std::unique_ptr<DraftNode> node_;
};

TEST_F(DraftNodeTest, ProposesTheGoldenContinuation) {
  start_node();
  send(open(Policy::kFull));
  const auto ready = await<transport::SessionReady>(target_);
  ASSERT_TRUE(ready);
  EXPECT_FALSE(ready->score_attached);
  EXPECT_EQ(ready->arena.capacity,
            ready->arena.weights + ready->arena.scratch + options_.arena_bytes);
  send(transport::Verdict{kSession, 1, 0, prompt_.back(), 96, 16});
  const auto proposal = await<transport::Proposal>(target_);
  ASSERT_TRUE(proposal);
  EXPECT_THAT(proposal->tokens, ElementsAreArray(expected_));
  send(transport::CloseSession{kSession});
  const auto closed = await<transport::SessionClosed>(target_);
  ASSERT_TRUE(closed);
  EXPECT_EQ(closed->draft_steps, 16U);
  EXPECT_TRUE(run_until([this] { return node_->core().arena().used_bytes() == 0; }));
}

TEST_F(DraftNodeTest, RefusesWhatDoesNotFitWithTheArithmetic) {
  options_.arena_bytes = 8192;
  start_node();
  send(open(Policy::kFull));
  const auto refused = await<transport::SessionRefused>(target_);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Errc::kResourceExhausted);
  EXPECT_THAT(refused->message, HasSubstr("rings"));
}

TEST_F(DraftNodeTest, DoesNotStartOnADeviceThatIsTooSmall) {
  options_.memory_bytes = 1000;
  EXPECT_THROW(start_node(), Error);
}

TEST_F(DraftNodeTest, DraftsOnAfterItsScoreNodeIsKilled) {
  start_score("score");
  start_node();
  ASSERT_TRUE(run_until([this] { return node_->score_connected(); }));
  send(open(Policy::kRiftDyn));
  const auto opened = await<transport::ScoreOpen>(score_);
  ASSERT_TRUE(opened);
  transport::RefreshReady first;
  first.session = kSession;
  first.covered_tokens = 95;
  first.ring_begin = 95;
  ASSERT_TRUE(score_.peer->send(first).ok());
  const auto ready = await<transport::SessionReady>(target_);
  ASSERT_TRUE(ready);
  EXPECT_TRUE(ready->score_attached);
  EXPECT_THAT(ready->score_link, HasSubstr("inproc"));
  send(transport::Verdict{kSession, 1, 0, prompt_.back(), 96, 4});
  ASSERT_TRUE(await<transport::Proposal>(target_));
  EXPECT_TRUE(await<transport::Commit>(score_));
  network_.kill("score");
  ASSERT_TRUE(run_until([this] { return !node_->score_connected(); }));
  send(transport::Verdict{kSession, 2, 1, 3, 98, 4});
  const auto proposal = await<transport::Proposal>(target_);
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->tokens.size(), 4U);
  send(transport::CloseSession{kSession});
  EXPECT_EQ(await<transport::SessionClosed>(target_)->score_lost, 1U);
}

TEST_F(DraftNodeTest, FreesSessionsOfATargetThatIsLost) {
  start_node();
  send(open(Policy::kSwa));
  ASSERT_TRUE(await<transport::SessionReady>(target_));
  send(transport::Verdict{kSession, 1, 0, prompt_.back(), 96, 16});
  network_.kill("target");
  EXPECT_TRUE(run_until([this] { return node_->core().session_count() == 0; }));
  EXPECT_TRUE(run_until([this] { return node_->core().arena().used_bytes() == 0; }));
}

TEST_F(DraftNodeTest, StopsInTheMiddleOfARound) {
  start_node();
  send(open(Policy::kFull));
  ASSERT_TRUE(await<transport::SessionReady>(target_));
  send(transport::Verdict{kSession, 1, 0, prompt_.back(), 96, 16});
  node_->stop();
  EXPECT_TRUE(run_until([this] { return target_.peer == nullptr; }));
}

}  // namespace
}  // namespace rift::draft_node
