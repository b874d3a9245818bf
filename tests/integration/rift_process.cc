// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/rift_process.h"

#include "common/clock.h"
#include "common/error.h"
#include "tests/golden/published_model.h"

#include <boost/json.hpp>

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

namespace rift::test {
namespace {

std::string executable(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", error).string();
}

std::vector<pid_t> all_processes() {
  std::vector<pid_t> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      out.push_back(std::stoi(name));
    }
  }
  return out;
}

pid_t parent_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with("PPid:")) {
      return std::stoi(line.substr(5));
    }
  }
  return -1;
}

}  // namespace

std::filesystem::path bin_dir() { return RIFT_BIN_DIR; }

std::string model(const std::string& file) {
  const auto path = testing::model_path(file);
  if (!std::filesystem::exists(path)) {
    throw fail(Errc::kNotFound, "{} is missing: run `rift models fetch`", path.string());
  }
  return path;
}

std::string small_model() { return model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"); }
std::string large_model() { return model("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"); }

RiftProcess::RiftProcess(std::vector<std::string> arguments, bool json)
    : out_(cli::make_pipe()), err_(cli::make_pipe()) {
  static std::atomic<int> counter{0};
  if (json) {
    json_file_ = std::filesystem::temp_directory_path() /
                 fmt::format("rift_{}_{}.json", ::getpid(), counter++);
    arguments.insert(arguments.end(), {"--json", json_file_.string()});
  }
  child_ =
      cli::ChildProcess(bin_dir() / "rift",
                        arguments,
                        {{out_.write.get(), STDOUT_FILENO}, {err_.write.get(), STDERR_FILENO}});
  out_.write.reset();
  err_.write.reset();
}

RiftProcess::~RiftProcess() {
  if (!json_file_.empty()) {
    std::error_code ignored;
    std::filesystem::remove(json_file_, ignored);
  }
}

// Reads what is there; false when both ends are closed.
bool RiftProcess::pump(std::chrono::milliseconds wait) {
  std::array<pollfd, 2> fds{{{out_.read.get(), POLLIN, 0}, {err_.read.get(), POLLIN, 0}}};
  ::poll(fds.data(), fds.size(), static_cast<int>(wait.count()));
  bool open = false;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    cli::ScopedFd& fd = i == 0 ? out_.read : err_.read;
    if (fd.get() < 0) {
      continue;
    }
    open = true;
    if (fds[i].revents != 0) {
      std::array<char, 65536> chunk{};
      const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
      if (got <= 0) {
        fd.reset();
      } else {
        (i == 0 ? out_text_ : err_text_).append(chunk.data(), static_cast<std::size_t>(got));
      }
    }
  }
  return open;
}

bool RiftProcess::read_until(
    const std::function<bool(const std::string& out, const std::string& err)>& enough,
    std::chrono::seconds limit) {
  const TimePoint deadline = Clock::now() + limit;
  while (!enough(out_text_, err_text_)) {
    if (Clock::now() >= deadline || !pump(std::chrono::milliseconds(100))) {
      return enough(out_text_, err_text_);
    }
  }
  return true;
}

Finished RiftProcess::finish(std::chrono::seconds limit) {
  (void)read_until([](const std::string&, const std::string&) { return false; }, limit);
  Finished done;
  if (out_.read.get() >= 0) {
    done.ended = "still running";
  } else {
    // Both pipes are closed: the process is ending by itself.
    child_.terminate(std::chrono::seconds(10));
    done.ended = child_.ended().value_or("unknown");
  }
  done.out = out_text_;
  done.err = err_text_;
  if (!json_file_.empty()) {
    std::ifstream file(json_file_);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!text.empty()) {
      done.json = boost::json::parse(text).as_object();
    }
  }
  return done;
}

pid_t RiftProcess::node(const std::string& name) const {
  for (const pid_t pid : all_processes()) {
    if (parent_of(pid) == child_.pid() && executable(pid) == (bin_dir() / name).string()) {
      return pid;
    }
  }
  return -1;
}

Finished run_rift(const std::vector<std::string>& arguments,
                  bool json,
                  std::chrono::seconds limit) {
  RiftProcess process(arguments, json);
  return process.finish(limit);
}

std::vector<pid_t> running_nodes() {
  std::vector<pid_t> out;
  for (const pid_t pid : all_processes()) {
    const std::string path = executable(pid);
    for (const char* name : {"rift", "score_node", "draft_node", "target_node"}) {
      if (path == (bin_dir() / name).string()) {
        out.push_back(pid);
      }
    }
  }
  return out;
}

bool all_nodes_gone(std::chrono::seconds limit) {
  const TimePoint deadline = Clock::now() + limit;
  while (!running_nodes().empty()) {
    if (Clock::now() >= deadline) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

}  // namespace rift::test
