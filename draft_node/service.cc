// SPDX-License-Identifier: Apache-2.0
#include "draft_node/service.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/log.h"

#include <boost/asio/post.hpp>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <sys/resource.h>

#include <chrono>
#include <utility>
#include <variant>

namespace rift::draft_node {
namespace {

constexpr std::chrono::milliseconds kConnectDeadline{10000};

std::string link_text(const transport::LinkInfo& link) {
  return fmt::format(
      "{} {}{}", link.name, fmt::join(link.lanes, ","), link.emulated ? " (emulated)" : "");
}

/// Largest resident set of the process so far, bytes.
std::uint64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
}

ArenaBudget arena_budget(const DraftNodeOptions& options, const Engine& engine) {
  ArenaBudget budget;
  budget.weights = engine.weight_bytes();
  budget.scratch = engine.scratch_bytes();
  budget.capacity = options.memory_bytes != 0
                        ? options.memory_bytes
                        : budget.weights + budget.scratch + options.arena_bytes;
  return budget;
}

}  // namespace

transport::NodeInfo node_info(const model::Weights& weights,
                              DType kv_dtype,
                              const std::string& node_id,
                              const std::string& tokenizer_hash) {
  transport::NodeInfo info = transport::make_node_info(transport::Role::kDraft, node_id);
  info.model_name = weights.config.name;
  info.model_fingerprint = weights.fingerprint;
  info.tokenizer_hash = tokenizer_hash;
  info.geometry = {
      weights.config.layers, weights.config.kv_heads, weights.config.head_dim, kv_dtype};
  return info;
}

DraftNode::DraftNode(boost::asio::io_context& io,
                     std::unique_ptr<transport::Transport> transport,
                     const DraftNodeOptions& options)
    : io_(io),
      options_(options),
      pool_(options.threads, options.cpus),
      transport_(std::move(transport)),
      engine_(options.weights, options.engine, pool_),
      tick_timer_(io),
      retry_timer_(io),
      alive_(std::make_shared<int>(0)),
      compute_(options.cpus) {
  CoreOptions core;
  core.geometry = engine_.geometry();
  core.arena = arena_budget(options, engine_);
  core.vocab = options.weights->config.vocab;
  core.max_sessions = options.max_sessions;
  core.refresh_mode = options.refresh_mode;
  region_ = transport_->allocate(core.arena.session_bytes());
  core.arena_region = region_->id();
  engine_.set_arena(region_->bytes());
  core_ = std::make_unique<DraftCore>(core);
  log().info("arena: {}", core_->arena().describe());
}

DraftNode::~DraftNode() { stop(); }

std::uint16_t DraftNode::start(const transport::Endpoint& listen) {
  transport::PeerHandler handler;
  handler.on_up = [this](std::shared_ptr<transport::Peer> peer) { on_target_up(std::move(peer)); };
  handler.on_message = [this](transport::Peer& peer, transport::Message message) {
    if (const auto target = target_of(peer)) {
      handle(TargetMessage{*target, std::move(message)});
    }
  };
  handler.on_lost = [this](transport::Peer& peer, const Error& error) {
    on_target_lost(peer, error);
  };
  const std::uint16_t port = transport_->listen(listen, std::move(handler));
  connect_score();
  schedule_tick();
  return port;
}

void DraftNode::stop() {
  if (std::exchange(stopped_, true)) {
    return;
  }
  tick_timer_.cancel();
  retry_timer_.cancel();
  compute_.stop();
  alive_.reset();
  targets_.clear();
  score_.reset();
  transport_->stop();
}

// ---- peers ----

void DraftNode::on_target_up(std::shared_ptr<transport::Peer> peer) {
  if (peer->info().role != transport::Role::kTarget) {
    log().warn("a {} node connected where targets do: closed", to_string(peer->info().role));
    peer->close();
    return;
  }
  log().info("target {} connected over {}", peer->info().node_id, link_text(peer->link()));
  targets_.emplace(TargetId{next_target_++}, std::move(peer));
}

std::optional<TargetId> DraftNode::target_of(const transport::Peer& peer) const {
  for (const auto& [id, target] : targets_) {
    if (target.get() == &peer) {
      return id;
    }
  }
  return std::nullopt;
}

void DraftNode::on_target_lost(const transport::Peer& peer, const Error& error) {
  const std::optional<TargetId> target = target_of(peer);
  if (!target) {
    return;
  }
  transport::log_loss("target " + peer.info().node_id, error);
  // `peer` may be gone with this entry.
  targets_.erase(*target);
  handle(TargetLost{*target});
}

void DraftNode::connect_score() {
  if (!options_.score || stopped_) {
    return;
  }
  transport::PeerHandler handler;
  handler.on_up = [this](std::shared_ptr<transport::Peer> peer) { on_score_up(std::move(peer)); };
  handler.on_message = [this](transport::Peer&, transport::Message message) {
    handle(ScoreMessage{std::move(message)});
  };
  handler.on_lost = [this](transport::Peer&, const Error& error) { on_score_lost(error); };
  transport_->connect(
      *options_.score, kConnectDeadline, std::move(handler), [this](const Error& error) {
        log().warn("score node {}:{} not reached: {}",
                   options_.score->host,
                   options_.score->port,
                   error.message());
        retry_score();
      });
}

