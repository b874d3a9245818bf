// SPDX-License-Identifier: Apache-2.0
#include "transport/inproc/inproc.h"

#include "tests/contract/harness.h"

#include <atomic>
#include <cstring>
#include <thread>

namespace rift::transport::test {
namespace {

using std::chrono::milliseconds;

struct Pair {
  explicit Pair(InprocNetwork& network, boost::asio::io_context& io) {
    start(draft, network, io, Role::kDraft, "draft0");
    start(score, network, io, Role::kScore, "score0");
    const auto port = score.transport->listen({"score", 0}, score.handler());
    draft.transport->connect(
        {"score", port}, milliseconds(5000), draft.handler(), draft.on_failed());
    EXPECT_TRUE(run_until(io, [&] { return !draft.ups.empty() && !score.ups.empty(); }));
  }

  static void start(Node& node,
                    InprocNetwork& network,
                    boost::asio::io_context& io,
                    Role role,
                    const std::string& id) {
    auto options = options_of(role, id);
    options.peer_timeout = milliseconds(150);
    node.transport = make_inproc_transport(io, network, options);
    node.region = node.transport->allocate(1U << 20U);
  }

  Node draft;
  Node score;
};

TEST(Inproc, AKilledNodeIsLostAtOnceAndHearsNothing) {
  boost::asio::io_context io;
  InprocNetwork network;
  Pair pair(network, io);
  ASSERT_TRUE(pair.draft.peer().send(CloseSession{SessionId{1}}).ok());
  std::optional<Status> done;
  pair.draft.peer().put(
      *pair.draft.region, 0, {PutOp{0, 0, 100}}, [&](Status s) { done = std::move(s); });
  network.kill("score0");
  ASSERT_TRUE(run_until(io, [&] { return !pair.draft.lost.empty(); }));
  ASSERT_TRUE(done.has_value());
  EXPECT_FALSE(done->ok());
  EXPECT_TRUE(pair.score.messages.empty());
  EXPECT_TRUE(pair.score.lost.empty());
}

TEST(Inproc, ACutLinkIsLostOnBothEndsAfterTheTimeout) {
  boost::asio::io_context io;
  InprocNetwork network;
  Pair pair(network, io);
  const TimePoint begin = Clock::now();
  network.cut("draft0", "score0");
  EXPECT_TRUE(pair.draft.peer().send(CloseSession{SessionId{1}}).ok());
  ASSERT_TRUE(run_until(io, [&] { return !pair.draft.lost.empty() && !pair.score.lost.empty(); }));
  EXPECT_GE(Clock::now() - begin, milliseconds(150));
  EXPECT_EQ(pair.draft.lost[0].code(), Errc::kTimeout);
  EXPECT_TRUE(pair.score.messages.empty());
}

TEST(Inproc, WritesTakeTheModelledTime) {
  boost::asio::io_context io;
  InprocNetwork network({.bytes_per_second = 10e6, .latency = milliseconds(5)});
  Pair pair(network, io);
  std::optional<Status> done;
  const TimePoint begin = Clock::now();
  pair.score.peer().put(
      *pair.score.region, 0, {PutOp{0, 0, 1U << 20U}}, [&](Status s) { done = std::move(s); });
  ASSERT_TRUE(run_until(io, [&] { return done.has_value(); }));
  // 1 MiB at 10 MB/s, then there and back.
  EXPECT_GE(seconds_between(begin, Clock::now()), 0.1048 + 2 * 0.005);
  EXPECT_TRUE(done->ok());
}

TEST(Inproc, DelayKeepsTheOrder) {
  boost::asio::io_context io;
  InprocNetwork network;
  Pair pair(network, io);
  network.delay("draft0", "score0", milliseconds(30));
  ASSERT_TRUE(pair.draft.peer().send(CloseSession{SessionId{1}}).ok());
  network.delay("draft0", "score0", milliseconds(0));
  ASSERT_TRUE(pair.draft.peer().send(CloseSession{SessionId{2}}).ok());
  ASSERT_TRUE(run_until(io, [&] { return pair.score.messages.size() == 2; }));
  EXPECT_EQ(std::get<CloseSession>(pair.score.messages[0]).session, SessionId{1});
}

TEST(Inproc, NodesOnThreadsOfTheirOwnExchangeMessagesAndWrites) {
  constexpr int kRounds = 500;
  InprocNetwork network;
  boost::asio::io_context score_io;
  Node score;
  Pair::start(score, network, score_io, Role::kScore, "score0");
  std::atomic<std::uint16_t> port{0};
  std::atomic<bool> stop{false};
  std::thread thread([&] {
    score.on_message = [&](Peer& peer, const Message& message) {
      const auto round = std::get<RefreshRequest>(message).tokens;
      std::memset(score.region->bytes().data(), round % 251, 4096);
      peer.put(*score.region, 0, {PutOp{0, 0, 4096}}, [&peer, message](Status s) {
        EXPECT_TRUE(s.ok());
        EXPECT_TRUE(peer.send(message).ok());
      });
    };
    port = score.transport->listen({"score", 0}, score.handler());
    EXPECT_TRUE(run_until(score_io, [&] { return stop.load() && !score.lost.empty(); }));
    score.transport->stop();
  });

  boost::asio::io_context io;
  Node draft;
  Pair::start(draft, network, io, Role::kDraft, "draft0");
  while (port == 0) {
    std::this_thread::yield();
  }
  draft.transport->connect({"score", port}, milliseconds(5000), draft.handler(), draft.on_failed());
  EXPECT_TRUE(run_until(io, [&] { return !draft.ups.empty(); }));
  for (std::int32_t i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(draft.peer().send(RefreshRequest{SessionId{1}, Epoch{0}, i}).ok());
    ASSERT_TRUE(
        run_until(io, [&] { return draft.messages.size() == static_cast<std::size_t>(i) + 1; }));
    ASSERT_EQ(draft.region->bytes()[4095], static_cast<std::byte>(i % 251));
  }
  stop = true;
  draft.transport->stop();
  thread.join();
}

}  // namespace
}  // namespace rift::transport::test
