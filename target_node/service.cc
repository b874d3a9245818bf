// SPDX-License-Identifier: Apache-2.0
#include "target_node/service.h"

#include "common/clock.h"
#include "common/log.h"
#include "kernels/ops.h"
#include "target_node/verify_cache.h"

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include <utility>

namespace rift::target_node {
namespace {

constexpr std::chrono::milliseconds kTick{100};

VerifyCosts known_costs(const NodeOptions& options, TargetEngine& engine) {
  const model::Weights& weights = *options.weights;
  VerifyKey key;
  key.fingerprint = weights.fingerprint;
  key.cpu = cpu_name();
  key.cpu_target = kernels::cpu_target();
  key.threads = options.threads;
  key.exact = options.engine.mode == kernels::MatmulMode::kExact;
  key.packed = weights.output.panel_rows != 0;
  key.widest = options.engine.max_draft_len + 1;
  if (!options.measure_verify && !options.verify_cache.empty()) {
    if (std::optional<VerifyCosts> cached = read_verify_costs(options.verify_cache, key)) {
      return *std::move(cached);
    }
  }
  const TimePoint begin = Clock::now();
  VerifyCosts costs = engine.measure_verify();
  log().info("verification passes were measured in {:.2f} s: 1 row {:.1f} ms, {} rows {:.1f} ms",
             seconds_between(begin, Clock::now()),
             costs.empty.front() * 1e3,
             key.widest,
             costs.empty.back() * 1e3);
  if (!options.verify_cache.empty()) {
    try {
      write_verify_costs(options.verify_cache, key, costs);
    } catch (const Error& error) {
      log().warn("the costs of verification are not kept: {}", error.message());
    }
  }
  return costs;
}

CoreOptions core_options(const NodeOptions& options, TargetEngine& engine) {
  CoreOptions core = options.core;
  if (options.verify_costs) {
    core.verify_costs = known_costs(options, engine);
  }
  core.max_context = options.engine.max_context;
  core.max_draft_len = options.engine.max_draft_len;
  core.vocab = options.weights->config.vocab;
  return core;
}

}  // namespace

transport::NodeInfo node_info(const model::Weights& weights,
                              const std::string& node_id,
                              const std::string& tokenizer_hash) {
  transport::NodeInfo info = transport::make_node_info(transport::Role::kTarget, node_id);
  info.model_name = weights.config.name;
  info.model_fingerprint = weights.fingerprint;
  info.tokenizer_hash = tokenizer_hash;
  return info;
}

TargetNode::TargetNode(boost::asio::io_context& io,
                       transport::Transport& transport,
                       const NodeOptions& options)
    : io_(io),
      transport_(transport),
      options_(options),
      engine_(options.weights, options.engine, options.threads, options.cpus),
      core_(core_options(options, engine_)),
      compute_(options.cpus),
      tick_(io),
      // Sessions of a target that was restarted must not meet those of its former life at a draft
      // node that did not notice.
      next_session_(static_cast<std::uint64_t>(Clock::now().time_since_epoch().count()) << 8U) {
  schedule_tick();
}

TargetNode::~TargetNode() { stop(); }

void TargetNode::stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  *alive_ = false;
  tick_.cancel();
  compute_.stop();
  if (draft_) {
    draft_->close();
    draft_.reset();
  }
}

void TargetNode::schedule_tick() {
  tick_.expires_after(kTick);
  tick_.async_wait([this, alive = alive_](const boost::system::error_code& error) {
    if (!error && *alive) {
      dispatch(Tick{});
      schedule_tick();
    }
  });
}

transport::PeerHandler TargetNode::draft_handler() {
  transport::PeerHandler handler;
  handler.on_up = [this, alive = alive_](std::shared_ptr<transport::Peer> peer) {
    if (!*alive) {
      return;
    }
    draft_ = std::move(peer);
    log().info("draft node {} is up over {}", draft_->info().node_id, draft_->link().name);
    dispatch(DraftUp{});
    if (auto done = std::exchange(on_draft_, nullptr)) {
      done({});
    }
  };
  handler.on_message = [this, alive = alive_](transport::Peer& peer, transport::Message message) {
    if (*alive && &peer == draft_.get()) {
      dispatch(FromDraft{std::move(message)});
    }
  };
  handler.on_lost = [this, alive = alive_](transport::Peer& peer, const Error& error) {
    if (*alive && &peer == draft_.get()) {
      transport::log_loss("draft node " + peer.info().node_id, error);
      log().info("going on by plain decoding");
      draft_.reset();
      dispatch(DraftLost{error.message()});
    }
  };
  return handler;
}

