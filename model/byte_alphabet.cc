// SPDX-License-Identifier: Apache-2.0
#include "model/byte_alphabet.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace rift::model {
namespace {

constexpr std::size_t kCodePoints = 256 + 68;  // 68 bytes are not printable
constexpr std::int16_t kNoByte = -1;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<std::int16_t, kCodePoints> make_bytes() {
  std::array<std::int16_t, kCodePoints> bytes{};
  bytes.fill(kNoByte);
  std::size_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const std::size_t code_point = stands_for_itself(byte) ? byte : next++;
    bytes[code_point] = static_cast<std::int16_t>(byte);
  }
  return bytes;
}

constexpr auto kBytes = make_bytes();

}  // namespace

std::optional<std::string> bytes_of_token_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::size_t code_point = static_cast<unsigned char>(text[i]);
    if (code_point >= 0x80) {
      // All code points of the alphabet have one or two bytes in UTF-8.
      const bool two = code_point >= 0xC2 && code_point <= 0xDF && i + 1 < text.size();
      const std::size_t low = two ? static_cast<unsigned char>(text[++i]) : 0;
      if ((low & 0xC0) != 0x80) {
        return std::nullopt;
      }
      code_point = ((code_point & 0x1F) << 6) | (low & 0x3F);
    }
    if (code_point >= kCodePoints || kBytes[code_point] == kNoByte) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(kBytes[code_point]));
  }
  return out;
}

}  // namespace rift::model
