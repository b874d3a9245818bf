// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/bootstrap/channel.h"
#include "transport/transport.h"
#include "transport/ucx/engine.h"

#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace rift::transport::bootstrap {
class Connector;
}

// Private to transport/ucx.
namespace rift::transport::ucx {

class Core;

/// Region of every link that the self-test of its connection is written to.
inline constexpr std::uint32_t kScratchRegion = 0xFFFFFFFF;
inline constexpr std::uint64_t kPatternBytes = 4096;

/// A connection to a peer, from the proven secret to the end (docs/protocol.md has the states).
/// The core holds it until every operation has ended. Thread: loop. Resource type.
class Link final : public Peer, public std::enable_shared_from_this<Link> {
 public:
  /// `connector`: null on the listening side.
  Link(std::shared_ptr<Core> core,
       std::uint64_t id,
       std::shared_ptr<bootstrap::Channel> channel,
       PeerHandler handler,
       std::shared_ptr<bootstrap::Connector> connector);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Sends this node's Hello.
  void start();

  [[nodiscard]] const NodeInfo& info() const override { return remote_.node; }
  [[nodiscard]] const LinkInfo& link() const override { return link_; }
  [[nodiscard]] bool connected() const override { return state_ == State::kUp; }
  Status send(const Message& message) override;
  void put(const Region& local,
           std::uint32_t remote_region,
           std::vector<PutOp> ops,
           Done done) override;
  void close() override;

  /// Whether an active message of this size may be taken; a refusal ends the connection.
  [[nodiscard]] bool admit(const MessageHeader& header, std::uint64_t bytes) noexcept;
  void arrive(Arrival arrival);
  void write(const MessageHeader& header, std::span<const std::byte> bytes) noexcept;
  void check_endpoint();

  // For Core::stop(), in this order.
  void begin_stop();
  [[nodiscard]] bool flushed() const { return flushed_; }
  void abort();
  void give_up_waiting();

 private:
  enum class State : std::uint8_t {
    kHello,    // waits for the peer's Hello
    kWireup,   // endpoint created, its first flush not ended
    kTesting,  // patterns under way in both directions
    kUp,
    kClosing,   // close() was called; what was sent is being flushed
    kDraining,  // waits until every operation and the endpoint have ended
    kDone,
  };
  struct RemoteRegion {
    bootstrap::RegionInfo info;
    Rkey rkey;
  };
  struct Batch {
    std::uint64_t number = 0;
    std::shared_ptr<Memory> local;
    const RemoteRegion* remote = nullptr;
    std::vector<PutOp> ops;
    std::size_t next = 0;
    std::size_t in_flight = 0;
    std::uint64_t posted = 0;
    bool flushing = false;
    Done done;
  };
  /// A batch of the peer's emulated writes.
  struct Incoming {
    std::uint64_t landed = 0;
    std::optional<std::uint64_t> expected;  // once its fence is here
  };

  // Handshake (link_handshake.cc).
  void on_frame(bootstrap::Frame frame);
  void on_hello(bootstrap::Hello hello);
  void connect_endpoint();
  void on_wired();
  void send_pattern();
  void check_pattern();
  void become_up();
  void expect_up();

  // Messages.
  void post_message(MessageHeader::Kind kind,
                    std::uint64_t sequence,
                    std::vector<std::byte> bytes,
                    std::uint64_t offset = 0);
  void accept(std::uint64_t sequence, std::vector<std::byte> bytes);
  void deliver();
  void fetch(const Arrival& arrival);

  // Writes.
  void enqueue(std::shared_ptr<Memory> local,
               const RemoteRegion& remote,
               std::vector<PutOp> ops,
               Done done);
  void pump();
  void post_put(const std::shared_ptr<Batch>& batch);
  void flush(const std::shared_ptr<Batch>& batch);
  ucs_status_ptr_t put_one_sided(const Batch& batch, const PutOp& op, ucp_request_param_t& request);
  ucs_status_ptr_t put_emulated(const Batch& batch,
                                const PutOp& op,
                                Operation& operation,
                                ucp_request_param_t& request);
  void fence(const Arrival& arrival);
  void acknowledge_complete();
  void acknowledge(std::uint64_t number);
  void finish(const std::shared_ptr<Batch>& batch, const Status& status);
  void report(Done done, Error error);

  // The end.
  void on_channel_end(const Error& error);
  void lose(const Error& error, bool tell);
  void drain(const Error& error);
  void close_endpoint();
  void finish_draining();
  void finish_close();
  void acknowledge_close();

  /// Runs an operation of this link; it stays alive until `on_end` has run.
  template <typename Call>
  void run(std::vector<std::byte> bytes, std::function<void(ucs_status_t)> on_end, Call&& call);

  const std::shared_ptr<Core> core_;
  const std::uint64_t id_;
  std::shared_ptr<bootstrap::Channel> channel_;
  PeerHandler handler_;
  std::shared_ptr<bootstrap::Connector> connector_;
  std::optional<boost::asio::steady_timer> timer_;
  State state_ = State::kHello;
  TimePoint started_;

  bootstrap::Hello remote_;
  LinkInfo link_;
  ucp_ep_h endpoint_ = nullptr;
  ucs_status_t endpoint_status_ = UCS_OK;
  std::map<std::uint32_t, RemoteRegion> regions_;
  std::shared_ptr<Memory> scratch_;
  bool pattern_arrived_ = false;
  bool pattern_confirmed_ = false;

  std::uint64_t sent_ = 0;
  std::uint64_t delivered_ = 0;
  std::uint64_t bytes_in_flight_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> early_;  // not yet in order, or not yet up
  std::uint64_t early_bytes_ = 0;
  std::optional<Error> refused_;  // set by admit()
  std::optional<std::uint64_t> close_after_;

  std::deque<std::shared_ptr<Batch>> batches_;
  int puts_in_flight_ = 0;
  std::uint64_t batch_count_ = 0;
  std::map<std::uint64_t, Incoming> incoming_;

  std::size_t operations_ = 0;
  bool endpoint_closing_ = false;
  bool flushed_ = false;
  bool was_up_ = false;
  bool ended_here_ = false;   // by close() or stop()
  std::optional<Error> end_;  // why it drains
};

}  // namespace rift::transport::ucx
