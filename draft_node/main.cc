// SPDX-License-Identifier: Apache-2.0
#include "common/arguments.h"
#include "common/log.h"
#include "common/trace.h"
#include "draft_node/service.h"
#include "model/tokenizer.h"
#include "model/weights.h"
#include "transport/ucx/ucx_transport.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

namespace rift::draft_node {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;
/// Readiness is reported when the score node is there, or after this time without it.
constexpr std::chrono::seconds kScoreGrace{5};

struct Options {
  std::string model;
  std::string listen = "127.0.0.1:7002";
  std::string score;
  std::string node_id = "draft0";
  std::string secret_file;
  std::string require_transport;
  std::string log_level;
  std::string trace;
  std::string tokenizer_pre;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::uint64_t memory_bytes = 0;
  std::uint64_t arena_bytes = 256ULL << 20U;
  std::size_t max_sessions = 16;
  RefreshMode refresh_mode = RefreshMode::kStage;
  int ready_fd = -1;
  bool exact = false;
  bool die_with_parent = false;
};

std::string read_secret(const std::string& path) {
  if (path.empty()) {
    return {};
  }
  std::ifstream file(path);
  std::string secret;
  if (!std::getline(file, secret) || secret.empty()) {
    throw fail(Errc::kNotFound, "secret file {}: cannot be read or is empty", path);
  }
  return secret;
}

/// One line that tells the starting process where this node listens.
void report_ready(int fd, std::uint16_t port) {
  const std::string line = fmt::format("{{\"port\":{},\"pid\":{}}}\n", port, ::getpid());
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd, line.data() + done, line.size() - done);
    if (n < 0 && errno != EINTR) {
      throw fail(Errc::kIo, "--ready-fd {}: {}", fd, std::strerror(errno));
    }
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  ::close(fd);
}

DraftNodeOptions node_options(const Options& options, Trace* trace) {
  DraftNodeOptions node;
  node.weights = model::load_weights(options.model);
  node.threads = options.threads;
  node.memory_bytes = options.memory_bytes;
  node.arena_bytes = options.arena_bytes;
  node.max_sessions = options.max_sessions;
  node.refresh_mode = options.refresh_mode;
  node.engine.mode = options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  node.trace = trace;
  if (!options.score.empty()) {
    node.score = transport::parse_endpoint(options.score).value_or_throw();
  }
  return node;
}

transport::TransportOptions link_options(const Options& options, const DraftNodeOptions& node) {
  model::Tokenizer::Options tokenizer;
  if (!options.tokenizer_pre.empty()) {
    tokenizer.pre = options.tokenizer_pre;
  }
  transport::TransportOptions link;
  link.node = node_info(*node.weights,
                        node.engine.kv_dtype,
                        options.node_id,
                        std::string(model::Tokenizer::open(options.model, tokenizer)->hash()));
  link.secret = read_secret(options.secret_file);
  link.require_transport = options.require_transport;
  return link;
}

/// Calls `report` once the score node is connected, or when it is not worth waiting for.
class Readiness {
 public:
  Readiness(boost::asio::io_context& io, const DraftNode& node, std::function<void()> report)
      : node_(node), report_(std::move(report)), timer_(io) {}

  void wait(TimePoint deadline) {
    if (node_.score_connected() || Clock::now() >= deadline) {
      report_();
      return;
    }
    timer_.expires_after(std::chrono::milliseconds(10));
    timer_.async_wait([this, deadline](const boost::system::error_code& error) {
      if (!error) {
        wait(deadline);
      }
    });
  }

 private:
  const DraftNode& node_;
  std::function<void()> report_;
  boost::asio::steady_timer timer_;
};

int serve(const Options& options) {
  const transport::Endpoint endpoint = transport::parse_endpoint(options.listen).value_or_throw();
  std::unique_ptr<Trace> trace;
  if (!options.trace.empty()) {
    trace = std::make_unique<Trace>(options.trace, "draft");
  }
  const DraftNodeOptions settings = node_options(options, trace.get());
  boost::asio::io_context io(1);
  DraftNode node(io, transport::make_ucx_transport(io, link_options(options, settings)), settings);

  int exit_code = 0;
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code& error, int number) {
    if (!error) {
      log().info("stopping on {}", ::strsignal(number));
      exit_code = number == SIGINT ? kExitInterrupted : 0;
      io.stop();
    }
  });

  const std::uint16_t port = node.start(endpoint);
  Readiness readiness(io, node, [&] {
    log().info("{} drafts on {}:{}", options.node_id, endpoint.host, port);
    if (options.ready_fd >= 0) {
      report_ready(options.ready_fd, port);
    }
  });
  readiness.wait(Clock::now() + (settings.score ? kScoreGrace : std::chrono::seconds(0)));
  io.run();
  node.stop();
  return exit_code;
}

void add_options(CLI::App& app, Options& o) {
  static const std::map<std::string, RefreshMode> kModes = {{"stage", RefreshMode::kStage},
                                                            {"pause", RefreshMode::kPause}};
  app.add_option("-m,--md,--draft-model", o.model, "draft model (GGUF)")->required();
  app.add_option("--listen", o.listen, "HOST:PORT for target nodes; port 0: any")
      ->capture_default_str();
  app.add_option(
      "--score", o.score, "HOST:PORT of the score node; without one: recent window only");
  app.add_option("--memory-bytes", o.memory_bytes, "the device's memory, weights included")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--arena-bytes", o.arena_bytes, "for sessions, without --memory-bytes")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--max-sessions", o.max_sessions, "sessions open at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--refresh-mode", o.refresh_mode, "stage, or pause (drafting waits)")
      ->transform(CLI::CheckedTransformer(kModes, CLI::ignore_case));
  app.add_option("--threads", o.threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--node-id", o.node_id, "name in logs and to peers")->capture_default_str();
  app.add_option("--secret-file", o.secret_file, "shared secret; without one: loopback only");
  app.add_option("--require-transport", o.require_transport, "refuse links without this transport");
  app.add_option("--tokenizer-pre", o.tokenizer_pre, "pre-tokenizer, in place of the file's");
  app.add_option("--ready-fd", o.ready_fd, "write {\"port\":N,\"pid\":N} there when ready");
  app.add_option("--trace", o.trace, "write trace events to this file");
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error, off");
  app.add_flag("--exact", o.exact, "f32 arithmetic instead of 8-bit activations");
  app.add_flag("--die-with-parent", o.die_with_parent, "end when the starting process ends");
}

int run(int argc, char** argv) {
  CLI::App app{"Drafts tokens from a working set of fixed size", "draft_node"};
  Options o;
  add_options(app, o);
  app.set_version_flag("--version", RIFT_VERSION);
  app.footer(
      "Examples:\n"
      "  draft_node -md draft.gguf --listen 127.0.0.1:7002 --score 127.0.0.1:7003\n"
      "  draft_node -md draft.gguf --listen 0.0.0.0:7002 --score 10.0.0.2:7003 "
      "--secret-file cluster.key --memory-bytes 600MB");
  try {
    app.parse(command_line(argc, argv));
  } catch (const CLI::ParseError& error) {
    const bool shown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return shown ? 0 : kExitUsage;
  }
  if (o.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  }
  init_logging(o.node_id, o.log_level);
  return serve(o);
}

}  // namespace
}  // namespace rift::draft_node

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return rift::draft_node::run(argc, argv);
  } catch (const std::exception& error) {
    rift::log().error("{}", error.what());
    return 1;
  }
}
