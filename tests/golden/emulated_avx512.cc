// SPDX-License-Identifier: Apache-2.0
// Linked into a test program: has it compute with AVX-512 emulated.
#include "tests/unit/kernels/fixture.h"

namespace rift::kernels {
namespace {

[[maybe_unused]] const bool kIsSet = [] {
  const CpuOps* ops = find_tested_ops(kEmulated.name);
  if (ops != nullptr) {
    set_cpu_ops_for_test(*ops);
  }
  return ops != nullptr;
}();

}  // namespace
}  // namespace rift::kernels
