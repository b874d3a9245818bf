// SPDX-License-Identifier: Apache-2.0
#include "model/mapped_file.h"

#include "common/error.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace rift::model {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

struct Descriptor {
  int value;
  explicit Descriptor(int fd) : value(fd) {}
  ~Descriptor() {
    if (value >= 0) {
      ::close(value);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

std::size_t page_bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

struct Pages {
  void* first = nullptr;
  std::size_t bytes = 0;
};

/// The pages that hold any byte of `part`, but for those after its end.
Pages touched_pages(std::span<const std::byte> part) {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(part.data()) % page_bytes();
  return part.empty() ? Pages{}
                      : Pages{const_cast<std::byte*>(part.data() - before), part.size() + before};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.value < 0) {
    const int error = errno;
    throw fail(error == ENOENT || error == ENOTDIR ? Errc::kNotFound : Errc::kIo,
               "cannot open {}: {}",
               path.string(),
               reason(error));
  }
  struct stat info {};
  if (::fstat(fd.value, &info) != 0) {
    throw fail(Errc::kIo, "cannot read the size of {}: {}", path.string(), reason(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    throw fail(Errc::kIo, "{} is not a regular file", path.string());
  }
  size_ = static_cast<std::size_t>(info.st_size);
  if (size_ == 0) {
    return;
  }
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd.value, 0);
  if (address == MAP_FAILED) {
    throw fail(Errc::kIo, "cannot map {} ({} bytes): {}", path.string(), size_, reason(errno));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void prefetch_pages(std::span<const std::byte> part) {
  const Pages pages = touched_pages(part);
  ::madvise(pages.first, pages.bytes, MADV_WILLNEED);  // advice
}

void populate_pages(std::span<const std::byte> part) {
  const Pages pages = touched_pages(part);
  if (pages.bytes == 0 || ::madvise(pages.first, pages.bytes, MADV_POPULATE_READ) == 0) {
    return;
  }
  // Linux before 5.14: a byte of every page.
  const auto* bytes = static_cast<const volatile std::byte*>(pages.first);
  for (std::size_t at = 0; at < pages.bytes; at += page_bytes()) {
    static_cast<void>(bytes[at]);
  }
}

void release_pages(std::span<const std::byte> part) {
  const std::uintptr_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + part.size()) / page * page;
  if (first < last) {
    ::madvise(const_cast<std::byte*>(part.data() + (first - begin)), last - first, MADV_DONTNEED);
  }
}

}  // namespace rift::model