void TargetNode::connect_draft(const transport::Endpoint& draft,
                               std::chrono::milliseconds deadline,
                               std::function<void(Status)> done) {
  on_draft_ = std::move(done);
  transport_.connect(draft, deadline, draft_handler(), [this, alive = alive_](const Error& error) {
    if (!*alive) {
      return;
    }
    if (auto report = std::exchange(on_draft_, nullptr)) {
      report(error);
    }
  });
}

SessionId TargetNode::submit(Request request, RequestEvents events) {
  const SessionId id{next_session_++};
  requests_[id] = std::move(events);
  // From the loop, so that the caller has the id before the first event.
  boost::asio::post(io_, [this, alive = alive_, id, request = std::move(request)]() mutable {
    if (*alive) {
      dispatch(Submit{id, std::move(request)});
    }
  });
  return id;
}

void TargetNode::cancel(SessionId id) {
  // Behind the Submit that submit() has posted.
  boost::asio::post(io_, [this, alive = alive_, id] {
    if (*alive) {
      dispatch(Cancel{id});
    }
  });
}

void TargetNode::dispatch(const Event& event) {
  for (Action& action : core_.handle(event, Clock::now())) {
    std::visit([this](auto& a) { perform(std::move(a)); }, action);
  }
}

void TargetNode::perform(const SendDraft& action) {
  if (draft_) {
    if (const Status status = draft_->send(action.message); !status) {
      // The loss itself arrives as on_lost; the core's deadlines cover the rest.
      log().warn("message to the draft node not sent: {}", status.error().message());
    }
  }
}

// Runs `job` on the compute thread; its event, or the error it ended with, comes back to the core.
template <typename Job>
void TargetNode::compute(SessionId id, const char* name, Job job) {
  compute_.submit([this, alive = alive_, id, name, job = std::move(job)] {
    const TimePoint begin = Clock::now();
    Event event = Tick{};
    try {
      event = job();
    } catch (const Error& error) {
      event = ComputeFailed{id, error};
    } catch (const std::exception& error) {
      event = ComputeFailed{id, fail(Errc::kInternal, "{}: {}", name, error.what())};
    }
    if (options_.trace) {
      options_.trace->span("rounds", name, begin, Clock::now());
    }
    boost::asio::post(io_, [this, alive, event = std::move(event)] {
      if (*alive) {
        dispatch(event);
      }
    });
  });
}

void TargetNode::perform(Prefill action) {
  const SessionId id = action.session;
  compute(id, "prefill", [this, alive = alive_, action = std::move(action)]() -> Event {
    return engine_.prefill(action, [&](std::int32_t done, std::int32_t total) {
      boost::asio::post(io_, [this, alive, id = action.session, done, total] {
        const auto it = *alive ? requests_.find(id) : requests_.end();
        if (it != requests_.end() && it->second.on_prefill) {
          it->second.on_prefill(done, total);
        }
      });
    });
  });
}

void TargetNode::perform(Verify action) {
  const SessionId id = action.session;
  compute(id, "verify", [this, action = std::move(action)]() -> Event {
    return engine_.verify(action);
  });
}

void TargetNode::perform(const EmitTokens& action) {
  const auto it = requests_.find(action.session);
  if (it != requests_.end() && it->second.on_tokens) {
    it->second.on_tokens(action.tokens, action.progress);
  }
}

void TargetNode::release(SessionId id) {
  compute_.submit([this, id] { engine_.release(id); });
}

void TargetNode::perform(Finish action) {
  release(action.session);
  auto node = requests_.extract(action.session);
  if (draft_) {
    action.outcome.draft_link = draft_->link();
  }
  if (!node.empty() && node.mapped().on_done) {
    node.mapped().on_done(std::move(action.outcome));
  }
}

void TargetNode::perform(const Fail& action) {
  release(action.session);
  auto node = requests_.extract(action.session);
  if (!node.empty() && node.mapped().on_error) {
    node.mapped().on_error(action.error);
  }
}

}  // namespace rift::target_node
