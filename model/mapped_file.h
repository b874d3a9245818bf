// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace rift::model {

/// A whole file mapped read-only. Move-only. Thread: any, after construction.
/// The file must not shrink while it is mapped.
class MappedFile {
 public:
  /// Errors (thrown): kNotFound, kIo (a folder, not readable). An empty file gives no bytes.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Starts reading a part of a mapped file from the disk, and does not wait.
void prefetch_pages(std::span<const std::byte> part);
/// Brings every page of a part of a mapped file into memory.
void populate_pages(std::span<const std::byte> part);
/// Lets the kernel take back the whole pages of a part of a mapped file that will hardly be read
/// again; reading it later is slower, not wrong.
void release_pages(std::span<const std::byte> part);

}  // namespace rift::model
