// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace rift {

/// Monotonic time. Cores get it as an argument; only services read the clock.
using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Nanoseconds = std::chrono::nanoseconds;

[[nodiscard]] inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace rift
