// SPDX-License-Identifier: Apache-2.0
#include "cli/models/wheel.h"

#include "common/error.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>
#include <string>
#include <vector>

namespace rift::cli {
namespace {

constexpr std::size_t kChunkBytes = 1 << 20;

struct ArchiveDeleter {
  void operator()(archive* a) const { archive_read_free(a); }
};
using Archive = std::unique_ptr<archive, ArchiveDeleter>;

Error damaged(const std::filesystem::path& wheel, archive* a) {
  const char* text = archive_error_string(a);
  return fail(Errc::kCorrupt,
              "{} is not a readable wheel: {}",
              wheel.filename().string(),
              text != nullptr ? text : "unknown error");
}

bool matches(std::string_view path, std::string_view member) {
  const std::size_t slash = path.rfind('/');
  return slash != std::string_view::npos && path.substr(slash + 1) == member;
}

std::uint64_t stream(archive* a,
                     const std::filesystem::path& wheel,
                     std::uint64_t max_bytes,
                     const std::function<void(std::span<const std::byte>)>& sink) {
  std::vector<std::byte> buffer(kChunkBytes);
  std::uint64_t total = 0;
  for (;;) {
    const la_ssize_t got = archive_read_data(a, buffer.data(), buffer.size());
    if (got < 0) {
      throw damaged(wheel, a);
    }
    if (got == 0) {
      return total;
    }
    total += static_cast<std::uint64_t>(got);
    if (total > max_bytes) {
      throw fail(Errc::kCorrupt,
                 "{} holds more than the {} bytes that are left of the file",
                 wheel.filename().string(),
                 max_bytes);
    }
    sink(std::span(buffer).first(static_cast<std::size_t>(got)));
  }
}

}  // namespace

std::uint64_t extract_member(const std::filesystem::path& wheel,
                             std::string_view member,
                             std::uint64_t max_bytes,
                             const std::function<void(std::span<const std::byte>)>& sink) {
  const Archive a(archive_read_new());
  archive_read_support_format_zip(a.get());
  if (archive_read_open_filename(a.get(), wheel.c_str(), kChunkBytes) != ARCHIVE_OK) {
    throw damaged(wheel, a.get());
  }
  std::string largest = "none";
  std::int64_t largest_bytes = -1;
  archive_entry* entry = nullptr;
  for (;;) {
    const int status = archive_read_next_header(a.get(), &entry);
    if (status == ARCHIVE_EOF) {
      throw fail(Errc::kNotFound,
                 "{} holds no {} (its largest member is {})",
                 wheel.filename().string(),
                 member,
                 largest);
    }
    if (status < ARCHIVE_WARN) {
      throw damaged(wheel, a.get());
    }
    const char* name = archive_entry_pathname(entry);
    const std::string path = name != nullptr ? name : "";
    if (matches(path, member)) {
      return stream(a.get(), wheel, max_bytes, sink);
    }
    if (archive_entry_size(entry) > largest_bytes) {
      largest_bytes = archive_entry_size(entry);
      largest = path;
    }
  }
}

}  // namespace rift::cli
