// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/transport.h"

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

namespace rift::transport {

/// A node on UCX: writes are one-sided operations, messages are active messages, a TCP connection
/// per peer carries the handshake and the heartbeats. The node runs on the single thread of `io`,
/// which other nodes may share; a loop that is held up for longer than peer_timeout is a lost peer.
/// Without a secret only the device `lo` is used; UCX_* of the environment goes before that.
/// stop() ends writes in flight with kCancelled before it returns.
/// Errors (thrown): kUnavailable (UCX cannot start, or is older than the one compiled for).
[[nodiscard]] std::unique_ptr<Transport> make_ucx_transport(boost::asio::io_context& io,
                                                            TransportOptions options);

/// Release of the UCX library in use, e.g. "1.13.1".
[[nodiscard]] std::string ucx_version();

}  // namespace rift::transport
