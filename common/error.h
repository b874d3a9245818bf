// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/check.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace rift {

enum class Errc {
  kInvalidArgument,    // the caller asked for something that cannot be
  kNotFound,           // file, model, session or peer does not exist
  kCorrupt,            // bytes break their own format
  kUnsupported,        // well-formed, but not implemented
  kOutOfRange,         // index or size beyond a stated limit
  kResourceExhausted,  // does not fit the memory, the budget or the context
  kMismatch,           // two sides differ where they must not
  kUnavailable,        // the peer or the library is gone
  kTimeout,            // a deadline passed
  kCancelled,          // stopped by request
  kPermission,         // authentication failed or not allowed
  kIo,                 // the operating system said no
  kInternal,           // a bug of ours, caught at a boundary
};

/// Stable lower-case name, as printed in messages and metrics.
[[nodiscard]] std::string_view to_string(Errc code);

/// Failure of a set-up or control path. The message states what, with which values, and what the
/// reader can do. Value type.
class Error : public std::exception {
 public:
  Error(Errc code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] Errc code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  Errc code_;
  std::string message_;
};

/// `throw fail(Errc::kCorrupt, "tensor {} ends past the file", name);`
template <typename... Args>
[[nodiscard]] Error fail(Errc code, fmt::format_string<Args...> format, Args&&... args) {
  return {code, fmt::format(format, std::forward<Args>(args)...)};
}

/// Expected failure on the data path: a value or an Error. value() on an error is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  [[nodiscard]] T& value() & {
    RIFT_CHECK(ok(), "{}", error().message());
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    RIFT_CHECK(ok(), "{}", error().message());
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && { return std::move(value()); }
  [[nodiscard]] const Error& error() const { return std::get<1>(state_); }

  /// The value, or the error thrown: for control paths that call data-path functions.
  T value_or_throw() && {
    if (!ok()) {
      throw error();
    }
    return std::move(value());
  }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] const Error& error() const { return *error_; }
  void value_or_throw() const {
    if (error_) {
      throw *error_;
    }
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace rift
