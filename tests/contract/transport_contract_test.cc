// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/harness.h"
#include "transport/inproc/inproc.h"

#ifdef RIFT_UCX
#include "transport/ucx/ucx_transport.h"
#endif

#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

namespace rift::transport::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::uint64_t kRegionBytes = 4U << 20U;

/// What every transport does, whatever moves the bytes.
class TransportContract : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Transport> make(TransportOptions options, boost::asio::io_context& io) {
#ifdef RIFT_UCX
    if (GetParam() == "ucx") {
      return make_ucx_transport(io, std::move(options));
    }
#endif
    return make_inproc_transport(io, network_, std::move(options));
  }

  void start(Node& node, TransportOptions options, std::uint64_t bytes = kRegionBytes) {
    node.transport = make(std::move(options), io_);
    node.region = node.transport->allocate(bytes);
  }

  void listen(Node& node) { port_ = node.transport->listen({"127.0.0.1", 0}, node.handler()); }

  void connect(Node& node, milliseconds deadline = milliseconds(10000)) {
    node.transport->connect({"127.0.0.1", port_}, deadline, node.handler(), node.on_failed());
  }

  /// score_ (writes) and draft_ (is written to) are up.
  void join() {
    start(draft_, options_of(Role::kDraft, "draft0"));
    start(score_, options_of(Role::kScore, "score0"));
    listen(score_);
    connect(draft_);
    ASSERT_TRUE(run_until([&] { return !draft_.ups.empty() && !score_.ups.empty(); }))
        << (draft_.failures.empty() ? "" : draft_.failures[0].message());
  }

  bool run_until(const std::function<bool()>& condition, milliseconds limit = milliseconds(20000)) {
    return test::run_until(io_, condition, limit);
  }

  static void fill(std::span<std::byte> bytes, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  }

  boost::asio::io_context io_;
  InprocNetwork network_;
  Node draft_;
  Node score_;
  std::uint16_t port_ = 0;
};

Message numbered(std::int32_t number) {
  return RefreshRequest{SessionId{7}, Epoch{static_cast<std::uint32_t>(number)}, number};
}

std::vector<Message> numbered_up_to(std::int32_t count) {
  std::vector<Message> out;
  for (std::int32_t i = 0; i < count; ++i) {
    out.push_back(numbered(i));
  }
  return out;
}

TEST_P(TransportContract, ConnectsAndSaysWhoIsThere) {
  join();
  EXPECT_EQ(draft_.peer().info().node_id, "score0");
  EXPECT_EQ(score_.peer().info().node_id, "draft0");
  EXPECT_EQ(score_.peer().info().role, Role::kDraft);
  EXPECT_EQ(score_.peer().info().geometry, (KvGeometry{2, 2, 64, DType::kF16}));
  EXPECT_EQ(score_.peer().info().incarnation, options_of(Role::kDraft, "draft0").node.incarnation);
  EXPECT_TRUE(draft_.peer().connected());
  EXPECT_EQ(draft_.peer().link().name, GetParam());
  EXPECT_FALSE(draft_.peer().link().lanes.empty());
}

TEST_P(TransportContract, RegionsStartZeroed) {
  join();
  const auto bytes = draft_.region->bytes();
  EXPECT_EQ(bytes.size(), kRegionBytes);
  EXPECT_TRUE(
      std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{}; }));
}

TEST_P(TransportContract, KeepsTheOrderOfMessages) {
  join();
  constexpr std::int32_t kCount = 1000;
  for (const Message& message : numbered_up_to(kCount)) {
    ASSERT_TRUE(draft_.peer().send(message).ok());
  }
  ASSERT_TRUE(run_until([&] { return score_.messages.size() >= kCount; }));
  EXPECT_EQ(score_.messages, numbered_up_to(kCount));
}

TEST_P(TransportContract, KeepsTheOrderOfLargeAndSmallMessages) {
  join();
  std::vector<Message> sent;
  for (std::int32_t i = 0; i < 40; ++i) {
    const std::size_t tokens = i % 4 == 0 ? 100'000 : static_cast<std::size_t>(i);
    sent.push_back(Commit{SessionId{1}, i, std::vector<TokenId>(tokens, i)});
    ASSERT_TRUE(draft_.peer().send(sent.back()).ok());
  }
  ASSERT_TRUE(run_until([&] { return score_.messages.size() >= sent.size(); }));
  EXPECT_EQ(score_.messages, sent);
}

