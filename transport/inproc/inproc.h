// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/transport.h"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace rift::transport {

namespace inproc {
class Switch;
}

/// Joins the nodes of one process: the transport of tests, evaluation and simulation. Outlives the
/// transports made on it. Thread: any. Resource type.
class InprocNetwork {
 public:
  /// Every direction between two nodes is a link of its own. Default: no time at all.
  struct LinkModel {
    double bytes_per_second = 0;  // 0: unlimited
    std::chrono::nanoseconds latency{0};
  };

  InprocNetwork();
  explicit InprocNetwork(LinkModel model);
  ~InprocNetwork();
  InprocNetwork(const InprocNetwork&) = delete;
  InprocNetwork& operator=(const InprocNetwork&) = delete;

  /// The node ends as if its process had: its callbacks never run again, its peers lose it at once.
  void kill(const std::string& node_id);
  /// Drops everything between two nodes; each loses the other after its peer_timeout.
  void cut(const std::string& a, const std::string& b);
  void heal(const std::string& a, const std::string& b);
  /// Adds latency in both directions, for what is sent from now on.
  void delay(const std::string& a, const std::string& b, std::chrono::nanoseconds extra);

  [[nodiscard]] const std::shared_ptr<inproc::Switch>& state() const { return state_; }

 private:
  std::shared_ptr<inproc::Switch> state_;
};

/// A node on `network`; endpoints are names and ports in it. Messages pass through the wire format.
/// Writes are copied on the peer's loop when the modelled time has passed. stop() ends writes in
/// flight with kCancelled before it returns. The node runs on the single thread of `io`, which
/// other nodes may share.
[[nodiscard]] std::unique_ptr<Transport> make_inproc_transport(boost::asio::io_context& io,
                                                               InprocNetwork& network,
                                                               TransportOptions options);

}  // namespace rift::transport
