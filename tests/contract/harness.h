// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rift::transport::test {

/// Runs the loop until `condition` holds; false after `limit`.
inline bool run_until(boost::asio::io_context& io,
                      const std::function<bool()>& condition,
                      std::chrono::milliseconds limit = std::chrono::seconds(20)) {
  const TimePoint deadline = Clock::now() + limit;
  while (!condition()) {
    const auto left = deadline - Clock::now();
    if (left <= Nanoseconds(0)) {
      return false;
    }
    io.restart();
    io.run_one_for(left);
  }
  return true;
}

/// Options of a node that fits any other of these.
inline TransportOptions options_of(Role role, std::string node_id) {
  TransportOptions options;
  options.node.role = role;
  options.node.node_id = std::move(node_id);
  for (std::size_t i = 0; i < options.node.node_id.size() && i < 16; ++i) {
    options.node.incarnation[i] = static_cast<std::uint8_t>(options.node.node_id[i]);
  }
  options.node.version = "0.1.0";
  options.node.model_name = "model";
  options.node.model_fingerprint = "fingerprint";
  options.node.tokenizer_hash = "tokenizer";
  options.node.geometry = {.layers = 2, .kv_heads = 2, .head_dim = 64, .dtype = DType::kF16};
  return options;
}

/// A node that records what its peers do.
struct Node {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Region> region;
  std::vector<std::shared_ptr<Peer>> ups;
  std::vector<Message> messages;
  std::vector<Error> lost;
  std::vector<Error> failures;
  std::function<void(Peer&, const Message&)> on_message;

  [[nodiscard]] PeerHandler handler() {
    return {.on_up = [this](std::shared_ptr<Peer> peer) { ups.push_back(std::move(peer)); },
            .on_message =
                [this](Peer& peer, Message message) {
                  if (on_message) {
                    on_message(peer, message);
                  }
                  messages.push_back(std::move(message));
                },
            .on_lost = [this](Peer&, const Error& error) { lost.push_back(error); }};
  }
  [[nodiscard]] std::function<void(const Error&)> on_failed() {
    return [this](const Error& error) { failures.push_back(error); };
  }
  [[nodiscard]] Peer& peer() const { return *ups.back(); }
};

}  // namespace rift::transport::test