TEST_P(TransportContract, CarriesAMessageOfEightMegabytes) {
  join();
  Commit commit{SessionId{1}, 0, std::vector<TokenId>(2U << 20U)};
  std::iota(commit.tokens.begin(), commit.tokens.end(), 0);
  ASSERT_TRUE(draft_.peer().send(commit).ok());
  ASSERT_TRUE(run_until([&] { return !score_.messages.empty(); }));
  EXPECT_TRUE(std::get<Commit>(score_.messages[0]) == commit);
}

TEST_P(TransportContract, RefusesAMessageOverTheLimitAndGoesOn) {
  auto options = options_of(Role::kDraft, "draft0");
  options.max_message_bytes = 4096;
  start(draft_, options);
  start(score_, options_of(Role::kScore, "score0"));
  listen(score_);
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.ups.empty() && !score_.ups.empty(); }));
  const Status status = draft_.peer().send(Commit{SessionId{1}, 0, std::vector<TokenId>(2000)});
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), Errc::kOutOfRange);
  ASSERT_TRUE(draft_.peer().send(numbered(1)).ok());
  ASSERT_TRUE(run_until([&] { return !score_.messages.empty(); }));
  EXPECT_EQ(score_.messages[0], numbered(1));
}

TEST_P(TransportContract, LosesAPeerThatSendsMoreThanTheLimit) {
  auto options = options_of(Role::kDraft, "draft0");
  options.max_message_bytes = 4096;
  start(draft_, options);
  start(score_, options_of(Role::kScore, "score0"));
  listen(score_);
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.ups.empty() && !score_.ups.empty(); }));
  ASSERT_TRUE(score_.peer().send(Commit{SessionId{1}, 0, std::vector<TokenId>(100'000)}).ok());
  ASSERT_TRUE(run_until([&] { return !draft_.lost.empty() && !score_.lost.empty(); }));
  EXPECT_EQ(draft_.lost[0].code(), Errc::kOutOfRange);
  EXPECT_TRUE(draft_.messages.empty());
}

TEST_P(TransportContract, ScatteredWritesLandByteExact) {
  join();
  fill(score_.region->bytes(), 1);
  fill(draft_.region->bytes(), 2);
  std::vector<std::byte> expected(draft_.region->bytes().begin(), draft_.region->bytes().end());
  constexpr std::uint64_t kBlock = 4096;
  std::vector<PutOp> ops;
  std::vector<std::uint64_t> order(kRegionBytes / kBlock / 2);
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const PutOp op{i * kBlock, order[i] * 2 * kBlock + i % 64, kBlock - i % 128};
    std::memcpy(&expected[op.remote_offset], &score_.region->bytes()[op.local_offset], op.bytes);
    ops.push_back(op);
  }
  std::optional<Status> done;
  score_.peer().put(*score_.region, draft_.region->id(), ops, [&](Status s) { done = s; });
  ASSERT_TRUE(run_until([&] { return done.has_value(); }));
  ASSERT_TRUE(done->ok()) << done->error().message();
  ASSERT_TRUE(score_.peer().send(numbered(5)).ok());
  bool in_place = false;
  draft_.on_message = [&](Peer&, const Message&) {
    in_place = std::equal(expected.begin(), expected.end(), draft_.region->bytes().begin());
  };
  ASSERT_TRUE(run_until([&] { return !draft_.messages.empty(); }));
  EXPECT_TRUE(in_place);
}

TEST_P(TransportContract, WritesNothingWhenAnOpIsOutOfRange) {
  join();
  fill(score_.region->bytes(), 1);
  const auto refused = [&](PutOp op, std::uint32_t region) {
    std::optional<Status> done;
    score_.peer().put(
        *score_.region, region, {PutOp{0, 0, 64}, op}, [&](Status s) { done = std::move(s); });
    EXPECT_TRUE(run_until([&] { return done.has_value(); }));
    return done && !done->ok() && done->error().code() == Errc::kOutOfRange;
  };
  const std::uint32_t id = draft_.region->id();
  EXPECT_TRUE(refused({0, kRegionBytes - 63, 64}, id));
  EXPECT_TRUE(refused({0, ~std::uint64_t{0} - 10, 64}, id));
  EXPECT_TRUE(refused({kRegionBytes - 63, 0, 64}, id));
  EXPECT_TRUE(refused({0, 0, ~std::uint64_t{0}}, id));
  EXPECT_TRUE(refused({0, 0, 64}, id + 1));
  EXPECT_EQ(draft_.region->bytes()[0], std::byte{});
}

TEST_P(TransportContract, EmptyWritesComplete) {
  join();
  std::optional<Status> none;
  std::optional<Status> zero;
  score_.peer().put(*score_.region, draft_.region->id(), {}, [&](Status s) { none = s; });
  score_.peer().put(
      *score_.region, draft_.region->id(), {PutOp{0, 0, 0}}, [&](Status s) { zero = s; });
  ASSERT_TRUE(run_until([&] { return none && zero; }));
  EXPECT_TRUE(none->ok() && zero->ok());
}

TEST_P(TransportContract, MessagesPassBothWaysWhileWriting) {
  join();
  fill(score_.region->bytes(), 9);
  constexpr std::int32_t kCount = 200;
  std::int32_t done = 0;
  score_.on_message = [&](Peer& peer, const Message& message) {
    EXPECT_TRUE(peer.send(message).ok());
  };
  for (std::int32_t i = 0; i < kCount; ++i) {
    const auto offset = static_cast<std::uint64_t>(i) * 16384;
    score_.peer().put(*score_.region,
                      draft_.region->id(),
                      {PutOp{offset, offset, 8192}, PutOp{offset + 8192, offset + 8192, 8192}},
                      [&](Status s) { done += s.ok() ? 1 : 0; });
    ASSERT_TRUE(draft_.peer().send(numbered(i)).ok());
  }
  ASSERT_TRUE(run_until([&] { return done == kCount && draft_.messages.size() >= kCount; }));
  EXPECT_EQ(draft_.messages, numbered_up_to(kCount));
  EXPECT_EQ(0,
            std::memcmp(score_.region->bytes().data(),
                        draft_.region->bytes().data(),
                        std::size_t{kCount} * 16384));
}

TEST_P(TransportContract, ClosingAfterSendingDeliversThenLosesOnce) {
  join();
  for (const Message& message : numbered_up_to(50)) {
    ASSERT_TRUE(draft_.peer().send(message).ok());
  }
  const auto peer = draft_.ups[0];
  peer->close();
  EXPECT_FALSE(peer->connected());
  EXPECT_FALSE(peer->send(numbered(99)).ok());
  ASSERT_TRUE(run_until([&] { return !score_.lost.empty(); }));
  EXPECT_EQ(score_.messages, numbered_up_to(50));
  EXPECT_EQ(score_.lost[0].code(), Errc::kCancelled);
  run_until([&] { return score_.lost.size() > 1 || !draft_.lost.empty(); }, milliseconds(100));
  EXPECT_EQ(score_.lost.size(), 1U);
  EXPECT_TRUE(draft_.lost.empty());
  EXPECT_FALSE(score_.peer().connected());
}

TEST_P(TransportContract, ConnectsAgainAfterAPeerIsLost) {
  join();
  draft_.peer().close();
  ASSERT_TRUE(run_until([&] { return !score_.lost.empty(); }));
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return draft_.ups.size() == 2 && score_.ups.size() == 2; }));
  ASSERT_TRUE(score_.peer().send(numbered(1)).ok());
  ASSERT_TRUE(run_until([&] { return !draft_.messages.empty(); }));
}

