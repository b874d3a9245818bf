// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/ucx/core.h"
#include "transport/ucx/link.h"

#include <utility>

// Private to the sources of Link.
namespace rift::transport::ucx {

template <typename Call>
void Link::run(std::vector<std::byte> bytes,
               std::function<void(ucs_status_t)> on_end,
               Call&& call) {
  auto operation = std::make_unique<Operation>();
  operation->bytes = std::move(bytes);
  ++operations_;
  operation->on_end = [self = shared_from_this(), on_end = std::move(on_end)](ucs_status_t status) {
    --self->operations_;
    on_end(status);
    self->finish_draining();
  };
  core_->engine().run(std::move(operation), std::forward<Call>(call));
}

}  // namespace rift::transport::ucx
