// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "transport/bootstrap/channel.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rift::transport::bootstrap {

/// Accepts connections that prove the secret. Thread: loop. Resource type.
class Listener : public std::enable_shared_from_this<Listener> {
 public:
  using OnChannel = std::function<void(std::shared_ptr<Channel>)>;

  Listener(boost::asio::io_context& io,
           std::string secret,
           Channel::Timing timing,
           OnChannel on_channel);
  /// Returns the port. Errors (thrown): kPermission (no secret, and not a loopback address),
  /// kNotFound (unknown host), kIo.
  std::uint16_t listen(const Endpoint& endpoint);
  void stop();

 private:
  void accept();
  void greet(boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& io_;
  const std::string secret_;
  const Channel::Timing timing_;
  OnChannel on_channel_;
  std::optional<boost::asio::ip::tcp::acceptor> acceptor_;
  std::optional<boost::asio::steady_timer> pause_;
  // Connections that have not proven the secret yet; bounded.
  std::vector<std::shared_ptr<Channel>> greeting_;
};

/// Connects until a deadline, with backoff. Thread: loop. Resource type.
class Connector : public std::enable_shared_from_this<Connector> {
 public:
  Connector(boost::asio::io_context& io,
            Endpoint endpoint,
            std::chrono::milliseconds deadline,
            std::string secret,
            Channel::Timing timing);
  /// `on_channel` may be called again after retry(); `failed` once, then nothing.
  void start(Listener::OnChannel on_channel, std::function<void(const Error&)> failed);
  /// The channel came to nothing: tries again after a pause, or gives up when `error` will not
  /// go away (kMismatch, kPermission, kUnsupported).
  void retry(const Error& error);
  /// The peer is up; nothing is called afterwards.
  void stop();

 private:
  void attempt();
  void dial(const std::vector<boost::asio::ip::tcp::endpoint>& endpoints);
  void greet();
  void give_up(const Error& error);
  [[nodiscard]] bool over() const { return !failed_; }

  boost::asio::io_context& io_;
  const Endpoint endpoint_;
  const std::chrono::milliseconds limit_;
  const TimePoint deadline_;
  const std::string secret_;
  const Channel::Timing timing_;
  Listener::OnChannel on_channel_;
  std::function<void(const Error&)> failed_;
  std::chrono::milliseconds pause_;
  std::string last_error_;
  std::optional<boost::asio::steady_timer> retry_timer_;
  std::optional<boost::asio::steady_timer> give_up_timer_;
  std::optional<boost::asio::ip::tcp::resolver> resolver_;
  std::optional<boost::asio::ip::tcp::socket> socket_;
  std::shared_ptr<Channel> channel_;
};

}  // namespace rift::transport::bootstrap
