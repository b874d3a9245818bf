// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace rift::cli {

/// Writes text and a newline to a file; "-": to stdout. Errors (thrown): kIo.
void write_file(const std::string& path, const std::string& text);
/// Before minutes of work whose figures would then be lost. Empty and "-" are always writable.
/// Errors (thrown): kIo.
void check_writable(const std::string& path);

}  // namespace rift::cli
