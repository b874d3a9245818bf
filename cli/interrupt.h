// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rift::cli {

/// Notes SIGINT and SIGTERM from now on; blocking calls return early.
void catch_interrupts();
[[nodiscard]] bool interrupted();

}  // namespace rift::cli
