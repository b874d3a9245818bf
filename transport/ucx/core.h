// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/bootstrap/rendezvous.h"
#include "transport/ucx/engine.h"
#include "transport/ucx/link.h"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

// Private to transport/ucx.
namespace rift::transport::ucx {

class UcxRegion final : public Region {
 public:
  UcxRegion(std::uint32_t id, std::shared_ptr<Memory> memory)
      : id_(id), memory_(std::move(memory)) {}
  [[nodiscard]] std::uint32_t id() const override { return id_; }
  [[nodiscard]] std::span<std::byte> bytes() const override { return memory_->bytes(); }
  [[nodiscard]] const std::shared_ptr<Memory>& memory() const { return memory_; }

 private:
  std::uint32_t id_;
  std::shared_ptr<Memory> memory_;  // also held by writes in flight
};

/// The node behind the Transport: its engine, listeners, connection attempts and links.
/// Thread: loop. Resource type.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(boost::asio::io_context& io, TransportOptions options);

  void start();
  void stop();
  [[nodiscard]] std::unique_ptr<Region> allocate(std::uint64_t bytes);
  std::uint16_t listen(const Endpoint& endpoint, const PeerHandler& handler);
  void connect(const Endpoint& endpoint,
               std::chrono::milliseconds deadline,
               PeerHandler handler,
               std::function<void(const Error&)> failed);

  [[nodiscard]] boost::asio::io_context& io() { return io_; }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] const TransportOptions& options() const { return options_; }
  /// What this node says of itself; the link adds its own part.
  [[nodiscard]] bootstrap::Hello hello() const;
  [[nodiscard]] std::shared_ptr<Memory> region(std::uint32_t id) const noexcept {
    return id < regions_.size() ? regions_[id].lock() : nullptr;
  }
  void forget(std::uint64_t link_id);
  void forget(const bootstrap::Connector* connector);

 private:
  [[nodiscard]] bootstrap::Channel::Timing timing() const {
    return {.heartbeat = options_.heartbeat, .peer_timeout = options_.peer_timeout};
  }
  void add(std::shared_ptr<bootstrap::Channel> channel,
           PeerHandler handler,
           std::shared_ptr<bootstrap::Connector> connector);
  static bool admit(void* arg, const MessageHeader& header, std::uint64_t bytes) noexcept;
  static void write(void* arg,
                    const MessageHeader& header,
                    std::span<const std::byte> bytes) noexcept;
  void arrive(Arrival arrival);

  boost::asio::io_context& io_;
  const TransportOptions options_;
  std::shared_ptr<Engine> engine_;
  std::vector<std::weak_ptr<Memory>> regions_;
  std::vector<std::shared_ptr<bootstrap::Listener>> listeners_;
  std::vector<std::shared_ptr<bootstrap::Connector>> connectors_;
  std::map<std::uint64_t, std::shared_ptr<Link>> links_;
  bool stopped_ = false;
};

}  // namespace rift::transport::ucx
