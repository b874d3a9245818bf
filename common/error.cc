// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"

namespace rift {

std::string_view to_string(Errc code) {
  switch (code) {
    case Errc::kInvalidArgument:
      return "invalid argument";
    case Errc::kNotFound:
      return "not found";
    case Errc::kCorrupt:
      return "corrupt";
    case Errc::kUnsupported:
      return "unsupported";
    case Errc::kOutOfRange:
      return "out of range";
    case Errc::kResourceExhausted:
      return "resource exhausted";
    case Errc::kMismatch:
      return "mismatch";
    case Errc::kUnavailable:
      return "unavailable";
    case Errc::kTimeout:
      return "timeout";
    case Errc::kCancelled:
      return "cancelled";
    case Errc::kPermission:
      return "permission denied";
    case Errc::kIo:
      return "i/o error";
    case Errc::kInternal:
      return "internal error";
  }
  return "unknown";
}

}  // namespace rift
