// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/link.h"

#include "common/log.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/handshake.h"
#include "transport/ucx/core.h"
#include "transport/ucx/link_run.h"
#include "transport/wire/codec.h"

#include <spdlog/spdlog.h>

#include <cstring>
#include <utility>

namespace rift::transport::ucx {
namespace {

constexpr std::size_t kMaxEarlyMessages = 1U << 16U;
constexpr std::chrono::milliseconds kLastMessages{250};

}  // namespace

Link::Link(std::shared_ptr<Core> core,
           std::uint64_t id,
           std::shared_ptr<bootstrap::Channel> channel,
           PeerHandler handler,
           std::shared_ptr<bootstrap::Connector> connector)
    : core_(std::move(core)),
      id_(id),
      channel_(std::move(channel)),
      handler_(std::move(handler)),
      connector_(std::move(connector)),
      timer_(core_->io()) {}

Link::~Link() = default;

// ---- messages ----

Status Link::send(const Message& message) {
  if (state_ != State::kUp) {
    return fail(Errc::kUnavailable, "{} is not connected", remote_.node.node_id);
  }
  auto bytes = encode(message);
  const std::uint64_t limit = core_->options().max_message_bytes;
  if (bytes.size() > limit) {
    return fail(Errc::kOutOfRange, "message of {} bytes; the limit is {}", bytes.size(), limit);
  }
  if (bytes_in_flight_ > 2 * limit) {
    return fail(Errc::kResourceExhausted,
                "{} bytes of messages to {} have not left yet",
                bytes_in_flight_,
                remote_.node.node_id);
  }
  post_message(MessageHeader::Kind::kControl, sent_++, std::move(bytes));
  return {};
}

void Link::post_message(MessageHeader::Kind kind,
                        std::uint64_t sequence,
                        std::vector<std::byte> bytes,
                        std::uint64_t offset) {
  const std::uint64_t size = bytes.size();
  bytes_in_flight_ += size;
  run(
      std::move(bytes),
      [this, size](ucs_status_t status) {
        bytes_in_flight_ -= size;
        if (status != UCS_OK && state_ <= State::kUp) {
          lose(to_error(status, fmt::format("sending to {}", remote_.node.node_id)), true);
        }
      },
      [&](Operation& operation, const ucp_request_param_t& request) {
        operation.header = {.link_id = remote_.link_id,
                            .sequence = sequence,
                            .incarnation = core_->options().node.incarnation,
                            .kind = kind,
                            .offset = offset};
        return ucp_am_send_nbx(endpoint_,
                               kMessageId,
                               &operation.header,
                               sizeof(operation.header),
                               operation.bytes.data(),
                               operation.bytes.size(),
                               &request);
      });
}

bool Link::admit(const MessageHeader& header, std::uint64_t bytes) noexcept {
  // Shared memory needs no word from this side: the peer's pattern may overtake its Hello.
  const bool known = state_ != State::kHello;
  if (state_ >= State::kClosing || (known && header.incarnation != remote_.node.incarnation)) {
    return false;
  }
  const std::uint64_t limit = core_->options().max_message_bytes;
  if (bytes <= limit && early_.size() < kMaxEarlyMessages && early_bytes_ <= 2 * limit) {
    return true;
  }
  endpoint_status_ = UCS_ERR_EXCEEDS_LIMIT;
  core_->engine().look_at_links();
  return false;
}

void Link::arrive(Arrival arrival) {
  if (arrival.rendezvous != nullptr) {
    if (state_ >= State::kClosing || arrival.header.kind != MessageHeader::Kind::kControl) {
      core_->engine().drop(arrival.rendezvous);
    } else {
      fetch(arrival);
    }
    return;
  }
  switch (arrival.header.kind) {
    case MessageHeader::Kind::kControl:
      accept(arrival.header.sequence, std::move(arrival.bytes));
      return;
    case MessageHeader::Kind::kSelfTest:
      if (state_ < State::kUp && !pattern_arrived_) {
        check_pattern();
      }
      return;
    case MessageHeader::Kind::kFence:
      fence(arrival);
      return;
    case MessageHeader::Kind::kAck:
      acknowledge(arrival.header.sequence);
      return;
    case MessageHeader::Kind::kWrite:
      break;  // taken inside progress
  }
  lose(fail(Errc::kCorrupt,
            "{} sent a message of kind {}",
            remote_.node.node_id,
            static_cast<std::uint32_t>(arrival.header.kind)),
       true);
}

void Link::fetch(const Arrival& arrival) {
  auto operation = std::make_unique<Operation>();
  operation->bytes.resize(arrival.rendezvous_bytes);
  ++operations_;
  // The vector keeps its storage when the operation is moved into on_end's reach.
  auto* raw = operation.get();
  operation->on_end =
      [self = shared_from_this(), raw, sequence = arrival.header.sequence](ucs_status_t status) {
        --self->operations_;
        if (status == UCS_OK) {
          self->accept(sequence, std::move(raw->bytes));
        } else if (self->state_ <= State::kUp) {
          self->lose(to_error(status, fmt::format("receiving from {}", self->remote_.node.node_id)),
                     true);
        }
        self->finish_draining();
      };
  core_->engine().fetch(std::move(operation), arrival.rendezvous);
}

void Link::accept(std::uint64_t sequence, std::vector<std::byte> bytes) {
  if (state_ >= State::kClosing) {
    return;
  }
  early_bytes_ += bytes.size();
  if (sequence < delivered_ || !early_.emplace(sequence, std::move(bytes)).second) {
    lose(fail(Errc::kCorrupt, "{} sent message {} twice", remote_.node.node_id, sequence), true);
    return;
  }
  deliver();
}

void Link::deliver() {
  const auto self = shared_from_this();
  while (state_ == State::kUp && !early_.empty() && early_.begin()->first == delivered_) {
    const auto bytes = std::move(early_.begin()->second);
    early_.erase(early_.begin());
    early_bytes_ -= bytes.size();
    ++delivered_;
    auto message = decode(bytes, core_->options().max_message_bytes);
    if (!message) {
      lose(message.error(), true);
      return;
    }
    const auto on_message = handler_.on_message;
    on_message(*this, std::move(message).value());
  }
  acknowledge_close();
}

// ---- the peer's emulated writes ----

void Link::write(const MessageHeader& header, std::span<const std::byte> bytes) noexcept {
  const bool to_scratch = header.region == kScratchRegion;
  const std::shared_ptr<Memory> memory = to_scratch ? scratch_ : core_->region(header.region);
  const std::uint64_t size = !memory ? 0 : to_scratch ? kPatternBytes : memory->bytes().size();
  // Even nothing cannot be written to a region that is not there.
  if (!memory || bytes.size() > size || header.offset > size - bytes.size()) {
    endpoint_status_ = UCS_ERR_INVALID_ADDR;
    core_->engine().look_at_links();
    return;
  }
  if (!bytes.empty()) {
    std::memcpy(memory->bytes().data() + header.offset, bytes.data(), bytes.size());
  }
  Incoming& batch = incoming_[header.sequence];
  ++batch.landed;
  if (batch.expected == batch.landed) {
    core_->engine().look_at_links();  // has the loop look at this link
  }
}

void Link::fence(const Arrival& arrival) {
  const std::uint64_t number = arrival.header.sequence;
  // Writes may overtake each other on several lanes; then the fence waits for their number.
  incoming_[number].expected = arrival.header.offset;
  acknowledge_complete();
}

void Link::acknowledge_complete() {
  if (state_ != State::kTesting && state_ != State::kUp) {
    return;  // on_wired() comes back to it
  }
  for (auto it = incoming_.begin(); it != incoming_.end();) {
    const auto [number, batch] = *it;
    const bool complete = batch.expected == batch.landed;
    it = complete ? incoming_.erase(it) : std::next(it);
    if (complete) {
      post_message(MessageHeader::Kind::kAck, number, {});
    }
  }
}

// ---- the end ----

void Link::check_endpoint() {
  acknowledge_complete();
  if (endpoint_status_ == UCS_OK || state_ >= State::kDraining) {
    return;
  }
  if (endpoint_status_ == UCS_ERR_EXCEEDS_LIMIT) {
    lose(fail(Errc::kOutOfRange,
              "{} sent a message over the limit of {} bytes",
              remote_.node.node_id,
              core_->options().max_message_bytes),
         true);
  } else {
    const bool outside = endpoint_status_ == UCS_ERR_INVALID_ADDR;
    lose(outside ? fail(Errc::kOutOfRange, "{} wrote outside of a region", remote_.node.node_id)
                 : to_error(endpoint_status_, fmt::format("the link to {}", remote_.node.node_id)),
         true);
  }
}

void Link::lose(const Error& error, bool tell) {
  if (state_ >= State::kDraining) {
    return;
  }
  if (state_ == State::kClosing) {
    finish_close();
    return;
  }
  if (tell) {
    channel_->send_last(bootstrap::Refuse{error.code(), error.message()});
  } else {
    channel_->close();
  }
  drain(error);
}

void Link::on_channel_end(const Error& error) {
  // A peer that stops says how much it sent and hangs up: the rest may still be on its way.
  if (state_ == State::kUp && close_after_) {
    timer_->expires_after(kLastMessages);
    timer_->async_wait(
        [weak = weak_from_this(), error](const boost::system::error_code& cancelled) {
          const auto self = weak.lock();
          if (!cancelled && self) {
            self->lose(error, false);
          }
        });
    return;
  }
  lose(error, false);
}

void Link::drain(const Error& error) {
  const auto self = shared_from_this();
  state_ = State::kDraining;
  end_ = error;
  timer_.reset();
  early_.clear();
  close_endpoint();
  finish_draining();
}

void Link::close_endpoint() {
  if (endpoint_ == nullptr || std::exchange(endpoint_closing_, true)) {
    return;
  }
  run(
      {},
      [this](ucs_status_t) { endpoint_ = nullptr; },
      [this](Operation&, ucp_request_param_t& request) {
        request.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        request.flags = UCP_EP_CLOSE_FLAG_FORCE;
        return ucp_ep_close_nbx(endpoint_, &request);
      });
}

/// Only when nothing is in flight any more do writes end and does the owner hear of it.
void Link::finish_draining() {
  if (state_ != State::kDraining || endpoint_ != nullptr || operations_ != 0) {
    return;
  }
  const auto self = shared_from_this();
  state_ = State::kDone;
  regions_.clear();
  // UCX 1.13 crashes in a peer that opens the key of memory which is gone.
  channel_->hold(std::exchange(scratch_, nullptr));
  core_->forget(id_);
  for (const auto& batch : std::exchange(batches_, {})) {
    batch->done(*end_);
  }
  const PeerHandler handler = std::exchange(handler_, {});
  if (connector_) {
    std::exchange(connector_, nullptr)->retry(*end_);
  } else if (was_up_ && handler.on_lost) {
    handler.on_lost(*this, *end_);
  } else if (!was_up_ && !ended_here_) {
    log().warn("no connection with {}: {}", channel_->remote(), end_->message());
  }
}

void Link::close() {
  if (state_ != State::kUp) {
    return;
  }
  state_ = State::kClosing;
  handler_ = {};
  ended_here_ = true;
  timer_->expires_after(core_->options().peer_timeout);
  timer_->async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self) {
      self->finish_close();
    }
  });
  run(
      {},
      [this](ucs_status_t status) {
        if (state_ != State::kClosing) {
          return;
        }
        if (status == UCS_OK) {
          channel_->send(bootstrap::Close{sent_});
        } else {
          finish_close();
        }
      },
      [this](Operation&, const ucp_request_param_t& request) {
        return ucp_ep_flush_nbx(endpoint_, &request);
      });
}

