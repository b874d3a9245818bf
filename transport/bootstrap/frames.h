// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace rift::transport::bootstrap {

/// Raised with every change that an older node would misread.
inline constexpr std::uint32_t kProtocolVersion = 1;
inline constexpr std::uint64_t kMaxFrameBytes = 1U << 20U;

/// A region that the peer may write to.
struct RegionInfo {
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t base = 0;  // address in the owner's process
  std::vector<std::byte> rkey;
  bool operator==(const RegionInfo&) const = default;
};

/// First frame of each side.
struct Hello {
  std::uint32_t protocol = kProtocolVersion;
  NodeInfo node;
  std::string ucx_version;
  std::uint64_t link_id = 0;  // names this connection in active messages to its sender
  std::vector<std::byte> worker_address;
  std::vector<RegionInfo> regions;
  std::uint32_t scratch_region = 0;  // of `regions`: where the self-test is written
};

struct HelloAck {};
/// The sender ends the connection, and why.
struct Refuse {
  Errc code = Errc::kInternal;
  std::string message;
};
struct Heartbeat {};
/// The pattern of the self-test arrived intact.
struct Checked {};
/// No more than `messages` control messages were or will be sent.
struct Close {
  std::uint64_t messages = 0;
};
struct CloseAck {};

using Frame = std::variant<Hello, HelloAck, Refuse, Heartbeat, Checked, Close, CloseAck>;

/// Thread: any (pure).
[[nodiscard]] std::vector<std::byte> encode_frame(const Frame& frame);
/// Errors: kOutOfRange (over kMaxFrameBytes), kCorrupt, kUnsupported (another protocol version).
[[nodiscard]] Result<Frame> decode_frame(std::span<const std::byte> bytes);

}  // namespace rift::transport::bootstrap
