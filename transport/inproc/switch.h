// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "transport/inproc/inproc.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Private to transport/inproc.
namespace rift::transport::inproc {

class Core;

/// A node's place on the switch: what arrives for it runs on its loop, in order of arrival.
class Inbox : public std::enable_shared_from_this<Inbox> {
 public:
  using Work = std::function<void()>;
  using Lost = std::function<void(const NodeInfo&, const Error&)>;

  Inbox(boost::asio::io_context& io, TransportOptions options);

  [[nodiscard]] const NodeInfo& node() const { return options_.node; }
  [[nodiscard]] const TransportOptions& options() const { return options_; }

  /// Runs `work` on the loop at `when`; nothing after close(). Thread: any.
  void deliver(TimePoint when, Work work);
  /// Nothing is delivered afterwards. Thread: any.
  void close();
  /// Called on the loop when a peer is killed or cut off. Set once, before the first connection.
  Lost on_lost;

 private:
  void drain();

  const TransportOptions options_;
  std::mutex mutex_;
  boost::asio::io_context* io_;  // null after close()
  std::multimap<TimePoint, Work> queue_;
  std::optional<boost::asio::steady_timer> timer_;  // Thread: loop
  friend class Core;
};

/// Who listens where, and how long bytes take. Thread: any.
class Switch {
 public:
  explicit Switch(InprocNetwork::LinkModel model) : model_(model) {}

  void add(const std::shared_ptr<Inbox>& node);
  /// Returns the port; 0 asks for a free one. Errors (thrown): kIo when it is taken.
  std::uint16_t listen(const Endpoint& endpoint, std::weak_ptr<Core> core, Inbox* owner);
  void remove(const Inbox* owner);
  [[nodiscard]] std::shared_ptr<Core> find(const Endpoint& endpoint);
  /// When `bytes` sent now arrive; none when the link is cut.
  [[nodiscard]] std::optional<TimePoint> transmit(const std::string& from,
                                                  const std::string& to,
                                                  std::uint64_t bytes);
  void kill(const std::string& node_id);
  void set_cut(const std::string& a, const std::string& b, bool cut);
  void set_delay(const std::string& a, const std::string& b, Nanoseconds extra);

 private:
  struct Link {
    bool cut = false;
    Nanoseconds extra{0};
    TimePoint free_at{};
    TimePoint last_arrival{};
  };
  struct Listener {
    std::weak_ptr<Core> core;
    const Inbox* owner;
  };
  using Pair = std::pair<std::string, std::string>;

  const InprocNetwork::LinkModel model_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Inbox>> nodes_;
  std::map<std::pair<std::string, std::uint16_t>, Listener> listeners_;
  std::map<Pair, Link> links_;
  std::uint16_t next_port_ = 40000;
};

}  // namespace rift::transport::inproc
