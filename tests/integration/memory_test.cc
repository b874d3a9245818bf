// SPDX-License-Identifier: Apache-2.0
// The draft node's memory does not know how long the prompt is: the programs draft_node and
// score_node as a user starts them, with this test as their target, and the kernel's own figures.
#include "cli/child_process.h"
#include "model/tokenizer.h"
#include "tests/contract/harness.h"
#include "tests/golden/golden_json.h"
#include "tests/integration/rift_process.h"
#include "transport/ucx/ucx_transport.h"

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

namespace rift::test {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using transport::test::run_until;

constexpr std::int32_t kShort = 500;
constexpr std::int32_t kLong = 16'000;
constexpr std::int32_t kRounds = 6;
constexpr int kReadyFd = 3;
// A sanitizer keeps shadows and freed blocks of its own: resident memory then says nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kInstrumented = true;
#else
constexpr bool kInstrumented = false;
#endif

/// A golden checkpoint (vocabulary 384) with a tokenizer of about that size beside it, so that the
/// programs open it as they open a published one. Removed at the end.
class TinyModelFolder {
 public:
  TinyModelFolder()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("rift_memory_test_{}", ::getpid())) {
    std::filesystem::create_directories(path_);
    for (const auto& entry :
         std::filesystem::directory_iterator(testing::golden_path("models/qwen2"))) {
      std::filesystem::create_symlink(std::filesystem::canonical(entry.path()),
                                      path_ / entry.path().filename());
    }
    std::filesystem::create_symlink(RIFT_TINY_TOKENIZER, path_ / "tokenizer.json");
  }
  ~TinyModelFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TinyModelFolder(const TinyModelFolder&) = delete;
  TinyModelFolder& operator=(const TinyModelFolder&) = delete;
  [[nodiscard]] std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A node program on loopback, and where it listens.
struct NodeProgram {
  cli::ChildProcess child;
  std::uint16_t port = 0;
};

NodeProgram start(const char* name, std::vector<std::string> arguments) {
  cli::Pipe ready = cli::make_pipe();
  arguments.insert(arguments.end(),
                   {"--listen",
                    "127.0.0.1:0",
                    "--threads",
                    "1",
                    "--log-level",
                    "warn",
                    "--die-with-parent",
                    "--ready-fd",
                    std::to_string(kReadyFd)});
  NodeProgram node{cli::ChildProcess(bin_dir() / name, arguments, {{ready.write.get(), kReadyFd}}),
                   0};
  ready.write.reset();
  std::string buffer;
  boost::json::object line;
  do {  // lines about its loading come before
    line = boost::json::parse(cli::read_line(ready.read.get(), buffer, 60s)).as_object();
  } while (!line.contains("port"));
  node.port = line.at("port").to_number<std::uint16_t>();
  return node;
}

/// Largest resident memory that a process ever had, bytes: what getrusage calls ru_maxrss.
std::int64_t peak_resident(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("VmHWM:")) {
      return std::stoll(line.substr(6)) * 1024;
    }
  }
  return -1;
}

struct SessionMemory {
  transport::ArenaUse at_start;
  transport::ArenaUse at_end;
  std::uint64_t score_history = 0;
  std::size_t refreshes = 0;
  std::int64_t peak_resident = 0;  // of the draft process, so far
};

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() {
    score_ = start("score_node", {"-md", folder_.path()});
    draft_ = start("draft_node",
                   {"-md",
                    folder_.path(),
                    "--arena-bytes",
                    "16777216",
                    "--score",
                    fmt::format("127.0.0.1:{}", score_.port)});
    auto options = transport::test::options_of(transport::Role::kTarget, "target0");
    options.node.geometry = {};
    options.node.tokenizer_hash = model::Tokenizer::open(folder_.path(), {})->hash();
    target_.transport = transport::make_ucx_transport(io_, options);
    target_.transport->connect(
        {"127.0.0.1", draft_.port}, 20s, target_.handler(), target_.on_failed());
    EXPECT_TRUE(run_until(io_, [&] { return !target_.ups.empty(); }));
  }
  ~MemoryTest() override { target_.transport->stop(); }

  template <typename T>
  T await() {
    T result{};
    const bool found = run_until(
        io_,
        [&] {
          while (seen_ < target_.messages.size()) {
            if (T* message = std::get_if<T>(&target_.messages[seen_++])) {
              result = std::move(*message);
              return true;
            }
          }
          return false;
        },
        120s);
    EXPECT_TRUE(found);
    return result;
  }

  /// A whole answer in which no draft is accepted.
  SessionMemory session(std::int32_t prompt) {
    SessionMemory memory;
    transport::OpenSession open;
    open.session = SessionId{++sessions_};
    for (std::int32_t i = 0; i < prompt; ++i) {
      open.tokens.push_back((i * 37 + i / 7) % 256);
    }
    open.max_context = prompt + kRounds + 8;  // and the last drafts
    open.max_draft_len = 4;
    open.policy.budget = 256;
    open.policy.delta = 1;
    EXPECT_TRUE(target_.peer().send(open).ok());
    const auto ready = await<transport::SessionReady>();
    EXPECT_TRUE(ready.score_attached);
    memory.at_start = ready.arena;
    for (std::int32_t round = 0; round < kRounds; ++round) {
      const std::int32_t committed = prompt + round + 1;
      EXPECT_TRUE(
          target_.peer()
              .send(transport::Verdict{
                  open.session, static_cast<std::uint32_t>(round), 0, round + 1, committed, 4})
              .ok());
      EXPECT_EQ(await<transport::Proposal>().tokens.size(), 4U);
    }
    EXPECT_TRUE(target_.peer().send(transport::CloseSession{open.session}).ok());
    const auto closed = await<transport::SessionClosed>();
    memory.at_end = closed.arena;
    memory.score_history = closed.score_history_bytes;
    memory.refreshes = closed.refreshes.size();
    memory.peak_resident = peak_resident(draft_.child.pid());
    return memory;
  }

  TinyModelFolder folder_;
  boost::asio::io_context io_;
  NodeProgram score_;
  NodeProgram draft_;
  transport::test::Node target_;
  std::size_t seen_ = 0;
  std::uint64_t sessions_ = 0;
};

TEST_F(MemoryTest, TheDraftNodeHoldsTheSameBytesForAPromptOf500TokensAndOf16000) {
  (void)session(kShort);  // takes what UCX and the allocator take once
  const SessionMemory small = session(kShort);
  const SessionMemory large = session(kLong);
  EXPECT_GT(small.at_start.working_set, 0U);
  EXPECT_EQ(large.at_start, small.at_start);
  EXPECT_EQ(large.at_end, small.at_end);
  EXPECT_GT(small.refreshes, 0U);
  EXPECT_GT(large.refreshes, 0U);
  EXPECT_GT(large.score_history, 20 * small.score_history);
  // A prompt passes through the draft process as 32-bit ids: received, decoded, kept by session and
  // engine, encoded for the score node, each with its buffers. 16 copies are allowed; the keys and
  // values of the same tokens would be 384 bytes a token, six times as much.
  const std::int64_t allowed = std::int64_t{16} * 4 * kLong;
  EXPECT_GT(small.peak_resident, 0);
  if (!kInstrumented) {
    EXPECT_LE(large.peak_resident - small.peak_resident, allowed)
        << small.peak_resident << " -> " << large.peak_resident;
  }
  fmt::print("peak resident memory of draft_node: {} bytes with {} tokens, {} with {}\n",
             small.peak_resident,
             kShort,
             large.peak_resident,
             kLong);
}

}  // namespace
}  // namespace rift::test
