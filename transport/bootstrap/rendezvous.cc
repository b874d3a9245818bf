// SPDX-License-Identifier: Apache-2.0
#include "transport/bootstrap/rendezvous.h"

#include "common/log.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace rift::transport::bootstrap {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::size_t kMaxGreeting = 64;
constexpr std::chrono::milliseconds kFirstPause{20};
constexpr std::chrono::milliseconds kLastPause{500};

Error no_secret(const std::string& address) {
  return fail(Errc::kPermission,
              "without a secret only loopback addresses are allowed, not {}; set a secret on every "
              "node",
              address);
}

bool will_not_go_away(const Error& error) {
  return error.code() == Errc::kMismatch || error.code() == Errc::kPermission ||
         error.code() == Errc::kUnsupported;
}

}  // namespace

Listener::Listener(asio::io_context& io,
                   std::string secret,
                   Channel::Timing timing,
                   OnChannel on_channel)
    : io_(io),
      secret_(std::move(secret)),
      timing_(timing),
      on_channel_(std::move(on_channel)),
      pause_(io) {}

std::uint16_t Listener::listen(const Endpoint& endpoint) {
  ErrorCode error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(endpoint.host,
                                      std::to_string(endpoint.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service,
                                      error);
  if (error || found.empty()) {
    throw fail(Errc::kNotFound, "host '{}': {}", endpoint.host, error.message());
  }
  const tcp::endpoint address = found.begin()->endpoint();
  if (secret_.empty() && !address.address().is_loopback()) {
    throw no_secret(address.address().to_string());
  }
  try {
    acceptor_.emplace(io_, address, true);
  } catch (const boost::system::system_error& failed) {
    throw fail(Errc::kIo,
               "cannot listen on {}:{}: {}",
               endpoint.host,
               endpoint.port,
               failed.code().message());
  }
  accept();
  return acceptor_->local_endpoint().port();
}

void Listener::stop() {
  acceptor_.reset();
  pause_.reset();
  for (const auto& channel : std::exchange(greeting_, {})) {
    channel->close();
  }
  on_channel_ = nullptr;
}

void Listener::accept() {
  acceptor_->async_accept([self = shared_from_this()](const ErrorCode& error, tcp::socket socket) {
    if (!self->acceptor_) {
      return;
    }
    if (error) {
      // Out of descriptors, most likely: not a reason to spin, nor to stop accepting.
      self->pause_->expires_after(kLastPause);
      self->pause_->async_wait([self](const ErrorCode& cancelled) {
        if (!cancelled && self->acceptor_) {
          self->accept();
        }
      });
      return;
    }
    self->greet(std::move(socket));
    self->accept();
  });
}

void Listener::greet(tcp::socket socket) {
  ErrorCode error;
  const auto remote = socket.remote_endpoint(error);
  if (error || (secret_.empty() && !remote.address().is_loopback())) {
    return;
  }
  if (greeting_.size() >= kMaxGreeting) {
    // A peer that knows the protocol needs a moment only: who has been silent for longest goes, so
    // that connections nobody speaks on cannot keep peers out.
    greeting_.front()->close();
    greeting_.erase(greeting_.begin());
  }
  auto channel = std::make_shared<Channel>(std::move(socket), timing_);
  greeting_.push_back(channel);
  channel->authenticate(
      Side::kListener,
      secret_,
      [weak = weak_from_this(), raw = channel.get()](const Status& status) {
        const auto self = weak.lock();
        if (!self) {
          return;
        }
        const auto it = std::find_if(self->greeting_.begin(),
                                     self->greeting_.end(),
                                     [&](const auto& item) { return item.get() == raw; });
        if (it == self->greeting_.end()) {
          return;
        }
        const auto ready = std::move(*it);
        self->greeting_.erase(it);
        if (status.ok()) {
          const auto on_channel = self->on_channel_;
          on_channel(ready);
        } else {
          log().warn("connection from {} refused: {}", ready->remote(), status.error().message());
        }
      });
}

Connector::Connector(asio::io_context& io,
                     Endpoint endpoint,
                     std::chrono::milliseconds deadline,
                     std::string secret,
                     Channel::Timing timing)
    : io_(io),
      endpoint_(std::move(endpoint)),
      limit_(deadline),
      deadline_(Clock::now() + deadline),
      secret_(std::move(secret)),
      timing_(timing),
      pause_(kFirstPause),
      retry_timer_(io),
      give_up_timer_(io),
      resolver_(io) {}

void Connector::start(Listener::OnChannel on_channel, std::function<void(const Error&)> failed) {
  on_channel_ = std::move(on_channel);
  failed_ = std::move(failed);
  give_up_timer_->expires_at(deadline_);
  give_up_timer_->async_wait([self = shared_from_this()](const ErrorCode& error) {
    if (!error && !self->over()) {
      self->give_up(fail(Errc::kTimeout,
                         "no node at {}:{} within {} ms{}{}; is it running?",
                         self->endpoint_.host,
                         self->endpoint_.port,
                         self->limit_.count(),
                         self->last_error_.empty() ? "" : ": ",
                         self->last_error_));
    }
  });
  // Also the first attempt comes from the loop: callbacks never run inside connect().
  asio::post(io_, [self = shared_from_this()] { self->attempt(); });
}

void Connector::attempt() {
  if (over()) {
    return;
  }
  resolver_->async_resolve(
      endpoint_.host,
      std::to_string(endpoint_.port),
      tcp::resolver::numeric_service,
      [self = shared_from_this()](const ErrorCode& error,
                                  const tcp::resolver::results_type& results) {
        if (self->over()) {
          return;
        }
        std::vector<tcp::endpoint> endpoints;
        for (const auto& entry : results) {
          if (!self->secret_.empty() || entry.endpoint().address().is_loopback()) {
            endpoints.push_back(entry.endpoint());
          }
        }
        if (error) {
          self->retry(fail(Errc::kNotFound, "{}", error.message()));
        } else if (endpoints.empty()) {
          self->give_up(no_secret(self->endpoint_.host));
        } else {
          self->dial(endpoints);
        }
      });
}

void Connector::dial(const std::vector<tcp::endpoint>& endpoints) {
  socket_.emplace(io_);
  asio::async_connect(*socket_,
                      endpoints,
                      [self = shared_from_this()](const ErrorCode& error, const tcp::endpoint&) {
                        if (self->over()) {
                          return;
                        }
                        if (error) {
                          self->retry(fail(Errc::kUnavailable, "{}", error.message()));
                        } else {
                          self->greet();
                        }
                      });
}

void Connector::greet() {
  channel_ = std::make_shared<Channel>(std::move(*socket_), timing_);
  socket_.reset();
  channel_->authenticate(
      Side::kConnector, secret_, [weak = weak_from_this()](const Status& status) {
        const auto self = weak.lock();
        if (!self || self->over()) {
          return;
        }
        const auto channel = std::exchange(self->channel_, nullptr);
        if (!status.ok()) {
          self->retry(status.error());
          return;
        }
        const auto on_channel = self->on_channel_;
        on_channel(channel);
      });
}

void Connector::retry(const Error& error) {
  if (over()) {
    return;
  }
  if (will_not_go_away(error)) {
    give_up(error);
    return;
  }
  last_error_ = error.message();
  retry_timer_->expires_after(pause_);
  pause_ = std::min(2 * pause_, kLastPause);
  retry_timer_->async_wait([self = shared_from_this()](const ErrorCode& cancelled) {
    if (!cancelled) {
      self->attempt();
    }
  });
}

void Connector::give_up(const Error& error) {
  const auto self = shared_from_this();
  const auto failed = failed_;
  stop();
  failed(error);
}

void Connector::stop() {
  failed_ = nullptr;
  on_channel_ = nullptr;
  retry_timer_.reset();
  give_up_timer_.reset();
  resolver_.reset();
  socket_.reset();
  if (channel_) {
    std::exchange(channel_, nullptr)->close();
  }
}

}  // namespace rift::transport::bootstrap
