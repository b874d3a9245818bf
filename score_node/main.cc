// SPDX-License-Identifier: Apache-2.0
#include "common/arguments.h"
#include "common/log.h"
#include "model/weights.h"
#include "score_node/service.h"
#include "transport/ucx/ucx_transport.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

namespace rift::score_node {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;

struct Options {
  std::string model;
  std::string listen = "127.0.0.1:7003";
  std::string node_id = "score0";
  std::string secret_file;
  std::string require_transport;
  std::string log_level;
  std::string trace;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::int32_t chunk = 256;
  std::uint64_t history_bytes = 4ULL << 30U;
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

transport::TransportOptions link_options(const Options& options, const ScoreNodeOptions& node) {
  transport::TransportOptions link;
  link.node = node_info(*node.weights, node.engine.kv_dtype, options.node_id);
  link.node.version = RIFT_VERSION;
  link.secret = read_secret(options.secret_file);
  link.require_transport = options.require_transport;
  return link;
}

int serve(const Options& options) {
  const transport::Endpoint endpoint = transport::parse_endpoint(options.listen).value_or_throw();
  ScoreNodeOptions node_options;
  node_options.weights = model::load_weights(options.model);
  node_options.engine.threads = options.threads;
  node_options.engine.chunk = options.chunk;
  node_options.engine.max_history_bytes = options.history_bytes;
  node_options.engine.mode =
      options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  if (!options.trace.empty()) {
    node_options.trace = std::make_shared<Trace>(options.trace, "score");
  }

  boost::asio::io_context io(1);
  const auto transport = transport::make_ucx_transport(io, link_options(options, node_options));
  ScoreNode node(io, *transport, node_options);

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
  log().info("{} serves scores on {}:{}", options.node_id, endpoint.host, port);
  if (options.ready_fd >= 0) {
    report_ready(options.ready_fd, port);
  }
  io.run();
  node.stop();
  transport->stop();
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app{"Keeps the draft model's full KV history, scores it, and streams the chosen blocks",
               "score_node"};
  Options o;
  app.add_option("-m,--md,--draft-model", o.model, "draft model (GGUF)")->required();
  app.add_option("--listen", o.listen, "HOST:PORT for draft nodes; port 0: any")
      ->capture_default_str();
  app.add_option("--threads", o.threads, "CPU threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--chunk", o.chunk, "tokens of one prefill pass")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--history-bytes", o.history_bytes, "memory for histories, e.g. 4GB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("--node-id", o.node_id, "name in logs and to peers")->capture_default_str();
  app.add_option("--secret-file", o.secret_file, "shared secret; without one: loopback only");
  app.add_option("--require-transport", o.require_transport, "refuse links without this transport");
  app.add_option("--ready-fd", o.ready_fd, "write {\"port\":N,\"pid\":N} there when listening");
  app.add_option("--trace", o.trace, "write trace events to this file");
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error, off");
  app.add_flag("--exact", o.exact, "f32 arithmetic instead of 8-bit activations");
  app.add_flag("--die-with-parent", o.die_with_parent, "end when the starting process ends");
  app.set_version_flag("--version", RIFT_VERSION);
  app.footer(
      "Examples:\n"
      "  score_node -md draft.gguf --listen 127.0.0.1:7003\n"
      "  score_node -md draft.gguf --listen 0.0.0.0:7003 --secret-file cluster.key "
      "--history-bytes 16GB");
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
}  // namespace rift::score_node

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return rift::score_node::run(argc, argv);
  } catch (const std::exception& error) {
    rift::log().error("{}", error.what());
    return 1;
  }
}
