// SPDX-License-Identifier: Apache-2.0
#include "cli/local_nodes.h"

#include "cli/interrupt.h"
#include "common/error.h"
#include "target_node/verify_cache.h"

#include <chrono>
#include <optional>
#include <utility>

namespace rift::cli {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): durations

constexpr std::uint16_t kScorePort = 7003;
constexpr std::uint16_t kDraftPort = 7002;
constexpr auto kStartLimit = 30s;
// The three nodes were given one vocabulary by whoever opened the models.
constexpr const char* kTokenizer = "shared";

transport::TransportOptions link_options(const transport::NodeInfo& node) {
  transport::TransportOptions link;
  link.node = node;
  return link;
}

std::shared_ptr<Trace> open_trace(const std::string& file, const char* node) {
  return file.empty() ? nullptr : std::make_shared<Trace>(file + "." + node, node);
}

}  // namespace

LocalNodes::LocalNodes(const LocalNodesOptions& options)
    : options_(options),
      network_(options.link),
      score_trace_(open_trace(options.trace, "score")),
      draft_trace_(open_trace(options.trace, "draft")),
      target_trace_(open_trace(options.trace, "target")) {
  if (options_.draft) {
    start_score();
    start_draft();
  }
  start_target();
}

LocalNodes::~LocalNodes() { stop(); }

void LocalNodes::start_score() {
  score_node::ScoreNodeOptions o;
  o.weights = options_.draft;
  o.engine.threads = options_.threads;
  o.engine.cpus = options_.score_cpus;
  o.engine.kv_dtype = options_.kv_dtype;
  o.engine.mode = options_.mode;
  o.trace = score_trace_;
  score_link_ = transport::make_inproc_transport(
      io_,
      network_,
      link_options(score_node::node_info(*options_.draft, options_.kv_dtype, "score0")));
  score_ = std::make_unique<score_node::ScoreNode>(io_, *score_link_, o);
  score_->start({"score0", kScorePort});
}

void LocalNodes::start_draft() {
  draft_node::DraftNodeOptions o;
  o.weights = options_.draft;
  o.threads = options_.threads;
  o.cpus = options_.draft_cpus;
  o.memory_bytes = options_.draft_memory_bytes;
  o.arena_bytes = options_.draft_arena_bytes;
  o.score = transport::Endpoint{"score0", kScorePort};
  o.refresh_mode = options_.refresh_mode;
  o.engine.kv_dtype = options_.kv_dtype;
  o.engine.mode = options_.mode;
  o.trace = draft_trace_.get();
  draft_ = std::make_unique<draft_node::DraftNode>(
      io_,
      transport::make_inproc_transport(
          io_,
          network_,
          link_options(
              draft_node::node_info(*options_.draft, options_.kv_dtype, "draft0", kTokenizer))),
      o);
  draft_->start({"draft0", kDraftPort});
  run_until([this] { return draft_->score_connected(); });
}

void LocalNodes::start_target() {
  target_node::NodeOptions o;
  o.weights = options_.target;
  o.engine.max_context = options_.context;
  o.engine.max_draft_len = options_.max_draft_len;
  o.engine.kv_dtype = options_.kv_dtype;
  o.engine.mode = options_.mode;
  o.threads = options_.threads;
  o.cpus = options_.target_cpus;
  o.verify_costs = options_.verify_costs;
  o.measure_verify = options_.measure_verify;
  o.verify_cache = target_node::verify_cache_folder();
  o.trace = target_trace_;
  target_link_ = transport::make_inproc_transport(
      io_, network_, link_options(target_node::node_info(*options_.target, "target0", kTokenizer)));
  target_ = std::make_unique<target_node::TargetNode>(io_, *target_link_, o);
  if (draft_) {
    std::optional<Status> connected;
    target_->connect_draft(
        {"draft0", kDraftPort}, kStartLimit, [&](Status status) { connected = std::move(status); });
    run_until([&] { return connected.has_value(); });
    connected->value_or_throw();
  }
}

// Handles events until `done`; looks for interrupts in between.
void LocalNodes::run_until(const std::function<bool()>& done) {
  while (!done()) {
    if (interrupted()) {
      throw fail(Errc::kCancelled, "interrupted");
    }
    io_.run_one_for(100ms);
  }
}

target_node::Outcome LocalNodes::generate(const target_node::Request& request,
                                          const AnswerEvents& events) {
  std::optional<Result<target_node::Outcome>> result;
  target_node::RequestEvents callbacks;
  callbacks.on_prefill = events.on_prefill;
  callbacks.on_tokens = events.on_tokens;
  callbacks.on_done = [&result](target_node::Outcome outcome) { result = std::move(outcome); };
  callbacks.on_error = [&result](const Error& error) { result = error; };
  target_->submit(request, std::move(callbacks));
  run_until([&] { return result.has_value(); });
  return std::move(*result).value_or_throw();
}

void LocalNodes::stop() {
  if (target_) {
    target_->stop();
  }
  if (target_link_) {
    target_link_->stop();
  }
  if (draft_) {
    draft_->stop();
  }
  if (score_) {
    score_->stop();
  }
  if (score_link_) {
    score_link_->stop();
  }
  target_.reset();
  draft_.reset();
  score_.reset();
  target_trace_.reset();
  draft_trace_.reset();
  score_trace_.reset();
}

}  // namespace rift::cli
