// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx/engine.h"

#include <boost/asio/post.hpp>

#include <unistd.h>

#include <cstring>
#include <exception>

namespace rift::transport::ucx {
namespace {

constexpr int kProgressPerTurn = 64;
constexpr int kTurnsPerVisit = 32;
constexpr std::chrono::milliseconds kSafetyTick{10};

}  // namespace

Engine::Engine(boost::asio::io_context& io, bool loopback_only)
    : io_(io), context_(std::make_shared<Context>(loopback_only)) {
  worker_.emplace(context_);
  worker_->on_active_message(kMessageId, &Engine::arrived, this);
  const int fd = ::dup(worker_->event_fd());
  if (fd < 0) {
    throw fail(Errc::kIo, "cannot duplicate UCX's event descriptor: {}", std::strerror(errno));
  }
  event_.emplace(io_, fd);
  tick_.emplace(io_);
}

Engine::~Engine() { stop(); }

void Engine::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  kick();
  tick();
}

void Engine::stop() {
  event_.reset();
  tick_.reset();
  for (Arrival& arrival : std::exchange(arrivals_, {})) {
    if (arrival.rendezvous != nullptr) {
      drop(arrival.rendezvous);
    }
  }
  worker_.reset();
  while (ended_first_ != nullptr) {
    delete std::exchange(ended_first_, ended_first_->next_);
  }
  ended_last_ = nullptr;
  handlers_ = {};
}

void Engine::sent(void* request, ucs_status_t status, void* user_data) noexcept {
  auto* operation = static_cast<Operation*>(user_data);
  operation->engine_->end(operation, status);
  ucp_request_free(request);
}

void Engine::received(void* request,
                      ucs_status_t status,
                      std::size_t /*length*/,
                      void* user_data) noexcept {
  sent(request, status, user_data);
}

void Engine::end(Operation* operation, ucs_status_t status) noexcept {
  operation->status_ = status;
  operation->next_ = nullptr;
  (ended_last_ != nullptr ? ended_last_->next_ : ended_first_) = operation;
  ended_last_ = operation;
  ++ended_count_;
}

void Engine::track(Operation* operation, ucs_status_ptr_t request) {
  if (request == nullptr) {
    end(operation, UCS_OK);
  } else if (UCS_PTR_IS_ERR(request)) {
    end(operation, UCS_PTR_STATUS(request));
  }
  kick();
}

void Engine::fetch(std::unique_ptr<Operation> operation, void* rendezvous) {
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.user_data = operation.get();
  params.cb.recv_am = &Engine::received;
  operation->engine_ = this;
  Operation* raw = operation.release();
  track(raw,
        ucp_am_recv_data_nbx(
            worker_->get(), rendezvous, raw->bytes.data(), raw->bytes.size(), &params));
}

void Engine::drop(void* rendezvous) {
  if (worker_) {
    ucp_am_data_release(worker_->get(), rendezvous);
  }
}

ucs_status_t Engine::arrived(void* arg,
                             const void* header,
                             std::size_t header_bytes,
                             void* data,
                             std::size_t bytes,
                             const ucp_am_recv_param_t* param) noexcept {
  auto& self = *static_cast<Engine*>(arg);
  if (header_bytes != sizeof(MessageHeader)) {
    return UCS_OK;
  }
  try {
    Arrival arrival;
    std::memcpy(&arrival.header, header, sizeof(MessageHeader));
    if (!self.handlers_.admit || !self.handlers_.admit(self.handlers_.arg, arrival.header, bytes)) {
      return UCS_OK;
    }
    if (arrival.header.kind == MessageHeader::Kind::kWrite &&
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0) {
      self.handlers_.write(
          self.handlers_.arg, arrival.header, {static_cast<const std::byte*>(data), bytes});
      return UCS_OK;
    }
    const bool by_rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    if (by_rendezvous) {
      arrival.rendezvous = data;
      arrival.rendezvous_bytes = bytes;
    } else {
      const auto* first = static_cast<const std::byte*>(data);
      arrival.bytes.assign(first, first + bytes);
    }
    self.arrivals_.push_back(std::move(arrival));
    return by_rendezvous ? UCS_INPROGRESS : UCS_OK;
  } catch (const std::exception&) {
    return UCS_OK;  // no memory: the gap in the sequence numbers ends the connection
  }
}

void Engine::kick() {
  if (worker_ && !std::exchange(scheduled_, true)) {
    boost::asio::post(io_, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->scheduled_ = false;
        self->turn();
      }
    });
  }
}

void Engine::turn() {
  const auto self = shared_from_this();
  for (int i = 0; i < kTurnsPerVisit && worker_; ++i) {
    int progressed = 0;
    while (progressed < kProgressPerTurn && worker_->progress()) {
      ++progressed;
    }
    // Progress may have queued work: the worker is armed only when the queue is empty as well.
    const bool ran = run_queue();
    if (worker_ && progressed == 0 && !ran && worker_->arm()) {
      wait();
      return;
    }
  }
  kick();
}

bool Engine::run_queue() {
  bool ran = false;
  if (std::exchange(look_at_links_, false)) {
    ran = true;
    const auto on_links_changed = handlers_.on_links_changed;
    on_links_changed();
  }
  for (Arrival& arrival : std::exchange(arrivals_, {})) {
    ran = true;
    // A copy: the handler may stop the engine.
    if (const auto on_arrival = handlers_.on_arrival) {
      on_arrival(std::move(arrival));
    } else if (arrival.rendezvous != nullptr) {
      drop(arrival.rendezvous);
    }
  }
  // Not those that end meanwhile: writes that complete at once would keep the loop here for ever.
  for (std::size_t left = ended_count_; left > 0 && ended_first_ != nullptr; --left) {
    ran = true;
    --ended_count_;
    const std::unique_ptr<Operation> operation(ended_first_);
    ended_first_ = operation->next_;
    if (ended_first_ == nullptr) {
      ended_last_ = nullptr;
    }
    operation->on_end(operation->status_);
  }
  return ran;
}

void Engine::wait() {
  if (std::exchange(waiting_, true)) {
    return;
  }
  event_->async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [weak = weak_from_this()](const boost::system::error_code& error) {
                       const auto self = weak.lock();
                       if (!self) {
                         return;
                       }
                       self->waiting_ = false;
                       if (!error) {
                         self->turn();
                       }
                     });
}

void Engine::tick() {
  tick_->expires_after(kSafetyTick);
  tick_->async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!error && self && self->worker_) {
      self->turn();
      if (self->tick_) {
        self->tick();
      }
    }
  });
}

bool Engine::progress_until(const std::function<bool()>& condition, TimePoint deadline) {
  while (!condition()) {
    if (Clock::now() > deadline) {
      return false;
    }
    static_cast<void>(worker_->progress());
    run_queue();
  }
  return true;
}

}  // namespace rift::transport::ucx
