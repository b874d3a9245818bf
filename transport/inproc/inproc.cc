// SPDX-License-Identifier: Apache-2.0
#include "transport/inproc/inproc.h"

#include "transport/handshake.h"
#include "transport/inproc/switch.h"
#include "transport/wire/codec.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rift::transport {
namespace inproc {
namespace {

using Storage = std::vector<std::byte>;
constexpr std::chrono::milliseconds kFirstRetry{10};
constexpr std::chrono::milliseconds kLastRetry{200};

class InprocRegion final : public Region {
 public:
  InprocRegion(std::uint32_t id, std::shared_ptr<Storage> storage)
      : id_(id), storage_(std::move(storage)) {}
  [[nodiscard]] std::uint32_t id() const override { return id_; }
  [[nodiscard]] std::span<std::byte> bytes() const override { return *storage_; }
  [[nodiscard]] const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  std::uint32_t id_;
  // Shared with writes in flight: the peer's loop may copy from or to it while the owner stops.
  std::shared_ptr<Storage> storage_;
};

/// A batch of writes in flight. The peer's loop copies unless the sender has ended it before.
struct Transfer {
  std::mutex mutex;
  bool ended = false;
  std::shared_ptr<Storage> local;
  std::vector<PutOp> ops;
  Peer::Done done;  // Thread: the sender's loop

  void end() {
    const std::lock_guard lock(mutex);
    ended = true;
  }
};

}  // namespace

class InprocPeer final : public Peer, public std::enable_shared_from_this<InprocPeer> {
 public:
  InprocPeer(std::shared_ptr<Core> core, PeerHandler handler)
      : core_(std::move(core)), handler_(std::move(handler)) {}

  [[nodiscard]] const NodeInfo& info() const override { return info_; }
  [[nodiscard]] const LinkInfo& link() const override { return link_; }
  [[nodiscard]] bool connected() const override { return connected_; }
  Status send(const Message& message) override;
  void put(const Region& local,
           std::uint32_t remote_region,
           std::vector<PutOp> ops,
           Done done) override;
  void close() override;

  void up(std::shared_ptr<Inbox> inbox,
          std::weak_ptr<InprocPeer> remote,
          std::vector<std::uint64_t> region_bytes);
  void lose(const Error& error);
  /// Ends writes with `error`; the other end learns `reason`.
  void end(const Error& error, const Error& reason);

 private:
  void receive(std::span<const std::byte> bytes);
  void land(const std::shared_ptr<Transfer>& transfer, std::uint32_t region);
  void finish(const std::shared_ptr<Transfer>& transfer, const Status& status);
  void abort_transfers(const Error& error);
  void report(Done done, Error error);

  const std::shared_ptr<Core> core_;
  PeerHandler handler_;
  NodeInfo info_;
  LinkInfo link_{.name = "inproc", .lanes = {"inproc"}, .emulated = false};
  bool connected_ = false;
  std::shared_ptr<Inbox> remote_inbox_;
  std::weak_ptr<InprocPeer> remote_;
  std::vector<std::uint64_t> region_bytes_;
  std::vector<std::shared_ptr<Transfer>> transfers_;
};

/// The node behind the Transport. Thread: loop.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(boost::asio::io_context& io, std::shared_ptr<Switch> net, TransportOptions options)
      : net_(std::move(net)), inbox_(std::make_shared<Inbox>(io, std::move(options))) {}

  void start() {
    inbox_->on_lost = [weak = weak_from_this()](const NodeInfo& node, const Error& error) {
      if (const auto self = weak.lock()) {
        self->lose_node(node, error);
      }
    };
    net_->add(inbox_);
  }

  [[nodiscard]] const std::shared_ptr<Inbox>& inbox() const { return inbox_; }
  [[nodiscard]] const TransportOptions& options() const { return inbox_->options(); }
  [[nodiscard]] Switch& net() const { return *net_; }

  std::unique_ptr<Region> allocate(std::uint64_t bytes) {
    auto storage = std::make_shared<Storage>(bytes);
    regions_.push_back(storage);
    return std::make_unique<InprocRegion>(static_cast<std::uint32_t>(regions_.size() - 1),
                                          std::move(storage));
  }