TEST_P(TransportContract, ANodeServesSeveralPeers) {
  join();
  Node target;
  start(target, options_of(Role::kTarget, "target0"));
  port_ = draft_.transport->listen({"127.0.0.1", 0}, draft_.handler());
  connect(target);
  ASSERT_TRUE(run_until([&] { return !target.ups.empty() && draft_.ups.size() == 2; }));
  ASSERT_TRUE(target.peer().send(numbered(1)).ok());
  ASSERT_TRUE(score_.peer().send(numbered(2)).ok());
  ASSERT_TRUE(run_until([&] { return draft_.messages.size() == 2; }));
  target.transport->stop();
  ASSERT_TRUE(run_until([&] { return !draft_.lost.empty(); }));
  ASSERT_TRUE(score_.peer().send(numbered(3)).ok());
  ASSERT_TRUE(run_until([&] { return draft_.messages.size() == 3; }));
}

TEST_P(TransportContract, AMismatchNamesTheDifferenceWithBothValues) {
  start(draft_, options_of(Role::kDraft, "draft0"));
  auto options = options_of(Role::kScore, "score0");
  options.node.model_fingerprint = "other-print";
  start(score_, options);
  listen(score_);
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.failures.empty(); }));
  EXPECT_EQ(draft_.failures[0].code(), Errc::kMismatch);
  EXPECT_THAT(draft_.failures[0].message(), HasSubstr("'fingerprint'"));
  EXPECT_THAT(draft_.failures[0].message(), HasSubstr("'other-print'"));
  EXPECT_TRUE(draft_.ups.empty() && score_.ups.empty());
}

