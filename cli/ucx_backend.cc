// SPDX-License-Identifier: Apache-2.0
#include "cli/backend.h"
#include "cli/child_process.h"
#include "common/error.h"
#include "common/log.h"
#include "common/trace.h"
#include "target_node/json.h"

#include <boost/json.hpp>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>

namespace rift::cli {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): durations

constexpr auto kStartTimeout = 120s;
constexpr int kReadyFd = 3;

std::filesystem::path program(const char* name) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  return self.parent_path() / name;
}

LoadSeconds load_seconds(const json::object& line) {
  const json::object& load = line.at("load").as_object();
  return {load.at("open").to_number<double>(),
          load.at("prefault").to_number<double>(),
          load.at("pack").to_number<double>()};
}

class UcxBackend : public Backend {
 public:
  explicit UcxBackend(const ClusterOptions& options) : options_(options) {
    std::string draft;
    if (!options.draft_model.empty()) {
      const std::string score =
          start_listener(score_, "score_node", score_arguments(), start_up_.score);
      draft = start_listener(draft_, "draft_node", draft_arguments(score), start_up_.draft);
    }
    start_target(draft);
  }
  ~UcxBackend() override { shut_down(); }
  UcxBackend(const UcxBackend&) = delete;
  UcxBackend& operator=(const UcxBackend&) = delete;

  target_node::Outcome generate(const target_node::Request& request,
                                const AnswerEvents& events) override;

  [[nodiscard]] StartUp start_up() const override { return start_up_; }

  void stop() override {
    shut_down();
    if (!options_.trace.empty()) {
      merge_traces({trace_part("score"), trace_part("draft"), trace_part("target")},
                   options_.trace);
    }
  }

 private:
  [[nodiscard]] std::string trace_part(const char* node) const {
    return options_.trace + "." + node;
  }

  std::vector<std::string> common_arguments(const char* node, const std::vector<int>& cpus) const {
    std::vector<std::string> arguments{"--node-id",
                                       fmt::format("{}0", node),
                                       "--die-with-parent",
                                       "--log-level",
                                       options_.log_level};
    if (options_.threads != 0) {
      arguments.insert(arguments.end(), {"--threads", std::to_string(options_.threads)});
    }
    if (!cpus.empty()) {
      arguments.insert(arguments.end(), {"--cpus", fmt::format("{}", fmt::join(cpus, ","))});
    }
    if (!options_.trace.empty()) {
      arguments.insert(arguments.end(), {"--trace", trace_part(node)});
    }
    if (!options_.require_transport.empty()) {
      arguments.insert(arguments.end(), {"--require-transport", options_.require_transport});
    }
    if (options_.exact) {
      arguments.emplace_back("--exact");
    }
    if (options_.no_repack) {
      arguments.emplace_back("--no-repack");
    }
    if (!options_.pre.empty()) {
      arguments.insert(arguments.end(), {"--pre", options_.pre});
    }
    return arguments;
  }

  std::vector<std::string> score_arguments() const {
    auto arguments = common_arguments("score", options_.score_cpus);
    arguments.insert(arguments.end(), {"-md", options_.draft_model, "--listen", "127.0.0.1:0"});
    return arguments;
  }

  std::vector<std::string> draft_arguments(const std::string& score) const {
    auto arguments = common_arguments("draft", options_.draft_cpus);
    arguments.insert(arguments.end(),
                     {"-md", options_.draft_model, "--listen", "127.0.0.1:0", "--score", score});
    if (options_.draft_memory_bytes != 0) {
      arguments.insert(arguments.end(),
                       {"--memory-bytes", std::to_string(options_.draft_memory_bytes)});
    }
    return arguments;
  }

  std::string start_listener(ChildProcess& child,
                             const char* name,
                             std::vector<std::string> arguments,
                             LoadSeconds& load);
  /// Of a line that a node writes while it loads; others are left alone.
  void report_load(const char* node, const json::object& line) const;
  void start_target(const std::string& draft);
  json::object next_event();
  void shut_down();

  ClusterOptions options_;
  StartUp start_up_;
  ChildProcess score_;
  ChildProcess draft_;
  ChildProcess target_;
  ScopedFd to_target_;
  ScopedFd from_target_;
  std::string buffer_;
};

void UcxBackend::report_load(const char* node, const json::object& line) const {
  if (options_.on_load && line.contains("done")) {
    options_.on_load(node,
                     line.at("done").to_number<std::uint64_t>(),
                     line.at("total").to_number<std::uint64_t>());
  }
}

