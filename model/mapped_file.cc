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

void release_pages(std::span<const std::byte> part) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t last = (begin + part.size()) / page * page;
  if (first < last) {
    ::madvise(const_cast<std::byte*>(part.data() + (first - begin)), last - first, MADV_DONTNEED);
  }
}

}  // namespace rift::model
