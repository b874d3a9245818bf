// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cpu_ops.h"

#include "common/error.h"
#include "kernels/ops.h"

#include <cstdlib>
#include <string>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rift::kernels {
namespace {

constexpr CpuOps kTargets[] = {
    {"scalar", &kMatmulScalar, &kAttentionScalar, &kElementwiseScalar},
#if defined(__x86_64__)
    {"avx2", &kMatmulAvx2, &kAttentionAvx2, &kElementwiseAvx2},
    // Element by element there is nothing to gain over memory: those are AVX2's.
    {"avx512", &kMatmulAvx512, &kAttentionAvx512, &kElementwiseAvx2},
#endif
};

#if defined(__x86_64__)
// Not every compiler knows "f16c" by name.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

bool runs_here(std::string_view name) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  if (name == "avx2") {
    return avx2;
  }
  if (name == "avx512") {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
  }
#endif
  return name == "scalar";
}

// The one global of kernels/: which instructions the machine has does not change.
const CpuOps*& current() {
  static const CpuOps* ops = &choose_cpu_ops(std::getenv("RIFT_CPU_TARGET"));
  return ops;
}

}  // namespace

const CpuOps& choose_cpu_ops(const char* wanted) {
  if (wanted != nullptr && *wanted != '\0') {
    if (const CpuOps* ops = find_cpu_ops(wanted); ops != nullptr) {
      return *ops;
    }
    std::string usable;
    for (const CpuOps& target : kTargets) {
      if (runs_here(target.name)) {
        usable += std::string(usable.empty() ? "" : ", ") + target.name;
      }
    }
    throw fail(Errc::kInvalidArgument,
               "RIFT_CPU_TARGET = \"{}\" is unknown or needs instructions that this machine lacks; "
               "unset it or use one of {}",
               wanted,
               usable);
  }
  const CpuOps* best = nullptr;
  for (const CpuOps& target : kTargets) {
    best = runs_here(target.name) ? &target : best;
  }
  return *best;
}

const CpuOps& cpu_ops() { return *current(); }

const CpuOps* find_cpu_ops(const char* name) {
  for (const CpuOps& target : kTargets) {
    if (std::string_view(target.name) == name && runs_here(name)) {
      return &target;
    }
  }
  return nullptr;
}

void set_cpu_ops_for_test(const CpuOps& ops) { current() = &ops; }

std::string_view cpu_target() { return cpu_ops().name; }

}  // namespace rift::kernels