// Starts a node that announces its port on the ready pipe; returns where it listens.
std::string UcxBackend::start_listener(ChildProcess& child,
                                       const char* name,
                                       std::vector<std::string> arguments,
                                       LoadSeconds& load) {
  Pipe ready = make_pipe();
  arguments.insert(arguments.end(), {"--ready-fd", std::to_string(kReadyFd)});
  child = ChildProcess(program(name), arguments, {{ready.write.get(), kReadyFd}});
  ready.write.reset();
  std::string buffer;
  try {
    json::object line;
    do {
      line = json::parse(read_line(ready.read.get(), buffer, kStartTimeout)).as_object();
      report_load(name, line);
    } while (!line.contains("port"));
    load = load_seconds(line);
    const auto port = line.at("port").to_number<std::uint16_t>();
    log().debug("{} is process {}, port {}", name, child.pid(), port);
    return fmt::format("127.0.0.1:{}", port);
  } catch (const Error& error) {
    if (error.code() == Errc::kCancelled) {
      throw;
    }
    child.terminate(1s);
    throw fail(Errc::kUnavailable,
               "{} did not start ({}); its messages are above",
               name,
               child.ended().value_or(error.message()));
  }
}

void UcxBackend::start_target(const std::string& draft) {
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  auto arguments = common_arguments("target", options_.target_cpus);
  arguments.insert(arguments.end(),
                   {"-m",
                    options_.target_model,
                    "--ctx",
                    std::to_string(options_.context),
                    "--max-draft-len",
                    std::to_string(options_.max_draft_len)});
  if (!draft.empty()) {
    arguments.insert(arguments.end(), {"--draft", draft});
  }
  if (options_.verify_costs) {
    arguments.emplace_back("--verify-costs");
  }
  if (options_.measure_verify) {
    arguments.emplace_back("--measure-verify");
  }
  target_ = ChildProcess(program("target_node"),
                         arguments,
                         {{in.read.get(), STDIN_FILENO}, {out.write.get(), STDOUT_FILENO}});
  to_target_ = std::move(in.write);
  from_target_ = std::move(out.read);
  log().debug("target_node is process {}", target_.pid());
  out.write.reset();
  in.read.reset();
  json::object ready = next_event();
  for (; ready.at("event").as_string() != "ready"; ready = next_event()) {
    report_load("target_node", ready);
  }
  start_up_.target = load_seconds(ready);
  if (!draft.empty() && !ready.at("draft").as_bool()) {
    if (!options_.require_transport.empty()) {
      throw fail(Errc::kMismatch,
                 "--require-transport {}: no link to the draft node: {}",
                 options_.require_transport,
                 std::string(ready.at("message").as_string()));
    }
    log().warn("no draft node: {}; plain decoding", std::string(ready.at("message").as_string()));
  }
}

json::object UcxBackend::next_event() {
  try {
    return json::parse(read_line(from_target_.get(), buffer_, 24h)).as_object();
  } catch (const Error& error) {
    if (error.code() == Errc::kCancelled) {
      throw;
    }
    target_.terminate(1s);
    throw fail(Errc::kUnavailable,
               "target_node ended ({}); its messages are above",
               target_.ended().value_or("unknown reason"));
  }
}

target_node::Outcome UcxBackend::generate(const target_node::Request& request,
                                          const AnswerEvents& events) {
  const std::string line =
      json::serialize(json::object{{"op", "generate"}, {"request", to_json(request)}}) + "\n";
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::write(to_target_.get(), line.data() + sent, line.size() - sent);
    if (n < 0 && errno != EINTR) {
      throw fail(Errc::kUnavailable, "target_node does not read: {}", std::strerror(errno));
    }
    sent += n > 0 ? static_cast<std::size_t>(n) : 0U;
  }
  for (;;) {
    const json::object event = next_event();
    const std::string_view name = event.at("event").as_string();
    if (name == "prefill" && events.on_prefill) {
      events.on_prefill(event.at("done").to_number<std::int32_t>(),
                        event.at("total").to_number<std::int32_t>());
    } else if (name == "tokens" && events.on_tokens) {
      std::vector<TokenId> ids;
      for (const json::value& id : event.at("ids").as_array()) {
        ids.push_back(id.to_number<TokenId>());
      }
      events.on_tokens(ids, target_node::progress_from_json(event.at("progress")));
    } else if (name == "done") {
      return target_node::outcome_from_json(event.at("outcome"));
    } else if (name == "error") {
      throw Error(Errc::kInvalidArgument, std::string(event.at("message").as_string()));
    }
  }
}

// Down the chain, so that nobody sees a peer die before its own turn.
void UcxBackend::shut_down() {
  to_target_.reset();
  target_.terminate(3s);
  draft_.terminate(3s);
  score_.terminate(3s);
}

}  // namespace

std::unique_ptr<Backend> start_ucx_backend(const ClusterOptions& options) {
  return std::make_unique<UcxBackend>(options);
}

}  // namespace rift::cli
