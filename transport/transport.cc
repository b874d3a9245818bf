// SPDX-License-Identifier: Apache-2.0
#include "transport/transport.h"

#include "common/log.h"
#include "transport/handshake.h"

#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <string_view>

namespace rift::transport {
namespace {

Status same(std::string_view what,
            const NodeInfo& self,
            const std::string& ours,
            const NodeInfo& peer,
            const std::string& theirs) {
  if (ours == theirs) {
    return {};
  }
  return fail(Errc::kMismatch,
              "{} differs: {} has '{}', {} has '{}'; start both with the same model",
              what,
              self.node_id,
              ours,
              peer.node_id,
              theirs);
}

std::string describe(const KvGeometry& geometry) {
  return fmt::format("{} layers x {} KV heads x {} of {}",
                     geometry.layers,
                     geometry.kv_heads,
                     geometry.head_dim,
                     to_string(geometry.dtype));
}

bool fits(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
  return bytes <= size && offset <= size - bytes;
}

}  // namespace

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kTarget:
      return "target";
    case Role::kDraft:
      return "draft";
    case Role::kScore:
      return "score";
  }
  return "unknown";
}

NodeInfo make_node_info(Role role, const std::string& node_id) {
  NodeInfo info;
  info.role = role;
  info.node_id = node_id;
  info.version = RIFT_VERSION;
  std::random_device random;
  std::generate(info.incarnation.begin(), info.incarnation.end(), [&random] {
    return static_cast<std::uint8_t>(random());
  });
  return info;
}

void log_loss(const std::string& what, const Error& error) {
  if (error.code() == Errc::kCancelled) {
    log().info("{} left", what);
  } else {
    log().warn("{} lost: {}", what, error.message());
  }
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || text.starts_with("[]")) {
    return fail(Errc::kInvalidArgument, "'{}' is not host:port", text);
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']' && host.size() > 2) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return fail(Errc::kInvalidArgument, "'{}': write an IPv6 address as [address]:port", text);
  }
  Endpoint out{.host = std::string(host), .port = 0};
  const char* const last = port.data() + port.size();
  const auto [end, error] = std::from_chars(port.data(), last, out.port);
  if (error != std::errc{} || end != last || port.empty()) {
    return fail(Errc::kInvalidArgument, "'{}': port '{}' is not 0 to 65535", text, port);
  }
  return out;
}

Status check_compatible(const NodeInfo& self, const NodeInfo& peer) {
  const auto is = [&](Role a, Role b) {
    return (self.role == a && peer.role == b) || (self.role == b && peer.role == a);
  };
  if (is(Role::kTarget, Role::kDraft)) {
    return same("tokenizer", self, self.tokenizer_hash, peer, peer.tokenizer_hash);
  }
  if (is(Role::kDraft, Role::kScore)) {
    if (Status s = same("model", self, self.model_fingerprint, peer, peer.model_fingerprint); !s) {
      return s;
    }
    return same("KV geometry", self, describe(self.geometry), peer, describe(peer.geometry));
  }
  return fail(Errc::kMismatch,
              "a {} node ({}) does not talk to a {} node ({})",
              to_string(self.role),
              self.node_id,
              to_string(peer.role),
              peer.node_id);
}

Status check_lanes(const LinkInfo& link, const std::string& require_transport) {
  const auto fitting = [&](const std::string& lane) {
    return lane.substr(0, lane.find('/')).starts_with(require_transport);
  };
  if (require_transport.empty() || std::any_of(link.lanes.begin(), link.lanes.end(), fitting)) {
    return {};
  }
  return fail(Errc::kMismatch,
              "transport '{}' is required, but the lanes are [{}]; check UCX_TLS and "
              "UCX_NET_DEVICES on both nodes",
              require_transport,
              fmt::join(link.lanes, ", "));
}

Status check_ops(const std::vector<PutOp>& ops,
                 std::uint64_t local_bytes,
                 std::uint64_t remote_bytes) {
  for (const PutOp& op : ops) {
    if (!fits(op.local_offset, op.bytes, local_bytes)) {
      return fail(Errc::kOutOfRange,
                  "write of {} bytes from offset {} of a local region of {} bytes",
                  op.bytes,
                  op.local_offset,
                  local_bytes);
    }
    if (!fits(op.remote_offset, op.bytes, remote_bytes)) {
      return fail(Errc::kOutOfRange,
                  "write of {} bytes to offset {} of a peer's region of {} bytes",
                  op.bytes,
                  op.remote_offset,
                  remote_bytes);
    }
  }
  return {};
}

}  // namespace rift::transport
