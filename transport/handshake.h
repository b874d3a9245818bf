// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "transport/transport.h"

#include <string>
#include <vector>

namespace rift::transport {

/// Whether two nodes may work together: roles that talk to each other, the same model (draft and
/// score) or tokenizer (target and draft). Errors: kMismatch naming the first difference with the
/// values of both sides.
[[nodiscard]] Status check_compatible(const NodeInfo& self, const NodeInfo& peer);

/// Whether a link may be used under `require_transport` (empty: any). A lane fits when its
/// transport, the part before '/', is the required one or starts with it ("rc" takes "rc_mlx5").
/// Errors: kMismatch listing the lanes.
[[nodiscard]] Status check_lanes(const LinkInfo& link, const std::string& require_transport);

/// Whether every op lies in both regions. Errors: kOutOfRange with the numbers of the first that
/// does not.
[[nodiscard]] Status check_ops(const std::vector<PutOp>& ops,
                               std::uint64_t local_bytes,
                               std::uint64_t remote_bytes);

}  // namespace rift::transport