/// The peer has every message, or the time for that is over.
void Link::finish_close() {
  if (state_ == State::kClosing) {
    channel_->close();
    drain(fail(Errc::kCancelled, "the connection to {} was closed", remote_.node.node_id));
  }
}

void Link::acknowledge_close() {
  if (!close_after_) {
    return;
  }
  if (state_ == State::kClosing) {
    channel_->send(bootstrap::CloseAck{});
    finish_close();
  } else if (state_ == State::kUp && delivered_ >= *close_after_) {
    channel_->send_last(bootstrap::CloseAck{});
    drain(fail(Errc::kCancelled, "{} closed the connection", remote_.node.node_id));
  }
}

void Link::begin_stop() {
  flushed_ = true;
  if (state_ != State::kUp && state_ != State::kClosing) {
    return;
  }
  flushed_ = false;
  handler_ = {};
  run(
      {},
      [this](ucs_status_t) { flushed_ = true; },
      [this](Operation&, const ucp_request_param_t& request) {
        return ucp_ep_flush_nbx(endpoint_, &request);
      });
}

void Link::abort() {
  handler_ = {};
  ended_here_ = true;
  connector_.reset();
  if (state_ >= State::kDraining) {
    return;
  }
  const bootstrap::Frame last = bootstrap::Close{sent_};
  channel_->close(state_ == State::kUp ? &last : nullptr);
  drain(fail(Errc::kCancelled, "{} stops", core_->options().node.node_id));
}

void Link::give_up_waiting() {
  timer_.reset();
  regions_.clear();
  channel_->close();
  handler_ = {};
  for (const auto& batch : std::exchange(batches_, {})) {
    batch->done(fail(Errc::kCancelled, "{} stops", core_->options().node.node_id));
  }
}

}  // namespace rift::transport::ucx
