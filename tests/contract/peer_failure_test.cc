// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/harness.h"
#include "transport/ucx/ucx_transport.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace rift::transport::test {
namespace {

using std::chrono::milliseconds;

/// The program transport_peer; killed and reaped at the end.
class PeerProcess {
 public:
  PeerProcess() {
    int out[2];
    EXPECT_EQ(::pipe(out), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(out[1], STDOUT_FILENO);
      ::close(out[0]);
      ::close(out[1]);
      ::execl(RIFT_TRANSPORT_PEER, "transport_peer", nullptr);
      ::_exit(127);
    }
    ::close(out[1]);
    FILE* stream = ::fdopen(out[0], "r");
    char line[512];
    while (port_ == 0 && std::fgets(line, sizeof(line), stream) != nullptr) {
      std::sscanf(line, "port %hu", &port_);
    }
    EXPECT_NE(port_, 0);
    std::fclose(stream);
  }
  ~PeerProcess() {
    signal(SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  pid_t pid_ = -1;
  std::uint16_t port_ = 0;
};

class PeerFailure : public ::testing::Test {
 protected:
  /// draft_ is up and the child writes to it.
  void join() {
    ASSERT_NE(child_.port(), 0);
    draft_.transport = make_ucx_transport(io_, options_of(Role::kDraft, "draft0"));
    draft_.region = draft_.transport->allocate(4U << 20U);
    draft_.transport->connect(
        {"127.0.0.1", child_.port()}, milliseconds(10000), draft_.handler(), draft_.on_failed());
    ASSERT_TRUE(run_until(io_, [&] { return draft_.messages.size() >= 3; }));
  }

  /// Writes of this node towards the child, more than will have ended when it dies.
  void write_much() {
    for (int i = 0; i < kBatches; ++i) {
      draft_.peer().put(*draft_.region,
                        0,
                        std::vector<PutOp>(32, PutOp{1U << 20U, 1U << 20U, 65536}),
                        [&](Status status) { done_.push_back(std::move(status)); });
    }
  }

  void expect_lost_once(milliseconds within) {
    const TimePoint begin = Clock::now();
    ASSERT_TRUE(run_until(io_, [&] { return !draft_.lost.empty(); }));
    EXPECT_LT(Clock::now() - begin, within);
    EXPECT_EQ(done_.size(), static_cast<std::size_t>(kBatches));
    // Shared memory takes writes without the peer.
    EXPECT_TRUE(!draft_.peer().link().emulated || !done_.back().ok());
    run_until(
        io_, [&] { return draft_.lost.size() > 1 || done_.size() > kBatches; }, milliseconds(50));
    EXPECT_EQ(draft_.lost.size(), 1U);
    EXPECT_EQ(done_.size(), static_cast<std::size_t>(kBatches));
    EXPECT_FALSE(draft_.peer().connected());
  }

  static constexpr int kBatches = 40;
  boost::asio::io_context io_;
  PeerProcess child_;
  Node draft_;
  std::vector<Status> done_;
};

TEST_F(PeerFailure, AKilledPeerIsLostOnceWithWritesUnderWayBothWays) {
  ASSERT_NO_FATAL_FAILURE(join());
  child_.signal(SIGSTOP);  // so that the writes cannot have ended
  write_much();
  child_.signal(SIGKILL);
  expect_lost_once(milliseconds(5000));
}

TEST_F(PeerFailure, AStoppedPeerIsLostAfterTheTimeout) {
  ASSERT_NO_FATAL_FAILURE(join());
  child_.signal(SIGSTOP);
  draft_.messages.clear();
  const TimePoint begin = Clock::now();
  ASSERT_TRUE(run_until(io_, [&] { return !draft_.lost.empty(); }));
  EXPECT_GE(Clock::now() - begin, milliseconds(900));
  EXPECT_LT(Clock::now() - begin, milliseconds(8000));
  EXPECT_EQ(draft_.lost[0].code(), Errc::kTimeout);
}

TEST_F(PeerFailure, ANewProcessTakesThePlaceOfAKilledOne) {
  ASSERT_NO_FATAL_FAILURE(join());
  child_.signal(SIGKILL);
  ASSERT_TRUE(run_until(io_, [&] { return !draft_.lost.empty(); }));
  const PeerProcess second;
  draft_.messages.clear();
  draft_.transport->connect(
      {"127.0.0.1", second.port()}, milliseconds(10000), draft_.handler(), draft_.on_failed());
  ASSERT_TRUE(run_until(io_, [&] { return draft_.messages.size() >= 3; }));
  EXPECT_EQ(draft_.ups.size(), 2U);
}

}  // namespace
}  // namespace rift::transport::test
