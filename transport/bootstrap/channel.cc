// SPDX-License-Identifier: Apache-2.0
#include "transport/bootstrap/channel.h"

#include "common/clock.h"

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace rift::transport::bootstrap {
namespace {

namespace asio = boost::asio;

// Raw bytes before any frame. Listener: magic, nonce. Connector: magic, nonce, proof. Listener:
// magic, 1 or 0, proof.
constexpr std::array<char, 8> kMagic = {'R', 'I', 'F', 'T', 'B', 'S', '0', '1'};
constexpr std::size_t kGreeting = 8 + 32;
constexpr std::size_t kAnswer = 8 + 32 + 32;
constexpr std::size_t kVerdict = 8 + 1 + 32;

std::vector<std::byte> with_size(const std::vector<std::byte>& body) {
  std::vector<std::byte> out(4 + body.size());
  for (unsigned i = 0; i < 4; ++i) {
    out[i] = static_cast<std::byte>(body.size() >> (8 * i));
  }
  std::copy(body.begin(), body.end(), out.begin() + 4);
  return out;
}

Error refused(const std::string& remote) {
  return fail(Errc::kPermission,
              "{} and this node do not share a secret; give both the same --secret-file",
              remote);
}

}  // namespace

Channel::Channel(asio::ip::tcp::socket socket, Timing timing)
    : socket_(std::move(socket)),
      deadline_(socket_->get_executor()),
      heartbeat_(socket_->get_executor()),
      timing_(timing) {
  Error_code error;
  socket_->set_option(asio::ip::tcp::no_delay(true), error);
  const auto endpoint = socket_->remote_endpoint(error);
  remote_ = error ? "peer" : fmt::format("{}:{}", endpoint.address().to_string(), endpoint.port());
}

void Channel::authenticate(Side side, std::string secret, std::function<void(const Status&)> done) {
  secret_ = std::move(secret);
  authenticated_ = std::move(done);
  expect(timing_.handshake, "the handshake");
  if (side == Side::kListener) {
    listener_greets();
  } else {
    connector_reads();
  }
}

void Channel::listener_greets() {
  fill_random(listener_nonce_);
  std::memcpy(raw_.data(), kMagic.data(), kMagic.size());
  std::memcpy(raw_.data() + 8, listener_nonce_.data(), listener_nonce_.size());
  asio::async_write(
      *socket_,
      asio::buffer(raw_, kGreeting),
      [self = shared_from_this()](const Error_code& error, std::size_t) {
        if (!self->open()) {
          return;
        }
        if (error) {
          self->finish_auth(fail(Errc::kUnavailable, "{}: {}", self->remote_, error.message()));
          return;
        }
        self->listener_reads();
      });
}

void Channel::listener_reads() {
  asio::async_read(
      *socket_,
      asio::buffer(raw_, kAnswer),
      [self = shared_from_this()](const Error_code& error, std::size_t) {
        if (!self->open()) {
          return;
        }
        if (error || std::memcmp(self->raw_.data(), kMagic.data(), kMagic.size()) != 0) {
          self->finish_auth(fail(Errc::kUnavailable, "{} is not a rift node", self->remote_));
          return;
        }
        Proof proof;
        std::memcpy(self->connector_nonce_.data(), self->raw_.data() + 8, 32);
        std::memcpy(proof.data(), self->raw_.data() + 40, 32);
        const bool good = same(
            proof,
            prove(self->secret_, Side::kConnector, self->listener_nonce_, self->connector_nonce_));
        self->raw_[8] = good ? std::byte{1} : std::byte{0};
        const Proof own =
            good
                ? prove(
                      self->secret_, Side::kListener, self->listener_nonce_, self->connector_nonce_)
                : Proof{};
        std::memcpy(self->raw_.data() + 9, own.data(), own.size());
        asio::async_write(*self->socket_,
                          asio::buffer(self->raw_, kVerdict),
                          [self, good](const Error_code& failed, std::size_t) {
                            if (!self->open()) {
                              return;
                            }
                            if (failed) {
                              self->finish_auth(fail(Errc::kUnavailable, "{}", failed.message()));
                              return;
                            }
                            self->finish_auth(good ? Status{} : Status{refused(self->remote_)});
                          });
      });
}

void Channel::connector_reads() {
  asio::async_read(
      *socket_,
      asio::buffer(raw_, kGreeting),
      [self = shared_from_this()](const Error_code& error, std::size_t) {
        if (!self->open()) {
          return;
        }
        if (error || std::memcmp(self->raw_.data(), kMagic.data(), kMagic.size()) != 0) {
          self->finish_auth(fail(Errc::kUnavailable, "{} is not a rift node", self->remote_));
          return;
        }
        std::memcpy(self->listener_nonce_.data(), self->raw_.data() + 8, 32);
        fill_random(self->connector_nonce_);
        const Proof proof =
            prove(self->secret_, Side::kConnector, self->listener_nonce_, self->connector_nonce_);
        std::memcpy(self->raw_.data() + 8, self->connector_nonce_.data(), 32);
        std::memcpy(self->raw_.data() + 40, proof.data(), 32);
        asio::async_write(*self->socket_,
                          asio::buffer(self->raw_, kAnswer),
                          [self](const Error_code& failed, std::size_t) {
                            if (!self->open()) {
                              return;
                            }
                            if (failed) {
                              self->finish_auth(fail(Errc::kUnavailable, "{}", failed.message()));
                              return;
                            }
                            self->connector_checks();
                          });
      });
}

void Channel::connector_checks() {
  asio::async_read(
      *socket_,
      asio::buffer(raw_, kVerdict),
      [self = shared_from_this()](const Error_code& error, std::size_t) {
        if (!self->open()) {
          return;
        }
        if (error) {
          self->finish_auth(fail(Errc::kUnavailable, "{}: {}", self->remote_, error.message()));
          return;
        }
        Proof proof;
        std::memcpy(proof.data(), self->raw_.data() + 9, 32);
        const bool good = self->raw_[8] == std::byte{1} && same(proof,
                                                                prove(self->secret_,
                                                                      Side::kListener,
                                                                      self->listener_nonce_,
                                                                      self->connector_nonce_));
        self->finish_auth(good ? Status{} : Status{refused(self->remote_)});
      });
}

void Channel::finish_auth(const Status& status) {
  const auto self = shared_from_this();
  const auto done = std::exchange(authenticated_, nullptr);
  if (!status.ok()) {
    close();
  }
  if (done) {
    done(status);
  }
}

void Channel::start(OnFrame on_frame, OnEnd on_end) {
  on_frame_ = std::move(on_frame);
  on_end_ = std::move(on_end);
  if (open()) {
    read_size();
  }
}

void Channel::start_heartbeats() {
  if (open() && !std::exchange(beating_, true)) {
    expect(timing_.peer_timeout, "a heartbeat");
    beat();
  }
}

void Channel::beat() {
  send(Heartbeat{});
  heartbeat_->expires_after(timing_.heartbeat);
  heartbeat_->async_wait([self = shared_from_this()](const Error_code& error) {
    if (!error && self->open()) {
      self->beat();
    }
  });
}

void Channel::expect(std::chrono::milliseconds within, std::string what) {
  const TimePoint due = Clock::now() + within;
  deadline_->expires_at(due);
  deadline_->async_wait(
      [self = shared_from_this(), within, due, what = std::move(what)](const Error_code& error) {
        if (error || !self->open()) {
          return;
        }
        // When this loop itself was held up, what the peer sent is still in the socket.
        if (Clock::now() - due > self->timing_.heartbeat / 2) {
          self->expect(self->timing_.heartbeat, what);
          return;
        }
        const Error late =
            fail(Errc::kTimeout, "{} from {} took over {} ms", what, self->remote_, within.count());
        if (self->authenticated_) {
          self->finish_auth(late);
        } else {
          self->end(late);
        }
      });
}

void Channel::read_size() {
  asio::async_read(
      *socket_,
      asio::buffer(size_),
      [self = shared_from_this()](const Error_code& error, std::size_t) {
        if (!self->open()) {
          return;
        }
        if (error) {
          self->end(fail(
              Errc::kUnavailable, "connection to {} ended: {}", self->remote_, error.message()));
          return;
        }
        std::uint32_t size = 0;
        for (unsigned i = 0; i < 4; ++i) {
          size |= std::uint32_t{self->size_[i]} << (8 * i);
        }
        if (size > kMaxFrameBytes) {
          self->end(fail(Errc::kOutOfRange,
                         "{} announced a frame of {} bytes; the limit is {}",
                         self->remote_,
                         size,
                         kMaxFrameBytes));
          return;
        }
        self->read_body(size);
      });
}

void Channel::read_body(std::uint32_t size) {
  body_.resize(size);
  asio::async_read(
      *socket_,
      asio::buffer(body_),
      [self = shared_from_this()](const Error_code& error, std::size_t) {
        if (!self->open()) {
          return;
        }
        if (error) {
          self->end(fail(
              Errc::kUnavailable, "connection to {} ended: {}", self->remote_, error.message()));
          return;
        }
        auto frame = decode_frame(self->body_);
        if (!frame) {
          self->end(frame.error());
          return;
        }
        if (self->beating_) {
          self->expect(self->timing_.peer_timeout, "a heartbeat");
        }
        const auto on_frame = self->on_frame_;
        if (!std::holds_alternative<Heartbeat>(frame.value())) {
          on_frame(std::move(frame).value());
        }
        if (self->open()) {
          self->read_size();
        }
      });
}

void Channel::send(const Frame& frame) {
  if (!open() || last_queued_) {
    return;
  }
  writes_.push_back(with_size(encode_frame(frame)));
  if (writes_.size() == 1) {
    write_next();
  }
}

void Channel::send_last(const Frame& frame) {
  send(frame);
  last_queued_ = true;
  on_frame_ = [](const Frame&) {};
  on_end_ = nullptr;
  beating_ = false;
  if (open()) {
    expect(timing_.peer_timeout, "the end of the connection");
  }
}

void Channel::write_next() {
  asio::async_write(*socket_,
                    asio::buffer(writes_.front()),
                    [self = shared_from_this()](const Error_code& error, std::size_t) {
                      if (!self->open() || error) {
                        return;  // the reading side reports what happened
                      }
                      self->writes_.pop_front();
                      if (!self->writes_.empty()) {
                        self->write_next();
                      } else if (self->last_queued_) {
                        // Half-closed: the peer reads to the end, then closes its own side.
                        Error_code ignored;
                        self->socket_->shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
                      }
                    });
}

void Channel::end(const Error& error) {
  const auto self = shared_from_this();
  const auto on_end = std::exchange(on_end_, nullptr);
  close();
  if (on_end) {
    on_end(error);
  }
}

void Channel::close(const Frame* last) {
  if (!open()) {
    return;
  }
  Error_code ignored;
  if (last != nullptr && writes_.empty()) {
    socket_->non_blocking(true, ignored);
    socket_->write_some(asio::buffer(with_size(encode_frame(*last))), ignored);
  }
  socket_->close(ignored);
  socket_.reset();
  deadline_.reset();
  heartbeat_.reset();
  on_frame_ = nullptr;
  on_end_ = nullptr;
  authenticated_ = nullptr;
  held_.reset();
}

void Channel::hold(std::shared_ptr<void> owner) {
  if (open()) {
    held_ = std::move(owner);
  }
}

bool Channel::peer_hung_up() {
  if (!open()) {
    return true;
  }
  pollfd state{socket_->native_handle(), POLLRDHUP, 0};
  return ::poll(&state, 1, 0) > 0;
}

}  // namespace rift::transport::bootstrap
