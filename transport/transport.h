// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "transport/messages.h"

#include <boost/asio/io_context.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rift::transport {

enum class Role : std::uint8_t { kTarget, kDraft, kScore };
[[nodiscard]] std::string_view to_string(Role role);

/// Who a node is and what it serves; compared in the handshake, first difference named.
/// draft <-> score: the same model fingerprint. target <-> draft: the same tokenizer hash.
struct NodeInfo {
  Role role = Role::kTarget;
  std::string node_id;                         // chosen by the operator, e.g. "draft0"
  std::array<std::uint8_t, 16> incarnation{};  // random per process
  std::string version;
  std::string model_name;
  std::string model_fingerprint;
  std::string tokenizer_hash;
  KvGeometry geometry;  // draft and score nodes; layers = 0 elsewhere
};

/// The part of a node's description that is the same for all: its version, and an incarnation drawn
/// at random.
[[nodiscard]] NodeInfo make_node_info(Role role, const std::string& node_id);

/// How two nodes are joined, as read from the transport after connecting.
struct LinkInfo {
  std::string name;                // "ucx" or "inproc"
  std::vector<std::string> lanes;  // e.g. "tcp/lo", "rc_mlx5/mlx5_0:1"
  bool emulated = false;           // one-sided writes need the peer's progress
};

/// Registered memory that peers may write to. Resource type; freed by its owner after stop().
class Region {
 public:
  virtual ~Region() = default;
  [[nodiscard]] virtual std::uint32_t id() const = 0;
  [[nodiscard]] virtual std::span<std::byte> bytes() const = 0;
};

/// Write of `bytes` bytes from a local region to a peer's region.
struct PutOp {
  std::uint64_t local_offset = 0;
  std::uint64_t remote_offset = 0;
  std::uint64_t bytes = 0;
};

/// A connected node. Thread: loop.
class Peer {
 public:
  virtual ~Peer() = default;
  [[nodiscard]] virtual const NodeInfo& info() const = 0;
  [[nodiscard]] virtual const LinkInfo& link() const = 0;
  [[nodiscard]] virtual bool connected() const = 0;
  /// Queues a message; order is kept. Errors: kUnavailable after the peer is lost, kOutOfRange when
  /// the encoded message exceeds the limit.
  virtual Status send(const Message& message) = 0;
  /// Posts all writes, bounded in depth, and calls `done` on the loop once: with success after
  /// every byte is visible in the peer's region, or with an error after the last operation has
  /// ended. `local` lives until then. Offsets are checked against the peer's region before anything
  /// is posted (kOutOfRange). A message sent after `done` finds the bytes in place.
  using Done = std::function<void(Status)>;
  virtual void put(const Region& local,
                   std::uint32_t remote_region,
                   std::vector<PutOp> ops,
                   Done done) = 0;
  /// Ends the connection; on_lost is not called for it.
  virtual void close() = 0;
};

/// Callbacks on the loop. `peer` is shared: the service keeps it while sessions use it.
struct PeerHandler {
  std::function<void(std::shared_ptr<Peer>)> on_up;
  std::function<void(Peer&, Message)> on_message;
  // Heartbeats missed, reset, error; kCancelled when the peer closed in order.
  std::function<void(Peer&, const Error&)> on_lost;
};

/// Logs what on_lost reports: "<what> left" when the peer closed in order, else a warning that it
/// was lost, and why.
void log_loss(const std::string& what, const Error& error);

/// "host:port"; port 0 lets the system choose.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;
};
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text);

struct TransportOptions {
  NodeInfo node;
  std::string secret;             // empty: loopback only
  std::string require_transport;  // empty: any; otherwise refuse lanes without this name
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds peer_timeout{1500};  // no heartbeat for so long: lost
  std::uint64_t max_message_bytes = 64U << 20U;
  std::int32_t put_depth = 32;  // writes in flight per peer
};

/// One per node. Thread: the loop of `io`, except construction. Resource type.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Registers `bytes` of zeroed memory. Before listen()/connect(): regions are announced in the
  /// handshake.
  [[nodiscard]] virtual std::unique_ptr<Region> allocate(std::uint64_t bytes) = 0;
  /// Accepts peers. Returns the port. Errors (thrown): kPermission (not loopback and no secret),
  /// kIo.
  virtual std::uint16_t listen(const Endpoint& endpoint, PeerHandler handler) = 0;
  /// Connects, trying again with backoff until `deadline` after now; `failed` is called once when
  /// it is given up (also at once on a mismatch or a refused secret).
  virtual void connect(const Endpoint& endpoint,
                       std::chrono::milliseconds deadline,
                       PeerHandler handler,
                       std::function<void(const Error&)> failed) = 0;
  /// Closes every peer and stops accepting. Callbacks do not run afterwards.
  virtual void stop() = 0;
};

}  // namespace rift::transport
