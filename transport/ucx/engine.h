// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "transport/ucx/ucp.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

// Private to transport/ucx.
namespace rift::transport::ucx {

class Engine;

/// Number of the active messages of this transport.
inline constexpr unsigned kMessageId = 1;

/// Header of every active message.
struct MessageHeader {
  enum class Kind : std::uint32_t {
    kControl,   // sequence: number of the message
    kSelfTest,  // the pattern has been written
    kWrite,     // emulated write of a batch; sequence: its number, region and offset: where to
    kFence,     // end of a batch; offset: number of its writes
    kAck,       // every write of the batch is in place
  };
  std::uint64_t link_id = 0;  // as the receiver named the connection
  std::uint64_t sequence = 0;
  std::array<std::uint8_t, 16> incarnation{};  // of the sender
  Kind kind = Kind::kControl;
  std::uint32_t region = 0;
  std::uint64_t offset = 0;
};
static_assert(sizeof(MessageHeader) == 48);

/// An active message: its bytes, or where to fetch them when it comes by rendezvous.
struct Arrival {
  MessageHeader header;
  std::vector<std::byte> bytes;
  void* rendezvous = nullptr;
  std::uint64_t rendezvous_bytes = 0;
};

/// A UCP request in flight with what must live until it has ended.
struct Operation {
  std::function<void(ucs_status_t)> on_end;
  MessageHeader header;
  std::vector<std::byte> bytes;

 private:
  friend class Engine;
  Engine* engine_ = nullptr;
  ucs_status_t status_ = UCS_OK;
  Operation* next_ = nullptr;
};

/// One UCX worker on an Asio loop: progress until idle, run what ended, arm, wait for the event
/// descriptor; a safety tick covers lost wake-ups. UCX callbacks only record. Thread: loop.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  struct Handlers {
    std::function<void(Arrival)> on_arrival;
    std::function<void()> on_links_changed;
    /// Whether a message may be taken from the network, by its header and size. noexcept.
    bool (*admit)(void* arg, const MessageHeader& header, std::uint64_t bytes) noexcept;
    /// Copies an emulated write to its place, inside progress. noexcept.
    void (*write)(void* arg,
                  const MessageHeader& header,
                  std::span<const std::byte> bytes) noexcept;
    void* arg;
  };

  Engine(boost::asio::io_context& io, bool loopback_only);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start(Handlers handlers);
  /// The worker is destroyed; operations that have not ended are forgotten.
  void stop();

  [[nodiscard]] Worker& worker() { return *worker_; }
  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

  /// Starts `call(operation, request parameters)`, which returns a ucs_status_ptr_t; on_end runs on
  /// the loop once, never from inside.
  template <typename Call>
  void run(std::unique_ptr<Operation> operation, Call&& call) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_CALLBACK;
    params.user_data = operation.get();
    params.cb.send = &Engine::sent;
    operation->engine_ = this;
    const ucs_status_ptr_t request = call(*operation, params);
    track(operation.release(), request);
  }
  /// Starts to fetch the bytes of a rendezvous message into operation->bytes.
  void fetch(std::unique_ptr<Operation> operation, void* rendezvous);
  void drop(void* rendezvous);

  /// From UCX's callbacks: only marks; on_links_changed runs after progress.
  void look_at_links() noexcept { look_at_links_ = true; }
  /// Has the loop make progress soon.
  void kick();
  /// Makes progress until `condition` or the deadline; for stop() only.
  bool progress_until(const std::function<bool()>& condition, TimePoint deadline);

 private:
  static void sent(void* request, ucs_status_t status, void* user_data) noexcept;
  static void received(void* request,
                       ucs_status_t status,
                       std::size_t length,
                       void* user_data) noexcept;
  static ucs_status_t arrived(void* arg,
                              const void* header,
                              std::size_t header_bytes,
                              void* data,
                              std::size_t bytes,
                              const ucp_am_recv_param_t* param) noexcept;

  void track(Operation* operation, ucs_status_ptr_t request);
  void end(Operation* operation, ucs_status_t status) noexcept;
  void turn();
  bool run_queue();
  void wait();
  void tick();

  boost::asio::io_context& io_;
  std::shared_ptr<Context> context_;
  std::optional<Worker> worker_;
  std::optional<boost::asio::posix::stream_descriptor> event_;
  std::optional<boost::asio::steady_timer> tick_;
  Handlers handlers_{};
  std::vector<Arrival> arrivals_;
  Operation* ended_first_ = nullptr;
  Operation* ended_last_ = nullptr;
  std::size_t ended_count_ = 0;
  bool look_at_links_ = false;
  bool scheduled_ = false;
  bool waiting_ = false;
};

}  // namespace rift::transport::ucx
