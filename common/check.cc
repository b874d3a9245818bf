// SPDX-License-Identifier: Apache-2.0
#include "common/check.h"

#include <cstdio>
#include <cstdlib>

namespace rift::detail {

void check_failed(const char* file, int line, const char* expression, std::string_view message) {
  fmt::print(stderr, "{}:{}: check failed: {}: {}\n", file, line, expression, message);
  std::abort();
}

}  // namespace rift::detail
