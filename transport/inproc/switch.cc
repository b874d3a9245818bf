// SPDX-License-Identifier: Apache-2.0
#include "transport/inproc/switch.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace rift::transport::inproc {

Inbox::Inbox(boost::asio::io_context& io, TransportOptions options)
    : options_(std::move(options)), io_(&io), timer_(io) {}

void Inbox::deliver(TimePoint when, Work work) {
  const std::lock_guard lock(mutex_);
  if (io_ == nullptr) {
    return;
  }
  queue_.emplace(when, std::move(work));
  boost::asio::post(*io_, [self = shared_from_this()] { self->drain(); });
}

void Inbox::close() {
  // Work may own what calls back into the inbox: it is destroyed after the lock is released.
  std::multimap<TimePoint, Work> dropped;
  const std::lock_guard lock(mutex_);
  io_ = nullptr;
  dropped.swap(queue_);
}

void Inbox::drain() {
  while (true) {
    Work work;
    {
      const std::lock_guard lock(mutex_);
      if (io_ == nullptr || queue_.empty()) {
        return;
      }
      const TimePoint due = queue_.begin()->first;
      if (due > Clock::now()) {
        timer_->expires_at(due);
        timer_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
          if (!error) {
            self->drain();
          }
        });
        return;
      }
      work = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
    }
    work();
  }
}

void Switch::add(const std::shared_ptr<Inbox>& node) {
  const std::lock_guard lock(mutex_);
  std::erase_if(nodes_, [](const auto& weak) { return weak.expired(); });
  nodes_.emplace_back(node);
}

std::uint16_t Switch::listen(const Endpoint& endpoint, std::weak_ptr<Core> core, Inbox* owner) {
  const std::lock_guard lock(mutex_);
  std::uint16_t port = endpoint.port;
  while (port == 0 || (endpoint.port == 0 && listeners_.contains({endpoint.host, port}))) {
    port = next_port_++;
  }
  const auto [it, added] =
      listeners_.try_emplace({endpoint.host, port}, Listener{std::move(core), owner});
  if (!added) {
    throw fail(Errc::kIo, "{}:{} is in use on this network", endpoint.host, port);
  }
  return port;
}

void Switch::remove(const Inbox* owner) {
  const std::lock_guard lock(mutex_);
  std::erase_if(listeners_, [&](const auto& item) { return item.second.owner == owner; });
}

std::shared_ptr<Core> Switch::find(const Endpoint& endpoint) {
  const std::lock_guard lock(mutex_);
  const auto it = listeners_.find({endpoint.host, endpoint.port});
  return it == listeners_.end() ? nullptr : it->second.core.lock();
}

std::optional<TimePoint> Switch::transmit(const std::string& from,
                                          const std::string& to,
                                          std::uint64_t bytes) {
  const TimePoint now = Clock::now();
  const std::lock_guard lock(mutex_);
  Link& link = links_[{from, to}];
  if (link.cut) {
    return std::nullopt;
  }
  link.free_at = std::max(link.free_at, now);
  if (model_.bytes_per_second > 0) {
    link.free_at += std::chrono::duration_cast<Nanoseconds>(
        std::chrono::duration<double>(static_cast<double>(bytes) / model_.bytes_per_second));
  }
  link.last_arrival = std::max(link.last_arrival, link.free_at + model_.latency + link.extra);
  return link.last_arrival;
}

void Switch::kill(const std::string& node_id) {
  std::vector<std::shared_ptr<Inbox>> victims;
  std::vector<std::shared_ptr<Inbox>> others;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& weak : nodes_) {
      if (auto node = weak.lock()) {
        (node->node().node_id == node_id ? victims : others).push_back(std::move(node));
      }
    }
  }
  for (const auto& victim : victims) {
    victim->close();
    remove(victim.get());
    for (const auto& other : others) {
      other->deliver(Clock::now(), [other, info = victim->node()] {
        other->on_lost(info, fail(Errc::kUnavailable, "{} was killed", info.node_id));
      });
    }
  }
}

void Switch::set_cut(const std::string& a, const std::string& b, bool cut) {
  std::vector<std::shared_ptr<Inbox>> ends;
  {
    const std::lock_guard lock(mutex_);
    links_[{a, b}].cut = cut;
    links_[{b, a}].cut = cut;
    for (const auto& weak : nodes_) {
      auto node = weak.lock();
      if (node && (node->node().node_id == a || node->node().node_id == b)) {
        ends.push_back(std::move(node));
      }
    }
  }
  if (!cut) {
    return;
  }
  for (const auto& self : ends) {
    for (const auto& peer : ends) {
      const auto timeout = self->options().peer_timeout;
      self->deliver(Clock::now() + timeout, [self, info = peer->node(), timeout] {
        self->on_lost(
            info,
            fail(Errc::kTimeout, "no heartbeat from {} for {} ms", info.node_id, timeout.count()));
      });
    }
  }
}

void Switch::set_delay(const std::string& a, const std::string& b, Nanoseconds extra) {
  const std::lock_guard lock(mutex_);
  links_[{a, b}].extra = extra;
  links_[{b, a}].extra = extra;
}

}  // namespace rift::transport::inproc

namespace rift::transport {

InprocNetwork::InprocNetwork() : InprocNetwork(LinkModel{}) {}
InprocNetwork::InprocNetwork(LinkModel model) : state_(std::make_shared<inproc::Switch>(model)) {}
InprocNetwork::~InprocNetwork() = default;

void InprocNetwork::kill(const std::string& node_id) { state_->kill(node_id); }
void InprocNetwork::cut(const std::string& a, const std::string& b) { state_->set_cut(a, b, true); }
void InprocNetwork::heal(const std::string& a, const std::string& b) {
  state_->set_cut(a, b, false);
}
void InprocNetwork::delay(const std::string& a,
                          const std::string& b,
                          std::chrono::nanoseconds extra) {
  state_->set_delay(a, b, extra);
}

}  // namespace rift::transport
