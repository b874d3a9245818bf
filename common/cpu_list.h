// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

namespace rift {

/// CPUs that this thread may run on, ascending.
[[nodiscard]] std::vector<int> available_cpus();

/// "0-3,8" as numbers in that order, each once.
/// Errors (thrown): kInvalidArgument for other text; kNotFound naming the CPUs that this thread may
/// not run on, and those it may.
[[nodiscard]] std::vector<int> parse_cpu_list(std::string_view text);

/// `wanted`, or where it is 0 one thread for each of `cpus`, or of available_cpus() if that is
/// empty.
[[nodiscard]] int thread_count(int wanted, const std::vector<int>& cpus);

/// The calling thread, and those that it starts from now on, run on these CPUs only. Not empty.
/// Errors (thrown): kInvalidArgument where none of them exists.
void run_this_thread_on(const std::vector<int>& cpus);

}  // namespace rift
