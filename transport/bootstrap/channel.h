// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/bootstrap/auth.h"
#include "transport/bootstrap/frames.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rift::transport::bootstrap {

/// One TCP connection to a peer: proof of the secret, then frames and heartbeats. Every wait has a
/// deadline of its own side. Nothing is called after close(). Thread: loop. Resource type.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  struct Timing {
    std::chrono::milliseconds heartbeat;
    std::chrono::milliseconds peer_timeout;
    std::chrono::milliseconds handshake{5000};  // for the proof, and until heartbeats begin
  };
  using OnFrame = std::function<void(Frame)>;
  using OnEnd = std::function<void(const Error&)>;

  Channel(boost::asio::ip::tcp::socket socket, Timing timing);

  /// Calls `done` once: both sides know the secret, or kPermission, kTimeout, kUnavailable.
  void authenticate(Side side, std::string secret, std::function<void(const Status&)> done);
  /// Frames from now on; `on_end` once when the connection is over for any reason but close().
  void start(OnFrame on_frame, OnEnd on_end);
  /// From now on the peer is gone when it is silent for peer_timeout.
  void start_heartbeats();
  void send(const Frame& frame);
  /// Writes the frame, then ends the connection.
  void send_last(const Frame& frame);
  /// Ends the connection at once, with `last` as far as the socket takes it.
  void close(const Frame* last = nullptr);

  /// Keeps `owner` until the connection is closed: what the peer was told of may not go sooner.
  void hold(std::shared_ptr<void> owner);
  /// Whether the peer has ended its side; frames that it sent before may still be unread.
  [[nodiscard]] bool peer_hung_up();

  [[nodiscard]] const std::string& remote() const { return remote_; }

 private:
  using Error_code = boost::system::error_code;

  void send_proof(Side side, std::shared_ptr<std::string> secret);
  void listener_greets();
  void listener_reads();
  void connector_reads();
  void connector_checks();
  void finish_auth(const Status& status);
  void read_size();
  void read_body(std::uint32_t size);
  void write_next();
  void expect(std::chrono::milliseconds within, std::string what);
  void beat();
  void end(const Error& error);
  [[nodiscard]] bool open() const { return socket_.has_value(); }

  std::optional<boost::asio::ip::tcp::socket> socket_;
  std::optional<boost::asio::steady_timer> deadline_;
  std::optional<boost::asio::steady_timer> heartbeat_;
  const Timing timing_;
  std::string remote_;

  std::string secret_;
  Nonce listener_nonce_{};
  Nonce connector_nonce_{};
  std::array<std::byte, 80> raw_{};
  std::function<void(const Status&)> authenticated_;

  OnFrame on_frame_;
  OnEnd on_end_;
  bool beating_ = false;
  bool last_queued_ = false;
  std::array<std::uint8_t, 4> size_{};
  std::vector<std::byte> body_;
  std::deque<std::vector<std::byte>> writes_;
  std::shared_ptr<void> held_;
};

}  // namespace rift::transport::bootstrap
