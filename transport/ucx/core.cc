// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/core.h"

#include "common/log.h"
#include "transport/ucx/ucx_transport.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace rift::transport::ucx {
namespace {

constexpr std::chrono::milliseconds kStopFlush{100};
constexpr std::chrono::milliseconds kStopDrain{2000};

std::uint64_t random_id() {
  std::uint64_t id = 0;
  bootstrap::fill_random(std::as_writable_bytes(std::span(&id, 1)));
  return id;
}

}  // namespace

Core::Core(boost::asio::io_context& io, TransportOptions options)
    : io_(io),
      options_(std::move(options)),
      engine_(std::make_shared<Engine>(io, options_.secret.empty())) {}

void Core::start() {
  engine_->start({.on_arrival = [this](Arrival arrival) { arrive(std::move(arrival)); },
                  .on_links_changed =
                      [this] {
                        const auto links = links_;
                        for (const auto& [id, link] : links) {
                          link->check_endpoint();
                        }
                      },
                  .admit = &Core::admit,
                  .write = &Core::write,
                  .arg = this});
}

std::unique_ptr<Region> Core::allocate(std::uint64_t bytes) {
  auto memory = std::make_shared<Memory>(engine_->context(), bytes);
  regions_.push_back(memory);
  return std::make_unique<UcxRegion>(static_cast<std::uint32_t>(regions_.size() - 1),
                                     std::move(memory));
}

bootstrap::Hello Core::hello() const {
  bootstrap::Hello out;
  out.node = options_.node;
  out.ucx_version = ucx_version();
  out.worker_address = engine_->worker().address();
  for (std::size_t id = 0; id < regions_.size(); ++id) {
    if (const auto memory = regions_[id].lock()) {
      out.regions.push_back({static_cast<std::uint32_t>(id),
                             memory->bytes().size(),
                             reinterpret_cast<std::uintptr_t>(memory->bytes().data()),
                             memory->pack_rkey()});
    }
  }
  return out;
}

std::uint16_t Core::listen(const Endpoint& endpoint, const PeerHandler& handler) {
  auto listener = std::make_shared<bootstrap::Listener>(
      io_,
      options_.secret,
      timing(),
      [weak = weak_from_this(), handler](std::shared_ptr<bootstrap::Channel> channel) {
        if (const auto self = weak.lock()) {
          self->add(std::move(channel), handler, nullptr);
        }
      });
  const std::uint16_t port = listener->listen(endpoint);
  listeners_.push_back(std::move(listener));
  return port;
}

void Core::connect(const Endpoint& endpoint,
                   std::chrono::milliseconds deadline,
                   PeerHandler handler,
                   std::function<void(const Error&)> failed) {
  auto connector =
      std::make_shared<bootstrap::Connector>(io_, endpoint, deadline, options_.secret, timing());
  connectors_.push_back(connector);
  const std::weak_ptr<bootstrap::Connector> weak_connector = connector;
  connector->start(
      [weak = weak_from_this(), weak_connector, handler = std::move(handler)](
          std::shared_ptr<bootstrap::Channel> channel) {
        if (const auto self = weak.lock()) {
          self->add(std::move(channel), handler, weak_connector.lock());
        }
      },
      [weak = weak_from_this(), raw = connector.get(), failed = std::move(failed)](
          const Error& error) {
        if (const auto self = weak.lock()) {
          self->forget(raw);
          failed(error);
        }
      });
}

void Core::add(std::shared_ptr<bootstrap::Channel> channel,
               PeerHandler handler,
               std::shared_ptr<bootstrap::Connector> connector) {
  const std::uint64_t id = random_id();
  const auto link = std::make_shared<Link>(
      shared_from_this(), id, std::move(channel), std::move(handler), std::move(connector));
  links_.emplace(id, link);
  link->start();
}

void Core::forget(std::uint64_t link_id) { links_.erase(link_id); }

void Core::forget(const bootstrap::Connector* connector) {
  std::erase_if(connectors_, [&](const auto& item) { return item.get() == connector; });
}

bool Core::admit(void* arg, const MessageHeader& header, std::uint64_t bytes) noexcept {
  auto& self = *static_cast<Core*>(arg);
  const auto it = self.links_.find(header.link_id);
  return it != self.links_.end() && it->second->admit(header, bytes);
}

void Core::write(void* arg,
                 const MessageHeader& header,
                 std::span<const std::byte> bytes) noexcept {
  const auto& links = static_cast<Core*>(arg)->links_;
  if (const auto it = links.find(header.link_id); it != links.end()) {
    it->second->write(header, bytes);
  }
}

void Core::arrive(Arrival arrival) {
  const auto it = links_.find(arrival.header.link_id);
  if (it == links_.end()) {
    if (arrival.rendezvous != nullptr) {
      engine_->drop(arrival.rendezvous);
    }
    return;
  }
  const auto link = it->second;
  link->arrive(std::move(arrival));
}

void Core::stop() {
  if (std::exchange(stopped_, true)) {
    return;
  }
  const auto self = shared_from_this();
  for (const auto& listener : std::exchange(listeners_, {})) {
    listener->stop();
  }
  for (const auto& connector : std::exchange(connectors_, {})) {
    connector->stop();
  }
  const auto links = links_;
  const auto all = [&](auto condition) {
    return [&links, condition] {
      return std::all_of(
          links.begin(), links.end(), [&](const auto& item) { return condition(*item.second); });
    };
  };
  for (const auto& [id, link] : links) {
    link->begin_stop();
  }
  engine_->progress_until(all([](const Link& link) { return link.flushed(); }),
                          Clock::now() + kStopFlush);
  for (const auto& [id, link] : links) {
    link->abort();
  }
  if (!engine_->progress_until([&] { return links_.empty(); }, Clock::now() + kStopDrain)) {
    log().error("{} operations did not end within {} ms", links_.size(), kStopDrain.count());
  }
  for (const auto& [id, link] : links) {
    link->give_up_waiting();
  }
  links_.clear();
  engine_->stop();
}

}  // namespace rift::transport::ucx

namespace rift::transport {
namespace {

class UcxTransport final : public Transport {
 public:
  UcxTransport(boost::asio::io_context& io, TransportOptions options)
      : core_(std::make_shared<ucx::Core>(io, std::move(options))) {
    core_->start();
  }
  ~UcxTransport() override { core_->stop(); }
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  std::unique_ptr<Region> allocate(std::uint64_t bytes) override { return core_->allocate(bytes); }
  std::uint16_t listen(const Endpoint& endpoint, PeerHandler handler) override {
    return core_->listen(endpoint, std::move(handler));
  }
  void connect(const Endpoint& endpoint,
               std::chrono::milliseconds deadline,
               PeerHandler handler,
               std::function<void(const Error&)> failed) override {
    core_->connect(endpoint, deadline, std::move(handler), std::move(failed));
  }
  void stop() override { core_->stop(); }

 private:
  std::shared_ptr<ucx::Core> core_;
};

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(boost::asio::io_context& io,
                                              TransportOptions options) {
  return std::make_unique<UcxTransport>(io, std::move(options));
}

}  // namespace rift::transport
