// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/json/value.hpp>

#include <filesystem>
#include <string_view>

namespace rift::model {

/// Parses a JSON document of a checkpoint, nested at most 32 deep; `name` is used in messages.
/// Errors (thrown): kCorrupt with the line and column of the first wrong byte.
[[nodiscard]] boost::json::value parse_json(std::string_view text, std::string_view name);

/// As parse_json, for a file of at most `max_bytes`. Errors (thrown): also kNotFound, kIo.
[[nodiscard]] boost::json::value read_json(const std::filesystem::path& path,
                                           std::size_t max_bytes);

}  // namespace rift::model