  [[nodiscard]] std::shared_ptr<Storage> region(std::uint32_t id) const {
    return id < regions_.size() ? regions_[id].lock() : nullptr;
  }

  std::uint16_t listen(const Endpoint& endpoint, PeerHandler handler) {
    handler_ = std::move(handler);
    return net_->listen(endpoint, weak_from_this(), inbox_.get());
  }

  struct Attempt {
    Endpoint endpoint;
    TimePoint deadline;
    PeerHandler handler;
    std::function<void(const Error&)> failed;
    std::chrono::milliseconds retry = kFirstRetry;
    bool over = false;
  };

  void connect(const std::shared_ptr<Attempt>& attempt) {
    inbox_->deliver(attempt->deadline, [weak = weak_from_this(), attempt] {
      if (weak.lock()) {
        give_up(*attempt,
                fail(Errc::kTimeout,
                     "nothing listens at {}:{}; is the node running?",
                     attempt->endpoint.host,
                     attempt->endpoint.port));
      }
    });
    try_connect(attempt);
  }

  void stop() {
    const auto self = shared_from_this();
    net_->remove(inbox_.get());
    const Error error = fail(Errc::kCancelled, "{} stops", options().node.node_id);
    for (const auto& peer : std::exchange(peers_, {})) {
      peer->end(error, fail(Errc::kCancelled, "{} stopped", options().node.node_id));
    }
    inbox_->close();
    handler_ = {};
    inbox_->timer_.reset();
  }

  void forget(const InprocPeer* peer) {
    std::erase_if(peers_, [&](const auto& item) { return item.get() == peer; });
  }

 private:
  static void give_up(Attempt& attempt, const Error& error) {
    if (!std::exchange(attempt.over, true)) {
      attempt.failed(error);
    }
  }

  [[nodiscard]] std::vector<std::uint64_t> region_sizes() const {
    std::vector<std::uint64_t> sizes;
    for (std::uint32_t id = 0; id < regions_.size(); ++id) {
      const auto storage = region(id);
      sizes.push_back(storage ? storage->size() : 0);
    }
    return sizes;
  }

  void try_connect(const std::shared_ptr<Attempt>& attempt) {
    if (attempt->over) {
      return;
    }
    const auto listener = net_->find(attempt->endpoint);
    const auto arrival =
        listener ? net_->transmit(options().node.node_id, listener->options().node.node_id, 0)
                 : std::nullopt;
    if (!arrival) {
      inbox_->deliver(Clock::now() + attempt->retry, [weak = weak_from_this(), attempt] {
        if (const auto self = weak.lock()) {
          attempt->retry = std::min(2 * attempt->retry, kLastRetry);
          self->try_connect(attempt);
        }
      });
      return;
    }
    auto peer = std::make_shared<InprocPeer>(shared_from_this(), attempt->handler);
    listener->inbox_->deliver(*arrival,
                              [weak = std::weak_ptr(listener),
                               peer,
                               attempt,
                               from = shared_from_this(),
                               sizes = region_sizes()] {
                                if (const auto self = weak.lock()) {
                                  self->accept(from, peer, attempt, sizes);
                                }
                              });
  }

  /// On the listener's loop; the answer goes back to the loop of `from`.
  void accept(const std::shared_ptr<Core>& from,
              const std::shared_ptr<InprocPeer>& remote,
              const std::shared_ptr<Attempt>& attempt,
              std::vector<std::uint64_t> sizes) {
    Status status = check_compatible(options().node, from->options().node);
    if (from->options().secret != options().secret) {
      status = fail(Errc::kPermission,
                    "{} refused the secret; both nodes need the same one",
                    options().node.node_id);
    }
    const auto arrival = net_->transmit(options().node.node_id, from->options().node.node_id, 0);
    if (!arrival) {
      return;
    }
    if (!status.ok()) {
      from->inbox_->deliver(*arrival,
                            [attempt, error = status.error()] { give_up(*attempt, error); });
      return;
    }
    auto peer = std::make_shared<InprocPeer>(shared_from_this(), handler_);
    from->inbox_->deliver(*arrival,
                          [from,
                           remote,
                           attempt,
                           weak = std::weak_ptr(peer),
                           inbox = inbox_,
                           answer = region_sizes()]() mutable {
                            if (!std::exchange(attempt->over, true)) {
                              from->add(remote, inbox, weak, std::move(answer));
                            }
                          });
    add(peer, from->inbox_, remote, std::move(sizes));
  }

