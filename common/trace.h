// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rift {

/// Writes Chrome/Perfetto trace events of one node: a JSON array, one event a line, readable too
/// when the process ended in the middle. Times are the machine's monotonic clock, so that the files
/// of one machine's nodes can be joined. Thread: any.
class Trace {
 public:
  using Args = std::initializer_list<std::pair<std::string_view, std::int64_t>>;

  /// Errors (thrown): kIo.
  Trace(const std::filesystem::path& path, std::string_view node);

  /// One slice on the track `track` of this node.
  void span(std::string_view track,
            std::string_view name,
            TimePoint begin,
            TimePoint end,
            Args args = {});

 private:
  int track_id(std::string_view track);
  void write_line(const std::string& line);

  struct Close {
    void operator()(std::FILE* file) const;
  };
  std::mutex mutex_;
  std::unique_ptr<std::FILE, Close> file_;
  std::int64_t pid_;
  std::vector<std::string> tracks_;
  bool first_ = true;
};

/// Joins trace files into one and removes them. Files that do not exist are left out.
/// Errors (thrown): kIo.
void merge_traces(const std::vector<std::filesystem::path>& parts,
                  const std::filesystem::path& out);

}  // namespace rift
