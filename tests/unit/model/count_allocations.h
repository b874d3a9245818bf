// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rift::model {

/// Calls of operator new in this program so far, all threads.
[[nodiscard]] std::int64_t allocations();

}  // namespace rift::model
