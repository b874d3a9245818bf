// SPDX-License-Identifier: Apache-2.0
#include "eval/html.h"

#include "model/utf8.h"

#include <fmt/format.h>

namespace rift::eval {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&#39;";
      return;
    case '\t':
    case '\n':
      out += c;
      return;
    default:
      break;
  }
  if (static_cast<unsigned char>(c) < 0x20 || c == '\x7F') {
    out += kReplacement;
  } else {
    out += c;
  }
}

void append_cells(std::string& out, const std::vector<std::string>& cells, bool header) {
  out += "<tr>";
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string_view open = header ? "<th scope=\"col\">" : "<td>";
    const bool names_row = !header && i == 0;
    out += names_row ? "<th scope=\"row\">" : open;
    out += escape_html(cells[i]);
    out += header || names_row ? "</th>" : "</td>";
  }
  out += "</tr>\n";
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = model::first_invalid_utf8(text);
    for (const char c : text.substr(0, valid)) {
      append_escaped(out, c);
    }
    text.remove_prefix(valid);
    if (!text.empty()) {
      out += kReplacement;
      text.remove_prefix(1);
    }
  }
  return out;
}

std::string to_html(const HtmlTable& table) {
  // Not a <caption>: that would be as wide as the table and scroll away with it.
  std::string out = fmt::format(
      "<p class=\"caption\">{0}</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
      "aria-label=\"{0}\"><table aria-label=\"{0}\">\n<thead>",
      escape_html(table.caption));
  append_cells(out, table.columns, true);
  out += "</thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    append_cells(out, row, false);
  }
  return out + "</tbody>\n</table></div>\n";
}

}  // namespace rift::eval
