// SPDX-License-Identifier: Apache-2.0
// A peer that knows the secret and then says what no node says, made of the transport's own parts.
#include "tests/contract/harness.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/ucx/engine.h"
#include "transport/ucx/link.h"
#include "transport/ucx/ucx_transport.h"

#include <gmock/gmock.h>

namespace rift::transport::test {
namespace {

using std::chrono::milliseconds;
using ucx::MessageHeader;

constexpr unsigned kMessageId = 1;

/// Says Hello like a draft node, then only what the test has it send.
class HostilePeer {
 public:
  HostilePeer(boost::asio::io_context& io, std::uint16_t port)
      : io_(io),
        engine_(std::make_shared<ucx::Engine>(io, true)),
        scratch_(std::make_shared<ucx::Memory>(engine_->context(), ucx::kPatternBytes)) {
    engine_->start(
        {.on_arrival = [](ucx::Arrival) {},
         .on_links_changed = [] {},
         .admit = [](void*, const MessageHeader&, std::uint64_t) noexcept { return true; },
         .write = [](void*, const MessageHeader&, std::span<const std::byte>) noexcept {},
         .arg = this});
    connector_ = std::make_shared<bootstrap::Connector>(
        io, Endpoint{"127.0.0.1", port}, milliseconds(10000), "", kTiming);
    connector_->start([this](std::shared_ptr<bootstrap::Channel> channel) { greet(channel); },
                      [](const Error& error) { ADD_FAILURE() << error.message(); });
  }

  ~HostilePeer() {
    connector_->stop();
    channel_->close();
    run([&](ucx::Operation&, ucp_request_param_t& request) {
      request.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
      request.flags = UCP_EP_CLOSE_FLAG_FORCE;
      return ucp_ep_close_nbx(endpoint_, &request);
    });
    engine_->stop();
  }
  HostilePeer(const HostilePeer&) = delete;
  HostilePeer& operator=(const HostilePeer&) = delete;

  /// Creates the endpoint and waits until messages may be sent over it.
  void join() {
    ASSERT_TRUE(run_until(io_, [&] { return hello_.has_value(); }));
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                        UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.address = reinterpret_cast<const ucp_address_t*>(hello_->worker_address.data());
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler.cb = [](void*, ucp_ep_h, ucs_status_t) noexcept {};
    ASSERT_EQ(ucp_ep_create(engine_->worker().get(), &params, &endpoint_), UCS_OK);
    run([&](ucx::Operation&, const ucp_request_param_t& request) {
      return ucp_ep_flush_nbx(endpoint_, &request);
    });
  }

  void write(std::uint32_t region, std::uint64_t offset, std::vector<std::byte> bytes) {
    run([&](ucx::Operation& operation, const ucp_request_param_t& request) {
      operation.header = {.link_id = hello_->link_id,
                          .incarnation = node_.incarnation,
                          .kind = MessageHeader::Kind::kWrite,
                          .region = region,
                          .offset = offset};
      operation.bytes = std::move(bytes);
      return ucp_am_send_nbx(endpoint_,
                             kMessageId,
                             &operation.header,
                             sizeof(operation.header),
                             operation.bytes.data(),
                             operation.bytes.size(),
                             &request);
    });
  }

  [[nodiscard]] const std::optional<bootstrap::Refuse>& refused() const { return refused_; }

 private:
  static constexpr bootstrap::Channel::Timing kTiming{milliseconds(500), milliseconds(10000)};

  void greet(std::shared_ptr<bootstrap::Channel> channel) {
    channel_ = std::move(channel);
    channel_->start(
        [this](bootstrap::Frame frame) {
          if (auto* hello = std::get_if<bootstrap::Hello>(&frame)) {
            hello_ = std::move(*hello);
          } else if (auto* refuse = std::get_if<bootstrap::Refuse>(&frame)) {
            refused_ = std::move(*refuse);
          }
        },
        [](const Error&) {});
    channel_->start_heartbeats();
    bootstrap::Hello hello;
    hello.node = node_;
    hello.link_id = 7;
    hello.worker_address = engine_->worker().address();
    hello.scratch_region = ucx::kScratchRegion;
    hello.regions.push_back({ucx::kScratchRegion,
                             ucx::kPatternBytes,
                             reinterpret_cast<std::uintptr_t>(scratch_->bytes().data()),
                             scratch_->pack_rkey()});
    channel_->send(hello);
  }

  template <typename Call>
  void run(Call&& call) {
    bool ended = false;
    auto operation = std::make_unique<ucx::Operation>();
    operation->on_end = [&ended](ucs_status_t) { ended = true; };
    engine_->run(std::move(operation), std::forward<Call>(call));
    ASSERT_TRUE(run_until(io_, [&] { return ended; }));
  }

  boost::asio::io_context& io_;
  const NodeInfo node_ = options_of(Role::kDraft, "draft0").node;
  std::shared_ptr<ucx::Engine> engine_;
  std::shared_ptr<ucx::Memory> scratch_;
  std::shared_ptr<bootstrap::Connector> connector_;
  std::shared_ptr<bootstrap::Channel> channel_;
  std::optional<bootstrap::Hello> hello_;
  std::optional<bootstrap::Refuse> refused_;
  ucp_ep_h endpoint_ = nullptr;
};

struct Write {
  std::uint32_t region;
  std::uint64_t offset;
  std::size_t bytes;
};

class WriteOutsideOfARegion : public ::testing::TestWithParam<Write> {};

TEST_P(WriteOutsideOfARegion, EndsTheConnectionAndNothingElse) {
  boost::asio::io_context io;
  Node score;
  score.transport = make_ucx_transport(io, options_of(Role::kScore, "score0"));
  score.region = score.transport->allocate(4096);
  const std::uint16_t port = score.transport->listen({"127.0.0.1", 0}, score.handler());
  HostilePeer peer(io, port);
  ASSERT_NO_FATAL_FAILURE(peer.join());
  const auto [region, offset, bytes] = GetParam();
  peer.write(region, offset, std::vector<std::byte>(bytes));
  ASSERT_TRUE(run_until(io, [&] { return peer.refused().has_value(); }));
  EXPECT_EQ(peer.refused()->code, Errc::kOutOfRange);
  EXPECT_THAT(peer.refused()->message, testing::HasSubstr("wrote outside of a region"));
}

INSTANTIATE_TEST_SUITE_P(Writes,
                         WriteOutsideOfARegion,
                         testing::Values(Write{77, 0, 0},
                                         Write{77, 0, 16},
                                         Write{0, 4097, 0},
                                         Write{0, 4090, 16},
                                         Write{0, ~std::uint64_t{0}, 16}));

}  // namespace
}  // namespace rift::transport::test
