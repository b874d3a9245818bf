// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"
#include "common/trace.h"
#include "draft_node/service.h"
#include "model/load_model.h"
#include "model/tokenizer.h"
#include "transport/node_process.h"
#include "transport/ucx/ucx_transport.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <spdlog/spdlog.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace rift::draft_node {
namespace {

/// Readiness is reported when the score node is there, or after this time without it.
constexpr std::chrono::seconds kScoreGrace{5};

struct Options {
  transport::NodeProcessOptions process;
  std::string model;
  std::string score;
  std::uint64_t memory_bytes = 0;
  std::uint64_t arena_bytes = 256ULL << 20U;
  std::size_t max_sessions = 16;
  RefreshMode refresh_mode = RefreshMode::kStage;
};

DraftNodeOptions node_options(const Options& options,
                              const std::shared_ptr<const model::Weights>& weights,
                              Trace* trace) {
  DraftNodeOptions node;
  node.weights = weights;
  node.threads = options.process.threads;
  node.cpus = options.process.cpus;
  node.memory_bytes = options.memory_bytes;
  node.arena_bytes = options.arena_bytes;
  node.max_sessions = options.max_sessions;
  node.refresh_mode = options.refresh_mode;
  node.engine.mode =
      options.process.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  node.trace = trace;
  if (!options.score.empty()) {
    node.score = transport::parse_endpoint(options.score).value_or_throw();
  }
  return node;
}

transport::NodeInfo describe(const Options& options, const DraftNodeOptions& node) {
  model::Tokenizer::Options tokenizer;
  if (!options.process.pre.empty()) {
    tokenizer.pre = options.process.pre;
  }
  return node_info(*node.weights,
                   node.engine.kv_dtype,
                   options.process.node_id,
                   std::string(model::Tokenizer::open(options.model, tokenizer)->hash()));
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
  const transport::Endpoint endpoint =
      transport::parse_endpoint(options.process.listen).value_or_throw();
  const auto trace = open_trace(options.process, transport::Role::kDraft);
  const transport::NodeProcessOptions& process = options.process;
  const model::LoadedModel loaded =
      model::load_model(options.model,
                        {.threads = process.threads,
                         .cpus = process.cpus,
                         .repack = !process.no_repack,
                         .on_progress = transport::LoadReport(process.ready_fd)});
  const DraftNodeOptions settings = node_options(options, loaded.weights, trace.get());
  boost::asio::io_context io(1);
  DraftNode node(
      io,
      transport::make_ucx_transport(io, link_options(options.process, describe(options, settings))),
      settings);
  const transport::StopSignals signals(io);

  const std::uint16_t port = node.start(endpoint);
  Readiness readiness(io, node, [&] {
    log().info("{} drafts on {}:{}", options.process.node_id, endpoint.host, port);
    report_ready(options.process, port, loaded.seconds);
  });
  readiness.wait(Clock::now() + (settings.score ? kScoreGrace : std::chrono::seconds(0)));
  io.run();
  node.stop();
  return signals.exit_code();
}

void add_options(CLI::App& app, Options& o) {
  static const std::map<std::string, RefreshMode> kModes = {{"stage", RefreshMode::kStage},
                                                            {"pause", RefreshMode::kPause}};
  app.add_option("-m,--md,--draft-model", o.model, "draft model (GGUF)")->required();
  add_listen_options(app, o.process, "127.0.0.1:7002");
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
  add_node_options(app, o.process, "draft0");
}

int run(int argc, char** argv) {
  CLI::App app{"Drafts tokens from a working set of fixed size", "draft_node"};
  Options options;
  add_options(app, options);
  app.footer(
      "Examples:\n"
      "  draft_node -md draft.gguf --listen 127.0.0.1:7002 --score 127.0.0.1:7003\n"
      "  draft_node -md draft.gguf --listen 0.0.0.0:7002 --score 10.0.0.2:7003 "
      "--secret-file cluster.key --memory-bytes 600MB");
  return run_node(app, argc, argv, options.process, [&] { return serve(options); });
}

}  // namespace
}  // namespace rift::draft_node

int main(int argc, char** argv) { return rift::draft_node::run(argc, argv); }
