// SPDX-License-Identifier: Apache-2.0
#include "model/json_file.h"

#include "common/error.h"
#include "model/mapped_file.h"

#include <boost/json/error.hpp>
#include <boost/json/stream_parser.hpp>

#include <algorithm>

namespace rift::model {

boost::json::value parse_json(std::string_view text, std::string_view name) {
  boost::json::parse_options options;
  options.max_depth = 32;
  boost::json::stream_parser parser({}, options);
  boost::system::error_code error;
  const std::size_t read = parser.write_some(text.data(), text.size(), error);
  if (!error && !parser.done()) {
    parser.finish(error);
  }
  if (error == boost::json::error::incomplete) {
    throw fail(Errc::kCorrupt, "{}: the JSON text is empty or ends too early", name);
  }
  const std::string_view rest = text.substr(std::min(read, text.size()));
  const bool trailing = rest.find_first_not_of(" \t\r\n") != std::string_view::npos;
  if (error || trailing) {
    const std::string_view before = text.substr(0, read);
    const auto line = 1 + std::ranges::count(before, '\n');
    const std::size_t column = before.size() - (before.rfind('\n') + 1) + 1;
    throw fail(Errc::kCorrupt,
               "{}: not valid JSON at line {}, column {}: {}",
               name,
               line,
               column,
               error ? error.message() : "text after the end of the document");
  }
  return parser.release();
}

boost::json::value read_json(const std::filesystem::path& path, std::size_t max_bytes) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  if (bytes.size() > max_bytes) {
    throw fail(Errc::kCorrupt,
               "{} has {} bytes, more than the {} such a file may have",
               path.string(),
               bytes.size(),
               max_bytes);
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

}  // namespace rift::model
