// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/models/catalogue.h"
#include "cli/scoped_fd.h"
#include "model/sha256.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

namespace rift::cli {

/// FILE.partial with FILE.state.json beside it: what of a file has arrived, part by part. Bytes of
/// a part count only after commit_part(). Thread: one.
class PartialFile {
 public:
  /// Opens or begins; what an interrupted part left behind is cut off. The bytes kept are hashed
  /// again, `step` is called with how many so far. Errors (thrown): kIo.
  PartialFile(const CatalogueFile& file,
              const std::filesystem::path& folder,
              const std::function<void(std::uint64_t)>& step);

  [[nodiscard]] std::int32_t parts_done() const { return static_cast<std::int32_t>(parts_.size()); }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Errors (thrown): kIo, kResourceExhausted (disk full).
  void append(std::span<const std::byte> bytes);
  /// The bytes since the last commit are a whole part.
  void commit_part();
  [[nodiscard]] std::string sha256() const { return hash_.hex(); }
  /// Renames to the final name.
  void finish();
  /// Removes the file and its state.
  void discard();

 private:
  void read_state(const CatalogueFile& file);
  void write_state() const;

  std::filesystem::path final_, partial_, state_;
  std::string expected_sha256_;
  std::vector<std::uint64_t> parts_;  // bytes of each
  std::uint64_t bytes_ = 0;
  std::uint64_t committed_ = 0;
  model::Sha256 hash_;
  ScopedFd fd_;
};

}  // namespace rift::cli
