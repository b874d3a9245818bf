// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace rift::bench {

/// Add `model` and `kernels` to `rift bench`; what cannot be measured leaves as rift::Error.
void add_model_bench(CLI::App& bench);
void add_kernels_bench(CLI::App& bench);

}  // namespace rift::bench
