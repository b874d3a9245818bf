// SPDX-License-Identifier: Apache-2.0
#include "cli/child_process.h"

#include "cli/interrupt.h"
#include "common/clock.h"
#include "common/error.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

namespace rift::cli {

namespace {

constexpr std::size_t kKeptBytes = 64 << 10;

/// What the child's descriptors become.
class SpawnActions {
 public:
  SpawnActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

/// `words[0]` is looked for in PATH unless it has a slash.
pid_t spawn(std::vector<std::string> words, SpawnActions& actions) {
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawnp(&child, argv[0], actions.get(), nullptr, argv.data(), environ);
  if (error != 0) {
    throw fail(error == ENOENT ? Errc::kNotFound : Errc::kIo,
               "cannot start {}: {}",
               words[0],
               std::strerror(error));
  }
  return child;
}

/// The last kKeptBytes or more.
std::string read_to_end(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return text;
    }
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > 2 * kKeptBytes) {
      text.erase(0, text.size() - kKeptBytes);
    }
  }
}

/// The child's wait status. Errors (thrown): kIo.
int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw fail(Errc::kIo, "cannot wait for process {}: {}", child, std::strerror(errno));
    }
  }
  return status;
}

}  // namespace

Pipe make_pipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) {
    throw fail(Errc::kIo, "cannot make a pipe: {}", std::strerror(errno));
  }
  return {ScopedFd(fds[0]), ScopedFd(fds[1])};
}

ChildProcess::ChildProcess(const std::filesystem::path& program,
                           const std::vector<std::string>& arguments,
                           const std::vector<PassedFd>& fds) {
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  SpawnActions actions;
  for (const PassedFd& fd : fds) {
    ::posix_spawn_file_actions_adddup2(actions.get(), fd.ours, fd.theirs);
  }
  pid_ = spawn(std::move(words), actions);
}

ChildProcess::~ChildProcess() { terminate(std::chrono::seconds(2)); }

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), ended_(std::move(other.ended_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    terminate(std::chrono::seconds(2));
    pid_ = std::exchange(other.pid_, -1);
    ended_ = std::move(other.ended_);
  }
  return *this;
}

std::optional<std::string> ChildProcess::ended() {
  if (pid_ > 0 && !ended_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      ended_ = WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                   : fmt::format("exit code {}", WEXITSTATUS(status));
    }
  }
  return ended_;
}

void ChildProcess::terminate(std::chrono::milliseconds patience) {
  if (pid_ <= 0 || ended()) {
    return;
  }
  ::kill(pid_, SIGTERM);
  // A stopped process (SIGSTOP) handles SIGTERM only when it runs again.
  ::kill(pid_, SIGCONT);
  const TimePoint deadline = Clock::now() + patience;
  while (!ended() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!ended()) {
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    ended_ = "signal 9";
  }
}

ChildResult run_child(const std::vector<std::string>& argv) {
  Pipe pipe = make_pipe();
  SpawnActions actions;
  ::posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(actions.get(), pipe.write.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(actions.get(), pipe.write.get(), STDERR_FILENO);
  const pid_t child = spawn(argv, actions);
  pipe.write.reset();
  ChildResult result;
  result.output = read_to_end(pipe.read.get());
  const int status = wait_for(child);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string read_line(int fd, std::string& buffer, std::chrono::milliseconds timeout) {
  const TimePoint deadline = Clock::now() + timeout;
  for (;;) {
    if (const auto end = buffer.find('\n'); end != std::string::npos) {
      std::string line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return line;
    }
    if (interrupted()) {
      throw fail(Errc::kCancelled, "interrupted");
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      throw fail(Errc::kTimeout, "no line within {} ms", timeout.count());
    }
    pollfd poll_fd{fd, POLLIN, 0};
    const int ready = ::poll(&poll_fd, 1, static_cast<int>(std::min<long long>(left, 200)));
    if (ready <= 0) {
      continue;  // time to look at the deadline and for interrupts
    }
    std::array<char, 65536> chunk{};
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got > 0) {
      buffer.append(chunk.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || errno != EINTR) {
      throw fail(Errc::kUnavailable, "the other end closed the pipe");
    }
  }
}

}  // namespace rift::cli
