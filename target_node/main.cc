// SPDX-License-Identifier: Apache-2.0
#include "common/arguments.h"
#include "common/log.h"
#include "model/tokenizer.h"
#include "target_node/json.h"
#include "target_node/service.h"
#include "transport/ucx/ucx_transport.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/json.hpp>
#include <spdlog/spdlog.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <istream>
#include <memory>
#include <optional>
#include <string>

namespace rift::target_node {
namespace {

namespace json = boost::json;

struct Options {
  std::string model;
  std::string draft;
  std::string node_id = "target0";
  std::string secret_file;
  std::string require_transport;
  std::string log_level;
  std::string trace;
  std::string pre;
  std::int32_t context = 8192;
  std::int32_t max_draft_len = 31;
  int threads = 2;
  int connect_seconds = 30;
  bool exact = false;
  bool die_with_parent = false;
};

/// Requests in on standard input, events out on standard output (json.h).
class LineServer {
 public:
  LineServer(boost::asio::io_context& io, TargetNode& node)
      : io_(io), node_(node), in_(io, ::dup(STDIN_FILENO)) {}

  void ready(const Status& draft, bool wanted) {
    emit({{"event", "ready"},
          {"draft", wanted && draft.ok()},
          {"message", draft.ok() ? "" : draft.error().message()}});
    read();
  }

 private:
  void emit(const json::object& event) {
    const std::string line = json::serialize(event) + "\n";
    // A closed pipe means that the reader is gone; the end of standard input stops the node.
    std::fwrite(line.data(), 1, line.size(), stdout);
    std::fflush(stdout);
  }

  void read() {
    boost::asio::async_read_until(
        in_, buffer_, '\n', [this](const boost::system::error_code& error, std::size_t) {
          if (error) {
            ended_ = true;
            stop_when_done();
            return;
          }
          std::istream stream(&buffer_);
          std::string line;
          std::getline(stream, line);
          handle(line);
          read();
        });
  }

  void stop_when_done() {
    if (ended_ && node_.idle()) {
      io_.stop();
    }
  }

  void handle(const std::string& line) {
    try {
      const json::value command = json::parse(line);
      const std::string op(command.at("op").as_string());
      if (op == "generate") {
        generate(request_from_json(command.at("request")));
      } else if (op == "cancel") {
        node_.cancel(session_);
      } else {
        throw fail(Errc::kInvalidArgument, "unknown op '{}'", op);
      }
    } catch (const Error& error) {
      emit_error(error);
    } catch (const std::exception& error) {
      emit_error(fail(Errc::kInvalidArgument, "bad command line: {}", error.what()));
    }
  }

  void generate(Request request) {
    if (!node_.idle()) {
      throw fail(Errc::kUnavailable, "an answer is being produced; one at a time");
    }
    RequestEvents events;
    events.on_prefill = [this](std::int32_t done, std::int32_t total) {
      emit({{"event", "prefill"}, {"done", done}, {"total", total}});
    };
    events.on_tokens = [this](std::span<const TokenId> tokens, const Progress& progress) {
      emit({{"event", "tokens"},
            {"ids", json::array(tokens.begin(), tokens.end())},
            {"progress", to_json(progress)}});
    };
    events.on_done = [this](const Outcome& outcome) {
      emit({{"event", "done"}, {"outcome", to_json(outcome)}});
      stop_when_done();
    };
    events.on_error = [this](const Error& error) {
      emit_error(error);
      stop_when_done();
    };
    session_ = node_.submit(std::move(request), std::move(events));
  }

  void emit_error(const Error& error) {
    emit({{"event", "error"}, {"code", to_string(error.code())}, {"message", error.message()}});
  }

