// SPDX-License-Identifier: Apache-2.0
#include "common/arguments.h"

#include <string_view>

namespace rift {

std::vector<std::string> command_line(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int i = argc - 1; i >= 1; --i) {
    const std::string_view argument = argv[i];
    const bool draft_model = argument == "-md" || argument.substr(0, 4) == "-md=";
    std::string& added = arguments.emplace_back(draft_model ? "-" : "");
    added += argument;
  }
  return arguments;
}

}  // namespace rift
