// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/handshake.h"
#include "transport/ucx/core.h"
#include "transport/ucx/link.h"
#include "transport/ucx/link_run.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <utility>

namespace rift::transport::ucx {
namespace {

constexpr std::chrono::milliseconds kHandshakeLimit{10000};
constexpr std::size_t kMinAddressBytes = 8;

/// What the owner of connection `link_id` finds in its scratch region.
void fill_pattern(std::span<std::byte> out, std::uint64_t link_id) {
  std::mt19937_64 random(link_id);
  std::generate(out.begin(), out.end(), [&] { return static_cast<std::byte>(random() >> 56U); });
}

}  // namespace

void Link::start() {
  const auto self = shared_from_this();
  started_ = Clock::now();
  channel_->start(
      [weak = weak_from_this()](bootstrap::Frame frame) {
        if (const auto link = weak.lock()) {
          link->on_frame(std::move(frame));
        }
      },
      [weak = weak_from_this()](const Error& error) {
        if (const auto link = weak.lock()) {
          link->on_channel_end(error);
        }
      });
  channel_->start_heartbeats();
  expect_up();
  try {
    // First half: the peer's pattern. Second half: the pattern for the peer.
    scratch_ = std::make_shared<Memory>(core_->engine().context(), 2 * kPatternBytes);
    bootstrap::Hello hello = core_->hello();
    hello.link_id = id_;
    hello.scratch_region = kScratchRegion;
    hello.regions.push_back({kScratchRegion,
                             kPatternBytes,
                             reinterpret_cast<std::uintptr_t>(scratch_->bytes().data()),
                             scratch_->pack_rkey()});
    channel_->send(hello);
  } catch (const Error& error) {
    lose(error, true);
  }
}

void Link::expect_up() {
  timer_->expires_after(kHandshakeLimit);
  timer_->async_wait([weak = weak_from_this()](const boost::system::error_code& cancelled) {
    const auto self = weak.lock();
    if (!cancelled && self && self->state_ < State::kUp) {
      self->lose(fail(Errc::kTimeout,
                      "the handshake with {} took over {} ms",
                      self->channel_->remote(),
                      kHandshakeLimit.count()),
                 true);
    }
  });
}

void Link::on_frame(bootstrap::Frame frame) {
  if (auto* hello = std::get_if<bootstrap::Hello>(&frame)) {
    on_hello(std::move(*hello));
  } else if (auto* refuse = std::get_if<bootstrap::Refuse>(&frame)) {
    lose(Error(refuse->code, std::move(refuse->message)), false);
  } else if (std::holds_alternative<bootstrap::Checked>(frame)) {
    pattern_confirmed_ = true;
    become_up();
  } else if (const auto* close = std::get_if<bootstrap::Close>(&frame)) {
    close_after_ = close->messages;
    acknowledge_close();
  } else if (std::holds_alternative<bootstrap::CloseAck>(frame)) {
    finish_close();
  }
}

void Link::on_hello(bootstrap::Hello hello) {
  if (state_ != State::kHello) {
    lose(fail(Errc::kCorrupt, "{} said hello twice", channel_->remote()), true);
    return;
  }
  remote_ = std::move(hello);
  if (Status s = check_compatible(core_->options().node, remote_.node); !s) {
    lose(s.error(), true);
    return;
  }
  channel_->send(bootstrap::HelloAck{});
  try {
    connect_endpoint();
  } catch (const Error& error) {
    lose(error, true);
  }
}

void Link::connect_endpoint() {
  if (remote_.worker_address.size() < kMinAddressBytes) {
    throw fail(Errc::kCorrupt, "a worker address of {} bytes", remote_.worker_address.size());
  }
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(remote_.worker_address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = this;
  params.err_handler.cb = [](void* arg, ucp_ep_h /*endpoint*/, ucs_status_t status) noexcept {
    auto* link = static_cast<Link*>(arg);
    link->endpoint_status_ = status;
    link->core_->engine().look_at_links();
  };
  const ucs_status_t status = ucp_ep_create(core_->engine().worker().get(), &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    throw to_error(status, fmt::format("connecting to {}", remote_.node.node_id));
  }
  if (channel_->peer_hung_up()) {
    return;  // its memory may be gone; the channel says why
  }
  for (auto& info : remote_.regions) {
    Rkey rkey = unpack_rkey(endpoint_, info.rkey);
    const std::uint32_t id = info.id;
    regions_.insert_or_assign(id, RemoteRegion{std::move(info), std::move(rkey)});
  }
  remote_.regions.clear();
  state_ = State::kWireup;
  // Before the first active message: UCX 1.13 breaks messages sent while lanes still change.
  run(
      {},
      [this](ucs_status_t ended) {
        if (state_ != State::kWireup) {
          return;
        }
        if (ended != UCS_OK) {
          lose(to_error(ended, fmt::format("connecting to {}", remote_.node.node_id)), true);
          return;
        }
        on_wired();
      },
      [this](Operation&, const ucp_request_param_t& request) {
        return ucp_ep_flush_nbx(endpoint_, &request);
      });
}

void Link::on_wired() {
  try {
    link_ = describe_lanes(endpoint_);
  } catch (const Error& error) {
    lose(error, true);
    return;
  }
  if (Status s = check_lanes(link_, core_->options().require_transport); !s) {
    lose(s.error(), true);
    return;
  }
  state_ = State::kTesting;
  acknowledge_complete();
  send_pattern();
}

void Link::send_pattern() {
  const auto region = regions_.find(remote_.scratch_region);
  if (region == regions_.end() || region->second.info.bytes < kPatternBytes) {
    lose(fail(Errc::kCorrupt, "{} has no scratch region", remote_.node.node_id), true);
    return;
  }
  fill_pattern(scratch_->bytes().subspan(kPatternBytes), remote_.link_id);
  enqueue(scratch_,
          region->second,
          {PutOp{kPatternBytes, 0, kPatternBytes}},
          [this](const Status& status) {
            if (state_ != State::kTesting) {
              return;
            }
            if (!status.ok()) {
              lose(status.error(), true);
              return;
            }
            post_message(MessageHeader::Kind::kSelfTest, 0, {});
          });
}

void Link::check_pattern() {
  std::vector<std::byte> expected(kPatternBytes);
  fill_pattern(expected, id_);
  if (!scratch_ || !std::equal(expected.begin(), expected.end(), scratch_->bytes().begin())) {
    lose(fail(Errc::kCorrupt,
              "the self-test of the link to {} failed: what was written did not arrive; lanes {}",
              remote_.node.node_id,
              fmt::join(link_.lanes, ", ")),
         true);
    return;
  }
  pattern_arrived_ = true;
  channel_->send(bootstrap::Checked{});
  become_up();
}

void Link::become_up() {
  if (state_ != State::kTesting || !pattern_arrived_ || !pattern_confirmed_) {
    return;
  }
  const auto self = shared_from_this();
  state_ = State::kUp;
  was_up_ = true;
  timer_->cancel();
  if (connector_) {
    connector_->stop();
    core_->forget(std::exchange(connector_, nullptr).get());
  }
  log().info("connected to {} {} over {}{} in {:.1f} ms",
             to_string(remote_.node.role),
             remote_.node.node_id,
             fmt::join(link_.lanes, ", "),
             link_.emulated ? " (writes emulated)" : "",
             1e3 * seconds_between(started_, Clock::now()));
  const auto on_up = handler_.on_up;
  on_up(self);
  deliver();
}

}  // namespace rift::transport::ucx
