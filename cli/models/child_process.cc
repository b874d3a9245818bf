// SPDX-License-Identifier: Apache-2.0
#include "cli/models/child_process.h"

#include "cli/models/descriptor.h"
#include "common/error.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

extern char** environ;

namespace rift::cli {
namespace {

constexpr std::size_t kKeptBytes = 64 << 10;

std::string reason(int error) { return std::generic_category().message(error); }

class SpawnActions {
 public:
  SpawnActions() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnActions() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

pid_t spawn(const std::vector<std::string>& argv, int output) {
  SpawnActions actions;
  posix_spawn_file_actions_addopen(actions.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(actions.get(), output, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(actions.get(), output, STDERR_FILENO);
  std::vector<char*> arguments;
  for (const std::string& argument : argv) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], actions.get(), nullptr, arguments.data(), environ);
  if (error != 0) {
    throw fail(error == ENOENT ? Errc::kNotFound : Errc::kIo,
               "cannot start {}: {}",
               argv[0],
               reason(error));
  }
  return child;
}

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

}  // namespace

ChildResult run_child(const std::vector<std::string>& argv) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw fail(Errc::kIo, "cannot make a pipe: {}", reason(errno));
  }
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t child = spawn(argv, to.value());
  to.close();
  ChildResult result;
  result.output = read_to_end(from.value());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw fail(Errc::kIo, "cannot wait for {}: {}", argv[0], reason(errno));
    }
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string last_lines(const std::string& text, std::size_t lines) {
  std::vector<std::string> found;
  std::size_t end = text.size();
  while (end > 0 && found.size() < lines) {
    const std::size_t newline = text.rfind('\n', end - 1);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    if (begin < end) {
      found.push_back(text.substr(begin, end - begin));
    }
    end = begin == 0 ? 0 : begin - 1;
  }
  std::string result;
  for (auto line = found.rbegin(); line != found.rend(); ++line) {
    result += "\n  " + *line;
  }
  return result;
}

}  // namespace rift::cli
