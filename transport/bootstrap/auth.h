// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace rift::transport::bootstrap {

using Nonce = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

enum class Side : std::uint8_t { kListener, kConnector };

/// Random bytes from the system. Errors (thrown): kInternal.
void fill_random(std::span<std::byte> out);

/// HMAC-SHA256(secret, side, nonce of the listener, nonce of the connector): shows that `side`
/// knows the secret, for this connection only.
[[nodiscard]] Proof prove(std::string_view secret,
                          Side side,
                          const Nonce& listener,
                          const Nonce& connector);

/// In constant time.
[[nodiscard]] bool same(const Proof& a, const Proof& b);

}  // namespace rift::transport::bootstrap
