// SPDX-License-Identifier: Apache-2.0
#include "transport/handshake.h"
#include "transport/ucx/core.h"
#include "transport/ucx/link.h"
#include "transport/ucx/link_run.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace rift::transport::ucx {
namespace {

constexpr std::uint64_t kEmulatedBytes = 256U << 10U;
constexpr std::uint64_t kBytesPerPump = 8U << 20U;

}  // namespace

void Link::put(const Region& local,
               std::uint32_t remote_region,
               std::vector<PutOp> ops,
               Done done) {
  if (state_ != State::kUp) {
    report(std::move(done), fail(Errc::kUnavailable, "{} is not connected", remote_.node.node_id));
    return;
  }
  const auto region = regions_.find(remote_region);
  if (region == regions_.end() || remote_region == remote_.scratch_region) {
    report(std::move(done),
           fail(Errc::kOutOfRange, "{} has no region {}", remote_.node.node_id, remote_region));
    return;
  }
  if (Status s = check_ops(ops, local.bytes().size(), region->second.info.bytes); !s) {
    report(std::move(done), s.error());
    return;
  }
  enqueue(dynamic_cast<const UcxRegion&>(local).memory(),
          region->second,
          std::move(ops),
          std::move(done));
}

void Link::enqueue(std::shared_ptr<Memory> local,
                   const RemoteRegion& remote,
                   std::vector<PutOp> ops,
                   Done done) {
  auto batch = std::make_shared<Batch>();
  batch->number = batch_count_++;
  batch->local = std::move(local);
  batch->remote = &remote;
  batch->ops = std::move(ops);
  batch->done = std::move(done);
  batches_.push_back(std::move(batch));
  pump();
}

void Link::pump() {
  if (state_ != State::kUp && state_ != State::kTesting) {
    return;
  }
  std::uint64_t posted = 0;
  for (const auto& batch : batches_) {
    while (batch->next < batch->ops.size()) {
      if (puts_in_flight_ >= core_->options().put_depth || posted >= kBytesPerPump) {
        return;  // every operation that ends pumps again
      }
      posted += batch->ops[batch->next].bytes;
      post_put(batch);
    }
    if (batch->in_flight == 0 && !batch->flushing) {
      flush(batch);
    }
  }
}

void Link::post_put(const std::shared_ptr<Batch>& batch) {
  PutOp& rest = batch->ops[batch->next];
  PutOp op = rest;
  if (link_.emulated) {
    op.bytes = std::min(op.bytes, kEmulatedBytes);
  }
  rest = {rest.local_offset + op.bytes, rest.remote_offset + op.bytes, rest.bytes - op.bytes};
  if (rest.bytes == 0) {
    ++batch->next;
  }
  if (op.bytes == 0) {
    return;
  }
  ++batch->posted;
  ++batch->in_flight;
  ++puts_in_flight_;
  run(
      {},
      [this, batch](ucs_status_t status) {
        --batch->in_flight;
        --puts_in_flight_;
        if (status != UCS_OK) {
          lose(to_error(status, fmt::format("writing to {}", remote_.node.node_id)), true);
          return;
        }
        pump();
      },
      [&](Operation& operation, ucp_request_param_t& request) {
        request.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        request.memh = batch->local->handle();
        return link_.emulated ? put_emulated(*batch, op, operation, request)
                              : put_one_sided(*batch, op, request);
      });
}

ucs_status_ptr_t Link::put_one_sided(const Batch& batch,
                                     const PutOp& op,
                                     ucp_request_param_t& request) {
  return ucp_put_nbx(endpoint_,
                     batch.local->bytes().data() + op.local_offset,
                     op.bytes,
                     batch.remote->info.base + op.remote_offset,
                     batch.remote->rkey.get(),
                     &request);
}

/// Where the lanes have no one-sided writes, UCX would emulate them; its emulation ends the
/// *target's* process when the writer dies in the middle (1.13: "unexpected error" in
/// ucp_put_handler), and is slower than messages.
ucs_status_ptr_t Link::put_emulated(const Batch& batch,
                                    const PutOp& op,
                                    Operation& operation,
                                    ucp_request_param_t& request) {
  operation.header = {.link_id = remote_.link_id,
                      .sequence = batch.number,
                      .incarnation = core_->options().node.incarnation,
                      .kind = MessageHeader::Kind::kWrite,
                      .region = batch.remote->info.id,
                      .offset = op.remote_offset};
  return ucp_am_send_nbx(endpoint_,
                         kMessageId,
                         &operation.header,
                         sizeof(operation.header),
                         batch.local->bytes().data() + op.local_offset,
                         op.bytes,
                         &request);
}

void Link::flush(const std::shared_ptr<Batch>& batch) {
  batch->flushing = true;
  if (link_.emulated) {
    post_message(MessageHeader::Kind::kFence, batch->number, {}, batch->posted);
    return;  // ends with the peer's acknowledgement
  }
  run(
      {},
      [this, batch](ucs_status_t status) {
        if (state_ >= State::kDraining) {
          return;  // ends with the link
        }
        if (status != UCS_OK) {
          lose(to_error(status, fmt::format("writing to {}", remote_.node.node_id)), true);
          return;
        }
        finish(batch, {});
      },
      [this](Operation&, const ucp_request_param_t& request) {
        return ucp_ep_flush_nbx(endpoint_, &request);
      });
}

void Link::acknowledge(std::uint64_t number) {
  const auto it = std::find_if(batches_.begin(), batches_.end(), [&](const auto& batch) {
    return batch->number == number && batch->flushing;
  });
  if (it == batches_.end()) {
    lose(fail(Errc::kCorrupt, "{} acknowledged batch {}", remote_.node.node_id, number), true);
    return;
  }
  const auto batch = *it;
  finish(batch, {});
}

void Link::finish(const std::shared_ptr<Batch>& batch, const Status& status) {
  if (std::erase(batches_, batch) != 0) {
    const auto done = std::move(batch->done);
    done(status);
  }
}

void Link::report(Done done, Error error) {
  boost::asio::post(core_->io(),
                    [done = std::move(done), error = std::move(error)] { done(error); });
}

}  // namespace rift::transport::ucx
