// SPDX-License-Identifier: Apache-2.0
#include "cli/backend.h"
#include "cli/local_nodes.h"
#include "common/cpu_list.h"
#include "common/log.h"
#include "common/trace.h"
#include "model/load_model.h"

namespace rift::cli {
namespace {

std::shared_ptr<const model::Weights> load(const ClusterOptions& options,
                                           const char* node,
                                           const std::string& file,
                                           LoadSeconds& seconds) {
  model::LoadOptions how;
  how.threads = thread_count(options.threads, options.target_cpus);
  how.cpus = options.target_cpus;
  how.repack = !options.no_repack;
  if (options.on_load) {
    how.on_progress = [&](std::uint64_t done, std::uint64_t total) {
      options.on_load(node, done, total);
    };
  }
  model::LoadedModel loaded = model::load_model(file, how);
  seconds = loaded.seconds;
  return loaded.weights;
}

LocalNodesOptions node_options(const ClusterOptions& options, StartUp& start_up) {
  LocalNodesOptions out;
  out.target = load(options, "target", options.target_model, start_up.target);
  if (!options.draft_model.empty()) {
    out.draft = load(options, "draft", options.draft_model, start_up.draft);  // and score
  }
  out.target_cpus = options.target_cpus;
  out.draft_cpus = options.draft_cpus;
  out.score_cpus = options.score_cpus;
  out.context = options.context;
  out.max_draft_len = options.max_draft_len;
  out.verify_costs = options.verify_costs;
  out.measure_verify = options.measure_verify;
  out.draft_memory_bytes = options.draft_memory_bytes;
  out.threads = thread_count(options.threads, options.target_cpus);
  out.mode = options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  out.trace = options.trace;
  return out;
}

class InprocBackend : public Backend {
 public:
  explicit InprocBackend(const ClusterOptions& options)
      : trace_(options.trace), nodes_(start(options, start_up_)) {}

  target_node::Outcome generate(const target_node::Request& request,
                                const AnswerEvents& events) override {
    return nodes_.generate(request, events);
  }

  [[nodiscard]] StartUp start_up() const override { return start_up_; }

  void stop() override {
    nodes_.stop();
    if (!trace_.empty()) {
      merge_traces({trace_ + ".score", trace_ + ".draft", trace_ + ".target"}, trace_);
      trace_.clear();
    }
  }

 private:
  static LocalNodesOptions start(const ClusterOptions& options, StartUp& start_up) {
    // The nodes' messages come from this process.
    init_logging("rift", options.log_level);
    return node_options(options, start_up);
  }

  std::string trace_;
  StartUp start_up_;
  LocalNodes nodes_;
};

}  // namespace

std::unique_ptr<Backend> start_inproc_backend(const ClusterOptions& options) {
  return std::make_unique<InprocBackend>(options);
}

}  // namespace rift::cli