TEST_P(TransportContract, AnotherTokenizerIsNamed) {
  start(draft_, options_of(Role::kTarget, "target0"));
  auto options = options_of(Role::kDraft, "draft0");
  options.node.tokenizer_hash = "other";
  options.node.model_fingerprint = "may differ";
  start(score_, options);
  listen(score_);
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.failures.empty(); }));
  EXPECT_THAT(draft_.failures[0].message(), HasSubstr("tokenizer differs"));
}

TEST_P(TransportContract, AWrongSecretIsRefused) {
  auto options = options_of(Role::kDraft, "draft0");
  options.secret = "guess";
  start(draft_, options);
  options = options_of(Role::kScore, "score0");
  options.secret = "secret";
  start(score_, options);
  listen(score_);
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.failures.empty(); }));
  EXPECT_EQ(draft_.failures[0].code(), Errc::kPermission);
  EXPECT_TRUE(score_.ups.empty());
}

TEST_P(TransportContract, ConnectionsThatNobodySpeaksOnKeepNoPeerOut) {
  start(draft_, options_of(Role::kDraft, "draft0"));
  start(score_, options_of(Role::kScore, "score0"));
  listen(score_);
  std::vector<boost::asio::ip::tcp::socket> silent;
  for (int i = 0; i < 100 && GetParam() == "ucx"; ++i) {
    auto& socket = silent.emplace_back(io_);
    socket.connect({boost::asio::ip::address_v4::loopback(), port_});
  }
  // Sooner than the silent ones are given up.
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.ups.empty() && !score_.ups.empty(); },
                        std::chrono::seconds(3)));
}

// Whatever the connecting side has seen of it by then.
TEST_P(TransportContract, ARefusalAtAnyMomentOfTheHandshakeIsOnlyAFailure) {
  if (GetParam() != "ucx") {
    GTEST_SKIP() << "lanes and keys are UCX's";
  }
  for (int steps = 0; steps < 24; ++steps) {
    SCOPED_TRACE(steps);
    boost::asio::io_context score_io;
    Node score;
    Node draft;
    auto options = options_of(Role::kScore, "score0");
    options.require_transport = "rc";  // no lane of a test machine
    score.transport = make(std::move(options), score_io);
    draft.transport = make(options_of(Role::kDraft, "draft0"), io_);
    port_ = score.transport->listen({"127.0.0.1", 0}, score.handler());
    connect(draft);
    for (int i = 0; i < steps; ++i) {
      score_io.restart();
      score_io.run_for(milliseconds(1));
      io_.restart();
      io_.run_one_for(milliseconds(1));
    }
    score_io.restart();
    score_io.run_for(milliseconds(20));
    const TimePoint deadline = Clock::now() + std::chrono::seconds(10);
    while (draft.failures.empty() && Clock::now() < deadline) {
      // A bounded share each: over tcp one side stays busy until the other has answered.
      score_io.restart();
      score_io.run_one_for(milliseconds(1));
      io_.restart();
      io_.run_one_for(milliseconds(1));
    }
    ASSERT_FALSE(draft.failures.empty());
    EXPECT_THAT(draft.failures[0].message(), HasSubstr("'rc'"));
    draft.transport->stop();
    score.transport->stop();
    io_.restart();
  }
}