void DraftNode::on_score_up(std::shared_ptr<transport::Peer> peer) {
  const std::string link = link_text(peer->link());
  log().info("score node {} connected over {}", peer->info().node_id, link);
  score_ = std::move(peer);
  handle(ScoreUp{link});
}

void DraftNode::on_score_lost(const Error& error) {
  transport::log_loss("score node", error);
  score_.reset();
  handle(ScoreLost{error.message()});
  retry_score();
}

void DraftNode::retry_score() {
  if (stopped_) {
    return;
  }
  retry_timer_.expires_after(options_.score_retry);
  retry_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) {
      connect_score();
    }
  });
}

void DraftNode::schedule_tick() {
  tick_timer_.expires_after(options_.tick);
  tick_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && !stopped_) {
      handle(Tick{});
      schedule_tick();
    }
  });
}

// ---- actions ----

void DraftNode::handle(const Event& event) {
  if (stopped_) {
    return;
  }
  for (Action& action : core_->handle(event, Clock::now())) {
    std::visit([this](auto& a) { act(a); }, action);
  }
}

void DraftNode::act(SendTarget& action) {
  if (std::holds_alternative<transport::SessionClosed>(action.message)) {
    log().info(
        "session {} closed; peak resident memory {} bytes; arena: {}",
        static_cast<std::uint64_t>(std::get<transport::SessionClosed>(action.message).session),
        peak_resident_bytes(),
        core_->arena().describe());
  }
  const auto target = targets_.find(action.target);
  if (target == targets_.end()) {
    return;
  }
  // A send that fails is followed by on_lost.
  if (const Status status = target->second->send(action.message); !status) {
    log().warn(
        "message to target {}: {}", target->second->info().node_id, status.error().message());
  }
}

void DraftNode::act(SendScore& action) {
  if (score_ == nullptr) {
    return;
  }
  if (const Status status = score_->send(action.message); !status) {
    log().warn("message to the score node: {}", status.error().message());
  }
}

template <typename Job>
void DraftNode::submit(Job job) {
  compute_.submit([this, alive = std::weak_ptr<int>(alive_), job = std::move(job)] {
    boost::asio::post(io_, [this, alive, event = Event(job())] {
      if (!alive.expired()) {
        if (const auto* done = std::get_if<DraftDone>(&event)) {
          trace_draft(*done);
        }
        handle(event);
      }
    });
  });
}

void DraftNode::act(OpenWorkingSet& action) {
  compute_.submit([this, job = std::move(action)] { engine_.run(job); });
}

void DraftNode::act(PrefillJob& action) {
  submit([this, job = std::move(action)] { return engine_.run(job); });
}

void DraftNode::act(DraftJob& action) {
  submit([this, job = std::move(action)] { return engine_.run(job); });
}

void DraftNode::act(DropWorkingSet& action) {
  submit([this, job = action] {
    engine_.run(job);
    return WorkingSetDropped{job.id};
  });
}

void DraftNode::act(Note& action) {
  if (action.warning) {
    log().warn("{}", action.text);
  } else {
    log().info("{}", action.text);
  }
}

void DraftNode::act(RefreshSwapped& action) {
  const transport::RefreshRecord& record = action.record;
  log().debug("session {}: epoch {} installed: {} blocks, {} bytes, {:.1f} ms, stale by {} tokens",
              static_cast<std::uint64_t>(action.session),
              static_cast<std::uint32_t>(record.epoch),
              record.blocks,
              record.bytes,
              static_cast<double>(record.total_ns) * 1e-6,
              record.stale_tokens);
  if (options_.trace == nullptr) {
    return;
  }
  const TimePoint requested{Nanoseconds(record.requested_at_ns)};
  const auto end = requested + Nanoseconds(record.total_ns);
  options_.trace->span("refresh",
                       fmt::format("epoch {}", static_cast<std::uint32_t>(record.epoch)),
                       requested,
                       end,
                       {{"blocks", static_cast<std::int64_t>(record.blocks)},
                        {"bytes", static_cast<std::int64_t>(record.bytes)},
                        {"waves", record.waves},
                        {"stale_tokens", record.stale_tokens}});
  options_.trace->span("install", "ready to swapped", end - Nanoseconds(record.install_ns), end);
}

void DraftNode::act(StrideEnded& action) {
  const policy::Signals& s = action.signals;
  log().debug(
      "session {}: {} tokens, age {}: acceptance {:.2f} ({:.2f}), entropy {:.3f} ({:.3f}), "
      "drift {:.4f}: {}{}",
      static_cast<std::uint64_t>(action.session),
      action.committed,
      s.age,
      s.acceptance,
      s.acceptance_base,
      s.entropy,
      s.entropy_base,
      s.drift,
      action.decision.refresh ? "refresh, " : "",
      to_string(action.decision.rule));
}

void DraftNode::trace_draft(const DraftDone& done) {
  if (options_.trace == nullptr) {
    return;
  }
  const TimePoint end = Clock::now();
  options_.trace->span("draft",
                       "round",
                       end - Nanoseconds(done.draft_ns),
                       end,
                       {{"tokens", static_cast<std::int64_t>(done.tokens.size())},
                        {"steps", static_cast<std::int64_t>(done.steps)}});
}

}  // namespace rift::draft_node
