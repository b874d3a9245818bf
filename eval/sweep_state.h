// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/types.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace rift::eval {

/// Finished measurements of a sweep in a file, one JSON object a line, so that an interrupted sweep
/// goes on where it stopped. A line that the end of a process has cut is ignored. Thread: one at a
/// time.
class SweepState {
 public:
  /// Errors (thrown): kIo, when the file cannot be written.
  explicit SweepState(std::filesystem::path file);

  [[nodiscard]] std::optional<Measurement> find(const std::string& key) const;
  /// Errors (thrown): kIo.
  void add(const std::string& key, const Measurement& measurement);

 private:
  std::filesystem::path file_;
  std::map<std::string, Measurement> known_;
};

/// 64-bit FNV-1a over everything that decides a measurement, as hex digits.
class KeyHash {
 public:
  KeyHash& add(std::string_view text);
  KeyHash& add(std::span<const TokenId> tokens);
  [[nodiscard]] std::string hex() const;

 private:
  void add_byte(unsigned char byte);
  std::uint64_t state_ = 0xCBF29CE484222325U;
};

}  // namespace rift::eval