  boost::asio::io_context& io_;
  TargetNode& node_;
  boost::asio::posix::stream_descriptor in_;
  boost::asio::streambuf buffer_;
  SessionId session_{};
  bool ended_ = false;  // standard input
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

NodeOptions node_options(const Options& options) {
  NodeOptions node;
  node.weights = model::load_weights(options.model);
  node.engine.max_context = options.context;
  node.engine.max_draft_len = options.max_draft_len;
  node.engine.mode = options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  node.threads = options.threads;
  if (!options.trace.empty()) {
    node.trace = std::make_shared<Trace>(options.trace, "target");
  }
  return node;
}

int serve(const Options& options) {
  const NodeOptions node_opts = node_options(options);
  const auto tokenizer = model::Tokenizer::open(
      options.model, {options.pre.empty() ? std::nullopt : std::optional(options.pre)});

  transport::TransportOptions link;
  link.node = node_info(*node_opts.weights, options.node_id, std::string(tokenizer->hash()));
  link.node.version = RIFT_VERSION;
  link.secret = read_secret(options.secret_file);
  link.require_transport = options.require_transport;

  boost::asio::io_context io(1);
  const auto transport = transport::make_ucx_transport(io, link);
  TargetNode node(io, *transport, node_opts);
  LineServer server(io, node);

  bool interrupted = false;
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  signals.async_wait([&](const boost::system::error_code& error, int) {
    if (!error) {
      interrupted = true;
      io.stop();
    }
  });

  if (options.draft.empty()) {
    server.ready({}, false);
  } else {
    node.connect_draft(transport::parse_endpoint(options.draft).value_or_throw(),
                       std::chrono::seconds(options.connect_seconds),
                       [&](const Status& status) { server.ready(status, true); });
  }
  io.run();
  node.stop();
  transport->stop();
  return interrupted ? 130 : 0;
}

int run(int argc, char** argv) {
  CLI::App app{"Verifies drafts with the full model; requests and events are JSON lines",
               "target_node"};
  Options o;
  app.add_option("-m,--model", o.model, "target model")->required();
  app.add_option("--draft", o.draft, "HOST:PORT of the draft node; none: plain decoding");
  app.add_option("--ctx", o.context, "longest prompt and answer, tokens")
      ->check(CLI::Range(2, 1 << 24));
  app.add_option("--max-draft-len", o.max_draft_len, "largest draft length")
      ->check(CLI::Range(1, 255));
  app.add_option("--threads", o.threads, "CPU threads")->check(CLI::Range(1, 1024));
  app.add_option("--connect-seconds", o.connect_seconds, "how long to look for the draft node");
  app.add_option("--node-id", o.node_id, "name in logs and to peers");
  app.add_option("--secret-file", o.secret_file, "shared secret; without one: loopback only");
  app.add_option("--require-transport", o.require_transport, "refuse links without this transport");
  app.add_option("--pre", o.pre, "pre-tokenizer, where the file's is unknown");
  app.add_option("--trace", o.trace, "write trace events to this file");
  app.add_option("--log-level", o.log_level, "trace, debug, info, warn, error, off");
  app.add_flag("--exact", o.exact, "f32 arithmetic instead of 8-bit activations");
  app.add_flag("--die-with-parent", o.die_with_parent, "end when the starting process ends");
  app.set_version_flag("--version", RIFT_VERSION);
  app.footer(
      "Examples:\n"
      "  target_node -m target.gguf --draft 127.0.0.1:7002\n"
      "  echo '{\"op\":\"generate\",\"request\":{\"prompt\":[9707],\"max_tokens\":8}}' | "
      "target_node -m target.gguf");
  try {
    app.parse(command_line(argc, argv));
  } catch (const CLI::ParseError& error) {
    const bool shown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return shown ? 0 : 2;
  }
  if (o.die_with_parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  }
  init_logging(o.node_id, o.log_level);
  return serve(o);
}

}  // namespace
}  // namespace rift::target_node

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return rift::target_node::run(argc, argv);
  } catch (const std::exception& error) {
    rift::log().error("{}", error.what());
    return 1;
  }
}