TEST_P(TransportContract, TheSameSecretConnects) {
  auto options = options_of(Role::kDraft, "draft0");
  options.secret = "secret";
  start(draft_, options);
  options = options_of(Role::kScore, "score0");
  options.secret = "secret";
  start(score_, options);
  listen(score_);
  connect(draft_);
  ASSERT_TRUE(run_until([&] { return !draft_.ups.empty() && !score_.ups.empty(); }));
}

TEST_P(TransportContract, FailsByTheDeadlineWhenNothingListens) {
  start(draft_, options_of(Role::kDraft, "draft0"));
  port_ = 1;
  const TimePoint begin = Clock::now();
  connect(draft_, milliseconds(300));
  ASSERT_TRUE(run_until([&] { return !draft_.failures.empty(); }));
  EXPECT_EQ(draft_.failures[0].code(), Errc::kTimeout);
  EXPECT_THAT(draft_.failures[0].message(), HasSubstr("127.0.0.1:1"));
  EXPECT_GE(Clock::now() - begin, milliseconds(300));
  EXPECT_LT(Clock::now() - begin, milliseconds(3000));
}

TEST_P(TransportContract, FindsANodeThatStartsLater) {
  start(draft_, options_of(Role::kDraft, "draft0"));
  start(score_, options_of(Role::kScore, "score0"));
  listen(score_);
  score_.transport->stop();
  score_.region.reset();
  connect(draft_);
  run_until([&] { return !draft_.failures.empty(); }, milliseconds(50));
  start(score_, options_of(Role::kScore, "score0"));
  score_.transport->listen({"127.0.0.1", port_}, score_.handler());
  ASSERT_TRUE(run_until([&] { return !draft_.ups.empty() && !score_.ups.empty(); }));
}

TEST_P(TransportContract, StoppingWithWritesInFlightEndsThemOnce) {
  join();
  std::vector<Status> done;
  for (int i = 0; i < 64; ++i) {
    score_.peer().put(*score_.region,
                      draft_.region->id(),
                      std::vector<PutOp>(16, PutOp{0, 65536, 65536}),
                      [&](Status s) { done.push_back(std::move(s)); });
    ASSERT_TRUE(score_.peer().send(numbered(i)).ok());
  }
  score_.transport->stop();
  EXPECT_EQ(done.size(), 64U);
  EXPECT_TRUE(score_.lost.empty());
  score_.ups.clear();
  score_.region.reset();
  score_.transport.reset();
  ASSERT_TRUE(run_until([&] { return !draft_.lost.empty(); }));
  EXPECT_EQ(draft_.lost.size(), 1U);
  EXPECT_EQ(done.size(), 64U);
}

TEST_P(TransportContract, ThePeerStoppingEndsWritesInFlightOnce) {
  join();
  std::vector<Status> done;
  for (int i = 0; i < 64; ++i) {
    score_.peer().put(*score_.region,
                      draft_.region->id(),
                      std::vector<PutOp>(16, PutOp{0, 65536, 65536}),
                      [&](Status s) { done.push_back(std::move(s)); });
  }
  draft_.transport->stop();
  ASSERT_TRUE(run_until([&] { return done.size() == 64 && !score_.lost.empty(); }));
  run_until([&] { return done.size() > 64 || score_.lost.size() > 1; }, milliseconds(50));
  EXPECT_EQ(done.size(), 64U);
  EXPECT_EQ(score_.lost.size(), 1U);
  std::optional<Status> late;
  score_.peer().put(
      *score_.region, draft_.region->id(), {PutOp{0, 0, 1}}, [&](Status s) { late = s; });
  ASSERT_TRUE(run_until([&] { return late.has_value(); }));
  EXPECT_EQ(late->error().code(), Errc::kUnavailable);
}

#ifdef RIFT_UCX
INSTANTIATE_TEST_SUITE_P(,
                         TransportContract,
                         ::testing::Values("inproc", "ucx"),
                         [](const auto& test) { return test.param; });
#else
INSTANTIATE_TEST_SUITE_P(, TransportContract, ::testing::Values("inproc"), [](const auto& test) {
  return test.param;
});
#endif

}  // namespace
}  // namespace rift::transport::test
