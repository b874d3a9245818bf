// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

namespace rift::model {

/// Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629: no overlong forms,
/// no surrogates, nothing above U+10FFFF); text.size() where all of it is well-formed.
[[nodiscard]] std::size_t first_invalid_utf8(std::string_view text);

[[nodiscard]] inline bool is_utf8(std::string_view text) {
  return first_invalid_utf8(text) == text.size();
}

}  // namespace rift::model
