// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "transport/messages.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace rift::transport {

/// Largest control message that any node accepts, unless told otherwise.
inline constexpr std::uint64_t kMaxMessageBytes = 64U << 20U;

/// The message as an unpacked Cap'n Proto frame. NUL and bytes of strings that are not UTF-8 become
/// '?'. Thread: any (pure). Cost: O(size).
[[nodiscard]] std::vector<std::byte> encode(const Message& message);

/// Reads a frame that a peer sent. Every list is bounded by the frame, every enum and number is in
/// its range, every string is UTF-8 without NUL; the caller still checks values against its own
/// state. `bytes` may be unaligned. Errors: kOutOfRange (larger than `max_bytes`), kCorrupt.
/// Thread: any.
[[nodiscard]] Result<Message> decode(std::span<const std::byte> bytes,
                                     std::uint64_t max_bytes = kMaxMessageBytes);

}  // namespace rift::transport
