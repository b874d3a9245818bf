// SPDX-License-Identifier: Apache-2.0
#include "common/log.h"

#include "common/error.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace rift {
namespace {

std::shared_ptr<spdlog::logger>& instance() {
  static std::shared_ptr<spdlog::logger> logger = spdlog::stderr_color_mt("rift");
  return logger;
}

}  // namespace

void init_logging(const std::string& node, std::string_view level) {
  std::string name(level);
  if (name.empty()) {
    const char* env =
        std::getenv("RIFT_LOG");  // NOLINT(concurrency-mt-unsafe): before threads start
    name = env != nullptr ? env : "info";
  }
  const spdlog::level::level_enum parsed = spdlog::level::from_str(name);
  if (parsed == spdlog::level::off && name != "off") {
    throw fail(Errc::kInvalidArgument,
               "log level '{}': known are trace, debug, info, warn, error, off",
               name);
  }
  instance()->set_level(parsed);
  instance()->set_pattern("%H:%M:%S.%e %^%l%$ [" + node + "] %v");
}

spdlog::logger& log() { return *instance(); }

}  // namespace rift
