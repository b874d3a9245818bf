// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/types.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// Private to transport/wire: what both codecs do with Cap'n Proto.
namespace rift::transport::detail {

/// Text between nodes is UTF-8 without NUL: Cap'n Proto's conversion from std::string ends there.
[[nodiscard]] bool is_utf8(std::string_view text);
/// `text` with every byte that is not part of such text replaced by '?'.
[[nodiscard]] std::string to_utf8(std::string_view text);

[[nodiscard]] std::vector<std::byte> flatten(capnp::MessageBuilder& builder);

/// Copies `bytes` to aligned memory and calls `read(reader)` on it under strict limits; whatever
/// it throws becomes an Error. `read` returns T.
template <typename T, typename Read>
[[nodiscard]] Result<T> read_frame(std::span<const std::byte> bytes,
                                   std::uint64_t max_bytes,
                                   Read&& read) {
  constexpr std::size_t kWord = sizeof(capnp::word);
  constexpr int kNesting = 12;
  if (bytes.size() > max_bytes) {
    return fail(Errc::kOutOfRange, "frame of {} bytes; the limit is {}", bytes.size(), max_bytes);
  }
  if (bytes.size() < kWord || bytes.size() % kWord != 0) {
    return fail(Errc::kCorrupt, "frame of {} bytes is not whole words", bytes.size());
  }
  try {
    const std::size_t words = bytes.size() / kWord;
    auto aligned = kj::heapArray<capnp::word>(words);
    std::memcpy(aligned.begin(), bytes.data(), bytes.size());
    capnp::ReaderOptions options;
    options.traversalLimitInWords = 4 * words + 64;
    options.nestingLimit = kNesting;
    capnp::FlatArrayMessageReader reader(aligned, options);
    return std::forward<Read>(read)(reader);
  } catch (const Error& error) {
    return error;
  } catch (const kj::Exception& error) {
    return fail(Errc::kCorrupt, "malformed frame: {}", error.getDescription().cStr());
  } catch (const std::exception& error) {
    return fail(Errc::kCorrupt, "malformed frame: {}", error.what());
  }
}

/// Throws kCorrupt naming the field when `value` is outside [low, high].
template <typename T>
T in_range(T value, T low, T high, std::string_view field) {
  if (!(value >= low && value <= high)) {
    throw fail(Errc::kCorrupt, "{} = {}, expected {} to {}", field, value, low, high);
  }
  return value;
}

inline std::int32_t not_negative(std::int32_t value, std::string_view field) {
  return in_range(value, 0, std::numeric_limits<std::int32_t>::max(), field);
}

inline float finite(float value, std::string_view field) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return in_range(value, -kMax, kMax, field);
}

/// The enumerator with this number; `last` is the highest that exists.
template <typename E>
E to_enum(std::uint16_t value, E last, std::string_view field) {
  in_range<unsigned>(value, 0, static_cast<unsigned>(last), field);
  return static_cast<E>(value);
}

inline std::string to_text(capnp::Text::Reader text,
                           std::size_t max_bytes,
                           std::string_view field) {
  in_range<std::size_t>(text.size(), 0, max_bytes, field);
  const std::string_view view{text.cStr(), text.size()};
  if (!is_utf8(view)) {
    throw fail(Errc::kCorrupt, "{} is not UTF-8 without NUL", field);
  }
  return std::string(view);
}

}  // namespace rift::transport::detail
