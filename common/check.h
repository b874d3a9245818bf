// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace rift::detail {

/// Prints where and why an invariant broke, then aborts.
[[noreturn]] void check_failed(const char* file,
                               int line,
                               const char* expression,
                               std::string_view message);

}  // namespace rift::detail

/// Broken invariant between our own modules: logs and aborts in every build. Never for input, files
/// or peers (those are Error or Result).
#define RIFT_CHECK(cond, ...)                                                               \
  do {                                                                                      \
    if (!(cond)) [[unlikely]] {                                                             \
      ::rift::detail::check_failed(__FILE__, __LINE__, #cond, fmt::format("" __VA_ARGS__)); \
    }                                                                                       \
  } while (false)

#ifdef NDEBUG
#define RIFT_DCHECK(cond, ...) \
  do {                         \
  } while (false)
#else
#define RIFT_DCHECK(cond, ...) RIFT_CHECK(cond, __VA_ARGS__)
#endif
