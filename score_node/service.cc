// SPDX-License-Identifier: Apache-2.0
#include "score_node/service.h"

#include "common/check.h"
#include "common/log.h"

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include <string_view>
#include <type_traits>
#include <variant>

namespace rift::score_node {
namespace {

CoreOptions core_options(const ScoreNodeOptions& options) {
  RIFT_CHECK(options.weights != nullptr, "a score node needs a model");
  const model::ModelConfig& config = options.weights->config;
  CoreOptions core;
  core.geometry = {config.layers, config.kv_heads, config.head_dim, options.engine.kv_dtype};
  core.vocab = config.vocab;
  core.chunk = options.engine.chunk;
  core.send_chunks = options.send_chunks;
  core.send_chunk_bytes = options.send_chunk_bytes;
  return core;
}

constexpr std::string_view name_of(const OpenHistory& /*job*/) { return "open"; }
constexpr std::string_view name_of(const Ingest& /*job*/) { return "ingest"; }
constexpr std::string_view name_of(const Select& /*job*/) { return "score"; }
constexpr std::string_view name_of(const Pack& /*job*/) { return "pack"; }
constexpr std::string_view name_of(const ReleaseHistory& /*job*/) { return "release"; }

void log_message(const transport::Message& message) {
  if (const auto* ready = std::get_if<transport::RefreshReady>(&message)) {
    log().debug("session {} epoch {} wave {}: {} blocks, {} bytes, {} tokens covered",
                static_cast<std::uint64_t>(ready->session),
                static_cast<std::uint32_t>(ready->epoch),
                ready->wave,
                ready->updates.size(),
                ready->bytes,
                ready->covered_tokens);
  } else if (const auto* refused = std::get_if<transport::SessionRefused>(&message)) {
    // A session that its draft node closed is answered in the same way.
    log().log(refused->code == Errc::kCancelled ? spdlog::level::debug : spdlog::level::warn,
              "session {} refused: {}",
              static_cast<std::uint64_t>(refused->session),
              refused->message);
  }
}

}  // namespace

transport::NodeInfo node_info(const model::Weights& weights,
                              DType kv_dtype,
                              const std::string& node_id) {
  transport::NodeInfo info = transport::make_node_info(transport::Role::kScore, node_id);
  info.model_name = weights.config.name;
  info.model_fingerprint = weights.fingerprint;
  info.geometry = {
      weights.config.layers, weights.config.kv_heads, weights.config.head_dim, kv_dtype};
  return info;
}

ScoreNode::ScoreNode(boost::asio::io_context& io,
                     transport::Transport& transport,
                     const ScoreNodeOptions& options)
    : io_(io),
      transport_(transport),
      options_(options),
      engine_(options.weights, options.engine),
      core_(core_options(options)),
      buffer_(transport.allocate(options.send_chunks * options.send_chunk_bytes)),
      compute_(options.engine.cpus) {}

ScoreNode::~ScoreNode() { stop(); }

std::uint16_t ScoreNode::start(const transport::Endpoint& endpoint) {
  transport::PeerHandler handler;
  handler.on_up = [this](std::shared_ptr<transport::Peer> peer) { on_up(std::move(peer)); };
  handler.on_message = [this](transport::Peer& peer, transport::Message message) {
    dispatch(PeerMessage{id_of(peer), std::move(message)});
  };
  handler.on_lost = [this](transport::Peer& peer, const Error& error) { on_lost(peer, error); };
  return transport_.listen(endpoint, std::move(handler));
}

void ScoreNode::stop() {
  stopped_ = true;
  *alive_ = false;
  compute_.stop();
  peers_.clear();
  ids_.clear();
}

// ---- peers ----

void ScoreNode::on_up(std::shared_ptr<transport::Peer> peer) {
  if (stopped_) {
    return;
  }
  log().info("draft node {} joined over {}", peer->info().node_id, peer->link().name);
  const PeerId id{next_peer_++};
  ids_[peer.get()] = id;
  peers_[id] = std::move(peer);
}

void ScoreNode::on_lost(transport::Peer& peer, const Error& error) {
  const auto found = ids_.find(&peer);
  if (stopped_ || found == ids_.end()) {
    return;
  }
  transport::log_loss("draft node " + peer.info().node_id, error);
  const PeerId id = found->second;
  const std::shared_ptr<transport::Peer> keep = peers_[id];  // until this callback ends
  ids_.erase(found);
  peers_.erase(id);
  dispatch(PeerLost{id});
}

PeerId ScoreNode::id_of(const transport::Peer& peer) const {
  const auto found = ids_.find(&peer);
  return found == ids_.end() ? PeerId{0} : found->second;  // 0: of no session
}

// ---- events and actions ----

void ScoreNode::dispatch(Event event) {
  if (stopped_) {
    return;
  }
  for (Action& action : core_.handle(std::move(event), Clock::now())) {
    std::visit([this](auto& a) { perform(std::move(a)); }, action);
  }
}

/// From any thread.
void ScoreNode::post(Event event) {
  boost::asio::post(io_, [this, alive = alive_, e = std::move(event)]() mutable {
    if (*alive) {
      dispatch(std::move(e));
    }
  });
}

template <typename Job>
void ScoreNode::perform(Job job) {
  compute_.submit([this, j = std::move(job)] {
    const TimePoint began = Clock::now();
    if constexpr (std::is_same_v<Job, ReleaseHistory>) {
      engine_.run(j);
    } else if constexpr (std::is_same_v<Job, Pack>) {
      post(engine_.run(j, chunk(j.chunk)));
    } else {
      post(engine_.run(j));
    }
    if (options_.trace) {
      options_.trace->span("compute",
                           name_of(j),
                           began,
                           Clock::now(),
                           {{"session", static_cast<std::int64_t>(j.session)}});
    }
  });
}

void ScoreNode::perform(Put action) {
  const auto peer = peers_.find(action.peer);
  if (peer == peers_.end()) {
    return post(PutDone{action.chunk, fail(Errc::kUnavailable, "the draft node is gone")});
  }
  const std::uint64_t base = action.chunk * options_.send_chunk_bytes;
  std::int64_t bytes = 0;
  for (transport::PutOp& op : action.ops) {
    op.local_offset += base;
    bytes += static_cast<std::int64_t>(op.bytes);
  }
  const auto ops = static_cast<std::int64_t>(action.ops.size());
  const TimePoint began = Clock::now();
  peer->second->put(
      *buffer_,
      action.region,
      std::move(action.ops),
      [this, alive = alive_, index = action.chunk, began, bytes, ops](const Status& status) {
        if (!*alive) {
          return;
        }
        if (options_.trace) {
          options_.trace->span(
              "transfers", "put", began, Clock::now(), {{"bytes", bytes}, {"writes", ops}});
        }
        // Posted: put() may report at once, in the middle of an action list.
        PutDone done{index, {}};
        if (!status.ok()) {
          done.error = status.error();
        }
        post(std::move(done));
      });
}

void ScoreNode::perform(Send action) {
  log_message(action.message);
  const auto peer = peers_.find(action.peer);
  if (peer == peers_.end()) {
    return;  // its loss is reported on its own
  }
  const Status sent = peer->second->send(action.message);
  if (sent.ok() || sent.error().code() == Errc::kUnavailable) {
    return;  // a lost peer is reported by its loss
  }
  log().warn("message to draft node {}: {}", peer->second->info().node_id, sent.error().message());
  // The draft node would wait for it for ever: the session ends here.
  const SessionId id = std::visit([](const auto& m) { return m.session; }, action.message);
  post(PeerMessage{action.peer, transport::CloseSession{id}});
}

std::span<std::byte> ScoreNode::chunk(std::uint32_t index) const {
  return buffer_->bytes().subspan(index * options_.send_chunk_bytes, options_.send_chunk_bytes);
}

}  // namespace rift::score_node