  void add(const std::shared_ptr<InprocPeer>& peer,
           const std::shared_ptr<Inbox>& inbox,
           std::weak_ptr<InprocPeer> remote,
           std::vector<std::uint64_t> sizes) {
    peers_.push_back(peer);
    peer->up(inbox, std::move(remote), std::move(sizes));
  }

  void lose_node(const NodeInfo& node, const Error& error) {
    const auto peers = peers_;
    for (const auto& peer : peers) {
      if (peer->info().node_id == node.node_id && peer->info().incarnation == node.incarnation) {
        peer->lose(error);
      }
    }
  }

  const std::shared_ptr<Switch> net_;
  const std::shared_ptr<Inbox> inbox_;
  PeerHandler handler_;
  std::vector<std::weak_ptr<Storage>> regions_;
  std::vector<std::shared_ptr<InprocPeer>> peers_;
};

void InprocPeer::up(std::shared_ptr<Inbox> inbox,
                    std::weak_ptr<InprocPeer> remote,
                    std::vector<std::uint64_t> region_bytes) {
  remote_inbox_ = std::move(inbox);
  remote_ = std::move(remote);
  region_bytes_ = std::move(region_bytes);
  info_ = remote_inbox_->node();
  connected_ = true;
  const auto on_up = handler_.on_up;
  on_up(shared_from_this());
}

Status InprocPeer::send(const Message& message) {
  if (!connected_) {
    return fail(Errc::kUnavailable, "{} is not connected", info_.node_id);
  }
  auto bytes = encode(message);
  const std::uint64_t limit = core_->options().max_message_bytes;
  if (bytes.size() > limit) {
    return fail(Errc::kOutOfRange, "message of {} bytes; the limit is {}", bytes.size(), limit);
  }
  const auto arrival =
      core_->net().transmit(core_->options().node.node_id, info_.node_id, bytes.size());
  if (arrival) {
    remote_inbox_->deliver(*arrival, [remote = remote_, bytes = std::move(bytes)] {
      if (const auto peer = remote.lock()) {
        peer->receive(bytes);
      }
    });
  }
  return {};
}

void InprocPeer::receive(std::span<const std::byte> bytes) {
  if (!connected_) {
    return;
  }
  auto message = decode(bytes, core_->options().max_message_bytes);
  if (!message) {
    const Error error = message.error();
    if (const auto remote = remote_.lock()) {
      remote_inbox_->deliver(Clock::now(), [remote, error] { remote->lose(error); });
    }
    lose(error);
    return;
  }
  const auto on_message = handler_.on_message;
  on_message(*this, std::move(message).value());
}

void InprocPeer::put(const Region& local,
                     std::uint32_t remote_region,
                     std::vector<PutOp> ops,
                     Done done) {
  if (!connected_) {
    report(std::move(done), fail(Errc::kUnavailable, "{} is not connected", info_.node_id));
    return;
  }
  if (remote_region >= region_bytes_.size()) {
    report(std::move(done), fail(Errc::kOutOfRange, "the peer has no region {}", remote_region));
    return;
  }
  if (Status s = check_ops(ops, local.bytes().size(), region_bytes_[remote_region]); !s) {
    report(std::move(done), s.error());
    return;
  }
  auto transfer = std::make_shared<Transfer>();
  transfer->local = dynamic_cast<const InprocRegion&>(local).storage();
  transfer->done = std::move(done);
  std::uint64_t bytes = 0;
  for (const PutOp& op : ops) {
    bytes += op.bytes;
  }
  transfer->ops = std::move(ops);
  transfers_.push_back(transfer);
  const auto arrival = core_->net().transmit(core_->options().node.node_id, info_.node_id, bytes);
  if (arrival) {
    remote_inbox_->deliver(*arrival, [remote = remote_, transfer, remote_region] {
      if (const auto peer = remote.lock()) {
        peer->land(transfer, remote_region);
      }
    });
  }
}

