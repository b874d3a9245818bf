// SPDX-License-Identifier: Apache-2.0
#include "common/page_buffer.h"

#include "common/error.h"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

namespace rift {

PageBuffer::PageBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) {
    return;
  }
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    throw fail(Errc::kResourceExhausted,
               "no memory for {} bytes: {}",
               bytes,
               std::generic_category().message(errno));
  }
  data_ = static_cast<std::byte*>(address);
  ::madvise(address, bytes, MADV_HUGEPAGE);  // advice: small pages are right, only slower
}

PageBuffer::~PageBuffer() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

}  // namespace rift
