// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"

#include <boost/json/object.hpp>

#include <string>
#include <vector>

namespace rift::bench {

/// What plain loops on all threads of a pool reach on this machine, in this moment.
struct MachineLimits {
  double read_bytes = 0.0;  // a second; sums 512 MiB in huge pages
  /// Two a product. Of the instructions that quantised matmuls of the target in use multiply with:
  /// vpdpbusd where it has them, multiply pairs, widen, add with AVX2; 0 for scalar code.
  double int8_ops = 0.0;
  double f32_ops = 0.0;   // fused multiply-add, two an element; 0 for scalar code
  std::string int8_loop;  // which instructions
  [[nodiscard]] boost::json::object to_json() const;
};

/// Takes about a quarter of a second.
[[nodiscard]] MachineLimits measure_limits(ThreadPool& pool);

/// The middle value; of an even number the mean of the two in the middle. Not empty.
[[nodiscard]] double median(std::vector<double> values);

/// `value` as a line to `file`, - for stdout; nothing where `file` is empty. Errors (thrown): kIo.
void write_json(const std::string& file, const boost::json::value& value);

/// Where people read: stdout, unless a script reads the figures there.
[[nodiscard]] std::FILE* table_for(const std::string& json_file);

}  // namespace rift::bench
