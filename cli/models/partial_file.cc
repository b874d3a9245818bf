// SPDX-License-Identifier: Apache-2.0
#include "cli/models/partial_file.h"

#include "common/error.h"
#include "model/json_file.h"

#include <boost/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::size_t kMaxStateBytes = 1 << 20;
constexpr std::size_t kChunkBytes = 1 << 20;

Error io_error(std::string_view action, const fs::path& path, int error) {
  const bool full = error == ENOSPC || error == EDQUOT;
  return fail(full ? Errc::kResourceExhausted : Errc::kIo,
              "cannot {} {}: {}{}",
              action,
              path.string(),
              std::generic_category().message(error),
              full ? "; make room and run the command again, it goes on from here" : "");
}

// Bytes of every part that the state file vouches for; nothing where it belongs to another file.
std::vector<std::uint64_t> parts_of_state(const json::value& state, const CatalogueFile& file) {
  std::vector<std::uint64_t> parts;
  const json::object* object = state.if_object();
  const json::value* hash = object != nullptr ? object->if_contains("sha256") : nullptr;
  const json::value* list = object != nullptr ? object->if_contains("part_bytes") : nullptr;
  if (hash == nullptr || !hash->is_string() || hash->get_string() != file.sha256 ||
      list == nullptr || !list->is_array()) {
    return parts;
  }
  for (const json::value& part : list->get_array()) {
    if (!part.is_int64() || part.get_int64() < 0 ||
        parts.size() >= static_cast<std::size_t>(file.parts)) {
      return {};
    }
    parts.push_back(static_cast<std::uint64_t>(part.get_int64()));
  }
  return parts;
}

}  // namespace

PartialFile::PartialFile(const CatalogueFile& file,
                         const fs::path& folder,
                         const std::function<void(std::uint64_t)>& step)
    : final_(folder / file.file),
      partial_(folder / (file.file + ".partial")),
      state_(folder / (file.file + ".state.json")),
      expected_sha256_(file.sha256) {
  read_state(file);
  fd_ = ScopedFd(::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd_.get() < 0 || ::ftruncate(fd_.get(), static_cast<off_t>(committed_)) != 0) {
    throw io_error("write", partial_, errno);
  }
  std::vector<std::byte> buffer(kChunkBytes);
  while (bytes_ < committed_) {
    const ssize_t got = ::read(fd_.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      throw io_error("read", partial_, got < 0 ? errno : EIO);
    }
    hash_.update(std::span(buffer).first(static_cast<std::size_t>(got)));
    bytes_ += static_cast<std::uint64_t>(got);
    step(bytes_);
  }
}

void PartialFile::read_state(const CatalogueFile& file) {
  std::error_code absent;
  const std::uint64_t size = fs::file_size(partial_, absent);
  if (absent || !fs::exists(state_)) {
    return;
  }
  try {
    parts_ = parts_of_state(model::read_json(state_, kMaxStateBytes), file);
  } catch (const Error&) {
    return;  // a damaged state means: begin again
  }
  for (const std::uint64_t part : parts_) {
    committed_ += std::min(part, size + 1);  // no overflow, however wrong the numbers
  }
  if (committed_ > size) {
    parts_.clear();
    committed_ = 0;
  }
}

void PartialFile::append(std::span<const std::byte> bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t got = ::write(fd_.get(), bytes.data() + written, bytes.size() - written);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      throw io_error("write", partial_, errno);
    }
    written += static_cast<std::size_t>(got);
  }
  hash_.update(bytes);
  bytes_ += bytes.size();
}

void PartialFile::commit_part() {
  // The data must be on the disk before the state says so.
  if (::fdatasync(fd_.get()) != 0) {
    throw io_error("write", partial_, errno);
  }
  parts_.push_back(bytes_ - committed_);
  committed_ = bytes_;
  write_state();
}

void PartialFile::write_state() const {
  json::array list;
  for (const std::uint64_t part : parts_) {
    list.emplace_back(part);
  }
  const json::object state{{"sha256", expected_sha256_}, {"part_bytes", list}};
  const fs::path fresh = state_.string() + ".new";
  std::ofstream out(fresh, std::ios::binary);
  out << json::serialize(state) << '\n';
  out.close();
  if (!out) {
    throw io_error("write", fresh, errno);
  }
  fs::rename(fresh, state_);
}

void PartialFile::finish() {
  fd_.reset();
  fs::rename(partial_, final_);
  fs::remove(state_);
}

void PartialFile::discard() {
  fd_.reset();
  fs::remove(partial_);
  fs::remove(state_);
}

}  // namespace rift::cli