void InprocPeer::land(const std::shared_ptr<Transfer>& transfer, std::uint32_t region) {
  if (!connected_) {
    return;
  }
  Status status;
  {
    const std::lock_guard lock(transfer->mutex);
    const auto storage = core_->region(region);
    if (transfer->ended) {
      return;
    }
    if (storage == nullptr) {
      status = fail(Errc::kOutOfRange, "region {} of the peer is gone", region);
    } else {
      for (const PutOp& op : transfer->ops) {
        if (op.bytes != 0) {
          std::memcpy(storage->data() + op.remote_offset,
                      transfer->local->data() + op.local_offset,
                      op.bytes);
        }
      }
    }
  }
  const auto arrival = core_->net().transmit(core_->options().node.node_id, info_.node_id, 0);
  if (arrival) {
    remote_inbox_->deliver(*arrival, [remote = remote_, transfer, status] {
      if (const auto peer = remote.lock()) {
        peer->finish(transfer, status);
      }
    });
  }
}

void InprocPeer::finish(const std::shared_ptr<Transfer>& transfer, const Status& status) {
  if (std::erase(transfers_, transfer) != 0) {
    transfer->done(status);
  }
}

void InprocPeer::abort_transfers(const Error& error) {
  for (const auto& transfer : std::exchange(transfers_, {})) {
    transfer->end();
    transfer->done(error);
  }
}

void InprocPeer::report(Done done, Error error) {
  core_->inbox()->deliver(Clock::now(),
                          [done = std::move(done), error = std::move(error)] { done(error); });
}

void InprocPeer::lose(const Error& error) {
  if (!std::exchange(connected_, false)) {
    return;
  }
  const auto self = shared_from_this();
  core_->forget(this);
  abort_transfers(error);
  const auto on_lost = handler_.on_lost;
  handler_ = {};
  on_lost(*this, error);
}

void InprocPeer::end(const Error& error, const Error& reason) {
  if (!std::exchange(connected_, false)) {
    return;
  }
  const auto self = shared_from_this();
  const auto arrival = core_->net().transmit(core_->options().node.node_id, info_.node_id, 0);
  if (arrival) {
    remote_inbox_->deliver(*arrival, [remote = remote_, reason] {
      if (const auto peer = remote.lock()) {
        peer->lose(reason);
      }
    });
  }
  core_->forget(this);
  handler_ = {};
  abort_transfers(error);
}

void InprocPeer::close() {
  end(fail(Errc::kCancelled, "the connection to {} was closed", info_.node_id),
      fail(Errc::kCancelled, "{} closed the connection", core_->options().node.node_id));
}

namespace {

class InprocTransport final : public Transport {
 public:
  InprocTransport(boost::asio::io_context& io, InprocNetwork& network, TransportOptions options)
      : core_(std::make_shared<Core>(io, network.state(), std::move(options))) {
    core_->start();
  }
  ~InprocTransport() override { core_->stop(); }
  InprocTransport(const InprocTransport&) = delete;
  InprocTransport& operator=(const InprocTransport&) = delete;

  std::unique_ptr<Region> allocate(std::uint64_t bytes) override { return core_->allocate(bytes); }
  std::uint16_t listen(const Endpoint& endpoint, PeerHandler handler) override {
    return core_->listen(endpoint, std::move(handler));
  }
  void connect(const Endpoint& endpoint,
               std::chrono::milliseconds deadline,
               PeerHandler handler,
               std::function<void(const Error&)> failed) override {
    core_->connect(std::make_shared<Core::Attempt>(
        Core::Attempt{endpoint, Clock::now() + deadline, std::move(handler), std::move(failed)}));
  }
  void stop() override { core_->stop(); }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace
}  // namespace inproc

std::unique_ptr<Transport> make_inproc_transport(boost::asio::io_context& io,
                                                 InprocNetwork& network,
                                                 TransportOptions options) {
  return std::make_unique<inproc::InprocTransport>(io, network, std::move(options));
}

}  // namespace rift::transport
