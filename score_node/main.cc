// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"
#include "model/load_model.h"
#include "score_node/service.h"
#include "transport/node_process.h"
#include "transport/ucx/ucx_transport.h"

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <spdlog/spdlog.h>

#include <string>

namespace rift::score_node {
namespace {

struct Options {
  transport::NodeProcessOptions process;
  std::string model;
  std::int32_t chunk = 256;
  std::uint64_t history_bytes = 4ULL << 30U;
};

ScoreNodeOptions node_options(const Options& options,
                              const std::shared_ptr<const model::Weights>& weights) {
  ScoreNodeOptions node;
  node.weights = weights;
  node.engine.threads = options.process.threads;
  node.engine.cpus = options.process.cpus;
  node.engine.chunk = options.chunk;
  node.engine.max_history_bytes = options.history_bytes;
  node.engine.mode =
      options.process.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  node.trace = open_trace(options.process, transport::Role::kScore);
  return node;
}

int serve(const Options& options) {
  const transport::Endpoint endpoint =
      transport::parse_endpoint(options.process.listen).value_or_throw();
  const transport::NodeProcessOptions& process = options.process;
  const model::LoadedModel loaded =
      model::load_model(options.model,
                        {.threads = process.threads,
                         .cpus = process.cpus,
                         .repack = !process.no_repack,
                         .on_progress = transport::LoadReport(process.ready_fd)});
  const ScoreNodeOptions settings = node_options(options, loaded.weights);

  boost::asio::io_context io(1);
  const auto transport = transport::make_ucx_transport(
      io,
      link_options(
          options.process,
          node_info(*settings.weights, settings.engine.kv_dtype, options.process.node_id)));
  ScoreNode node(io, *transport, settings);
  const transport::StopSignals signals(io);

  const std::uint16_t port = node.start(endpoint);
  log().info("{} serves scores on {}:{}", options.process.node_id, endpoint.host, port);
  report_ready(options.process, port, loaded.seconds);
  io.run();
  node.stop();
  transport->stop();
  return signals.exit_code();
}

void add_options(CLI::App& app, Options& o) {
  app.add_option("-m,--md,--draft-model", o.model, "draft model (GGUF)")->required();
  add_listen_options(app, o.process, "127.0.0.1:7003");
  app.add_option("--chunk", o.chunk, "tokens of one prefill pass")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_option("--history-bytes", o.history_bytes, "memory for histories, e.g. 4GB")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  add_node_options(app, o.process, "score0");
}

int run(int argc, char** argv) {
  CLI::App app{"Keeps the draft model's full KV history, scores it, and streams the chosen blocks",
               "score_node"};
  Options options;
  add_options(app, options);
  app.footer(
      "Examples:\n"
      "  score_node -md draft.gguf --listen 127.0.0.1:7003\n"
      "  score_node -md draft.gguf --listen 0.0.0.0:7003 --secret-file cluster.key "
      "--history-bytes 16GB");
  return run_node(app, argc, argv, options.process, [&] { return serve(options); });
}

}  // namespace
}  // namespace rift::score_node

int main(int argc, char** argv) { return rift::score_node::run(argc, argv); }
