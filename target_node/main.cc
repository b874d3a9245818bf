// SPDX-License-Identifier: Apache-2.0
#include "model/load_model.h"
#include "model/tokenizer.h"
#include "target_node/json.h"
#include "target_node/service.h"
#include "target_node/verify_cache.h"
#include "transport/node_process.h"
#include "transport/ucx/ucx_transport.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <boost/json.hpp>

#include <unistd.h>

#include <cstdio>
#include <istream>
#include <memory>
#include <string>

namespace rift::target_node {
namespace {

namespace json = boost::json;

struct Options {
  transport::NodeProcessOptions process;
  std::string model;
  std::string draft;
  std::int32_t context = 8192;
  std::int32_t max_draft_len = 31;
  bool verify_costs = false;
  bool measure_verify = false;
  int connect_seconds = 30;
};

/// Requests in on standard input, events out on standard output (json.h).
class LineServer {
 public:
  LineServer(boost::asio::io_context& io, TargetNode& node)
      : io_(io), node_(node), in_(io, ::dup(STDIN_FILENO)) {}

  void ready(const Status& draft, bool wanted, const LoadSeconds& load) {
    emit({{"event", "ready"},
          {"draft", wanted && draft.ok()},
          {"message", draft.ok() ? "" : draft.error().message()},
          {"load", json::parse(transport::to_json(load))}});
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

NodeOptions node_options(const Options& options,
                         const std::shared_ptr<const model::Weights>& weights) {
  NodeOptions node;
  node.weights = weights;
  node.engine.max_context = options.context;
  node.engine.max_draft_len = options.max_draft_len;
  node.engine.mode =
      options.process.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  node.threads = options.process.threads;
  node.cpus = options.process.cpus;
  node.verify_costs = options.verify_costs || options.measure_verify;
  node.measure_verify = options.measure_verify;
  node.verify_cache = verify_cache_folder();
  node.trace = open_trace(options.process, transport::Role::kTarget);
  return node;
}

transport::NodeInfo describe(const Options& options, const NodeOptions& node) {
  model::Tokenizer::Options tokenizer;
  if (!options.process.pre.empty()) {
    tokenizer.pre = options.process.pre;
  }
  return node_info(*node.weights,
                   options.process.node_id,
                   std::string(model::Tokenizer::open(options.model, tokenizer)->hash()));
}

int serve(const Options& options) {
  const transport::NodeProcessOptions& process = options.process;
  const model::LoadedModel loaded =
      model::load_model(options.model,
                        {.threads = process.threads,
                         .cpus = process.cpus,
                         .repack = !process.no_repack,
                         .on_progress = transport::LoadReport(STDOUT_FILENO)});
  const NodeOptions settings = node_options(options, loaded.weights);
  boost::asio::io_context io(1);
  const auto transport =
      transport::make_ucx_transport(io, link_options(options.process, describe(options, settings)));
  TargetNode node(io, *transport, settings);
  LineServer server(io, node);
  const transport::StopSignals signals(io);

  if (options.draft.empty()) {
    server.ready({}, false, loaded.seconds);
  } else {
    node.connect_draft(transport::parse_endpoint(options.draft).value_or_throw(),
                       std::chrono::seconds(options.connect_seconds),
                       [&](const Status& status) { server.ready(status, true, loaded.seconds); });
  }
  io.run();
  node.stop();
  transport->stop();
  return signals.exit_code();
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("-m,--model", o.model, "target model")->required();
  app.add_option("--draft", o.draft, "HOST:PORT of the draft node; none: plain decoding");
  app.add_option("--ctx", o.context, "longest prompt and answer, tokens")
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  app.add_option("--max-draft-len", o.max_draft_len, "largest draft length")
      ->check(CLI::Range(1, 255))
      ->capture_default_str();
  app.add_flag("--verify-costs",
               o.verify_costs,
               "know what verification passes cost, for requests that leave the draft length to "
               "the target: measured once for a model and machine, then kept in ~/.cache/rift");
  app.add_flag("--measure-verify", o.measure_verify, "measure them again");
  app.add_option("--connect-seconds", o.connect_seconds, "how long to look for the draft node")
      ->capture_default_str();
  add_node_options(app, o.process, "target0");
}

int run(int argc, char** argv) {
  CLI::App app{"Verifies drafts with the full model; requests and events are JSON lines",
               "target_node"};
  Options options;
  add_options(app, options);
  app.footer(
      "Examples:\n"
      "  target_node -m target.gguf --draft 127.0.0.1:7002\n"
      "  echo '{\"op\":\"generate\",\"request\":{\"prompt\":[9707],\"max_tokens\":8}}' | "
      "target_node -m target.gguf");
  return run_node(app, argc, argv, options.process, [&] { return serve(options); });
}

}  // namespace
}  // namespace rift::target_node

int main(int argc, char** argv) { return rift::target_node::run(argc, argv); }
