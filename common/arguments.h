// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rift {

/// A program's arguments for CLI::App::parse, which takes the last one first. "-md", as the field
/// writes the draft model, is not a short flag to CLI11: it becomes "--md".
[[nodiscard]] std::vector<std::string> command_line(int argc, const char* const* argv);

}  // namespace rift
