// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

namespace rift::cli {

/// Streams the one member of a wheel whose path ends in /`member` to `sink`, unpacked; gives its
/// size. Errors (thrown): kCorrupt (not a wheel, damaged, larger than max_bytes), kNotFound (no
/// such member; the message lists the largest one), and whatever `sink` throws.
std::uint64_t extract_member(const std::filesystem::path& wheel,
                             std::string_view member,
                             std::uint64_t max_bytes,
                             const std::function<void(std::span<const std::byte>)>& sink);

}  // namespace rift::cli
