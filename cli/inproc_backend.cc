// SPDX-License-Identifier: Apache-2.0
#include "cli/backend.h"
#include "cli/local_nodes.h"
#include "common/log.h"
#include "common/trace.h"
#include "model/pack_weights.h"

namespace rift::cli {
namespace {

LocalNodesOptions node_options(const ClusterOptions& options) {
  LocalNodesOptions out;
  const auto load = [&options](const std::string& file) {
    const auto weights = model::load_weights(file);
    return options.no_repack ? weights : model::pack_weights(weights, options.threads);
  };
  out.target = load(options.target_model);
  if (!options.draft_model.empty()) {
    out.draft = load(options.draft_model);
  }
  out.context = options.context;
  out.max_draft_len = options.max_draft_len;
  out.measure_verify = options.measure_verify;
  out.draft_memory_bytes = options.draft_memory_bytes;
  out.threads = options.threads;
  out.mode = options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  out.trace = options.trace;
  return out;
}

class InprocBackend : public Backend {
 public:
  explicit InprocBackend(const ClusterOptions& options)
      : trace_(options.trace), nodes_(start(options)) {}

  target_node::Outcome generate(const target_node::Request& request,
                                const AnswerEvents& events) override {
    return nodes_.generate(request, events);
  }

  void stop() override {
    nodes_.stop();
    if (!trace_.empty()) {
      merge_traces({trace_ + ".score", trace_ + ".draft", trace_ + ".target"}, trace_);
      trace_.clear();
    }
  }

 private:
  static LocalNodesOptions start(const ClusterOptions& options) {
    // The nodes' messages come from this process.
    init_logging("rift", options.log_level);
    return node_options(options);
  }

  std::string trace_;
  LocalNodes nodes_;
};

}  // namespace

std::unique_ptr<Backend> start_inproc_backend(const ClusterOptions& options) {
  return std::make_unique<InprocBackend>(options);
}

}  // namespace rift::cli
