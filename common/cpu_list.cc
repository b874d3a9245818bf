// SPDX-License-Identifier: Apache-2.0
#include "common/cpu_list.h"

#include "common/error.h"

#include <fmt/ranges.h>

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <system_error>

namespace rift {
namespace {

/// A set of any size: machines have more CPUs than cpu_set_t has bits.
constexpr int kMostCpus = 8192;

class CpuSet {
 public:
  CpuSet() : bits_(CPU_ALLOC_SIZE(kMostCpus) / sizeof(cpu_set_t)) {}
  [[nodiscard]] cpu_set_t* data() { return bits_.data(); }
  [[nodiscard]] std::size_t bytes() const { return bits_.size() * sizeof(cpu_set_t); }

 private:
  std::vector<cpu_set_t> bits_;
};

[[noreturn]] void refuse(std::string_view text) {
  throw fail(
      Errc::kInvalidArgument, "'{}' is not a list of CPUs: give numbers and ranges, 0-3,8", text);
}

int parse_cpu(std::string_view number, std::string_view text) {
  int cpu = -1;
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, cpu);
  if (parsed.ec != std::errc() || parsed.ptr != end || cpu < 0 || cpu >= kMostCpus) {
    refuse(text);
  }
  return cpu;
}

}  // namespace

std::vector<int> available_cpus() {
  CpuSet set;
  std::vector<int> out;
  if (::sched_getaffinity(0, set.bytes(), set.data()) != 0) {
    throw fail(Errc::kIo, "the CPUs of this process: {}", std::strerror(errno));
  }
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), set.bytes(), set.data())) {
      out.push_back(cpu);
    }
  }
  return out;
}

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> out;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t dash = item.find('-');
    const int first = parse_cpu(item.substr(0, dash), text);
    const int last =
        dash == std::string_view::npos ? first : parse_cpu(item.substr(dash + 1), text);
    if (last < first) {
      refuse(text);
    }
    for (int cpu = first; cpu <= last; ++cpu) {
      if (std::find(out.begin(), out.end(), cpu) == out.end()) {
        out.push_back(cpu);
      }
    }
    if (comma == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(comma + 1);
  }
  const std::vector<int> available = available_cpus();
  std::vector<int> unknown;
  std::copy_if(out.begin(), out.end(), std::back_inserter(unknown), [&](int cpu) {
    return !std::binary_search(available.begin(), available.end(), cpu);
  });
  if (!unknown.empty()) {
    throw fail(Errc::kNotFound,
               "CPU {} is not there, or not for this process; it has {}",
               fmt::join(unknown, ","),
               fmt::join(available, ","));
  }
  return out;
}

int thread_count(int wanted, const std::vector<int>& cpus) {
  return wanted != 0 ? wanted
                     : static_cast<int>(std::ssize(cpus.empty() ? available_cpus() : cpus));
}

void run_this_thread_on(const std::vector<int>& cpus) {
  CpuSet set;
  for (const int cpu : cpus) {
    CPU_SET_S(static_cast<std::size_t>(cpu), set.bytes(), set.data());
  }
  if (::sched_setaffinity(0, set.bytes(), set.data()) != 0) {
    throw fail(Errc::kInvalidArgument,
               "cannot run on CPU {}: {}",
               fmt::join(cpus, ","),
               std::strerror(errno));
  }
}

}  // namespace rift
