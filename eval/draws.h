// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

namespace rift::eval {

/// Random indices that are the same for a seed everywhere: std::uniform_int_distribution and
/// std::shuffle differ between standard libraries. Thread: one.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}

  /// 0 to n - 1, each as likely. Precondition: n > 0.
  [[nodiscard]] std::size_t below(std::size_t n) {
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t limit = kMax - kMax % n;  // a multiple of n: no index is favoured
    std::uint64_t value = engine_();
    while (value >= limit) {
      value = engine_();
    }
    return static_cast<std::size_t>(value % n);
  }

  template <typename Value>
  void shuffle(std::vector<Value>& values) {
    for (std::size_t left = values.size(); left > 1; --left) {
      std::swap(values[left - 1], values[below(left)]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace rift::eval
