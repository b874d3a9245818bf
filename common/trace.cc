// SPDX-License-Identifier: Apache-2.0
#include "common/trace.h"

#include "common/error.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>

namespace rift {
namespace {

double microseconds(TimePoint time) {
  return std::chrono::duration<double, std::micro>(time.time_since_epoch()).count();
}

}  // namespace

void Trace::Close::operator()(std::FILE* file) const {
  std::fputs("\n]\n", file);
  std::fclose(file);
}

Trace::Trace(const std::filesystem::path& path, std::string_view node)
    : file_(std::fopen(path.c_str(), "w")), pid_(::getpid()) {
  if (file_ == nullptr) {
    throw fail(Errc::kIo, "cannot write the trace {}: {}", path.string(), std::strerror(errno));
  }
  std::fputs("[\n", file_.get());
  write_line(fmt::format(
      R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":"{}"}}}})", pid_, node));
}

int Trace::track_id(std::string_view track) {
  const auto it = std::find(tracks_.begin(), tracks_.end(), track);
  if (it != tracks_.end()) {
    return static_cast<int>(it - tracks_.begin()) + 1;
  }
  tracks_.emplace_back(track);
  const int id = static_cast<int>(tracks_.size());
  write_line(
      fmt::format(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                  pid_,
                  id,
                  track));
  return id;
}

void Trace::write_line(const std::string& line) {
  std::fputs(first_ ? "" : ",\n", file_.get());
  first_ = false;
  std::fputs(line.c_str(), file_.get());
  std::fflush(file_.get());
}

void Trace::span(
    std::string_view track, std::string_view name, TimePoint begin, TimePoint end, Args args) {
  std::string list;
  for (const auto& [key, value] : args) {
    list += fmt::format(R"({}"{}":{})", list.empty() ? "" : ",", key, value);
  }
  const std::lock_guard lock(mutex_);
  const int id = track_id(track);
  write_line(fmt::format(
      R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{{}}}}})",
      name,
      pid_,
      id,
      microseconds(begin),
      microseconds(end) - microseconds(begin),
      list));
}

void merge_traces(const std::vector<std::filesystem::path>& parts,
                  const std::filesystem::path& out) {
  std::string events;
  for (const auto& part : parts) {
    std::ifstream in(part);
    std::string line;
    while (std::getline(in, line)) {
      while (!line.empty() && line.back() == ',') {
        line.pop_back();
      }
      // A line cut by a crash is no event; the markers of the array are not either.
      if (line.size() > 2 && line.front() == '{' && line.back() == '}') {
        events += events.empty() ? "" : ",\n";
        events += line;
      }
    }
  }
  std::ofstream file(out, std::ios::trunc);
  file << "{\"traceEvents\":[\n" << events << "\n]}\n";
  if (!file.flush()) {
    throw fail(Errc::kIo, "cannot write the trace {}", out.string());
  }
  for (const auto& part : parts) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
  }
}

}  // namespace rift
