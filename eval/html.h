// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rift::eval {

/// Text as it may stand between tags and in quoted attributes. Control characters and broken UTF-8
/// become U+FFFD. Thread: any (pure).
[[nodiscard]] std::string escape_html(std::string_view text);

/// A table whose first column names the row. Texts are not escaped yet. Value type.
struct HtmlTable {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // each of columns.size()
};
/// Escaped, in a box that scrolls sideways on narrow screens.
[[nodiscard]] std::string to_html(const HtmlTable& table);

}  // namespace rift::eval
