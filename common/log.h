// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <spdlog/fwd.h>

#include <string>
#include <string_view>

namespace rift {

/// Sends all logs to stderr, every line tagged with the node's name. level: trace, debug, info,
/// warn, error, off; empty reads RIFT_LOG, then "info". Errors (thrown): kInvalidArgument.
void init_logging(const std::string& node, std::string_view level);

/// The process's logger; works before init_logging too. Thread: any.
[[nodiscard]] spdlog::logger& log();

}  // namespace rift
