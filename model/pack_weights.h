// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/weights.h"

#include <memory>

namespace rift::model {

/// The same weights with every quantised matrix in the order that this machine's kernels read
/// (kernels::pack): faster, same bits, same bytes but for whole panels. Takes its own memory, a
/// matrix at a time, and gives the file's pages back. `weights` itself where nothing is packed.
/// Errors (thrown): kResourceExhausted.
[[nodiscard]] std::shared_ptr<const Weights> pack_weights(
    const std::shared_ptr<const Weights>& weights, int threads);

}  // namespace rift::model
