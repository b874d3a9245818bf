// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::cli {

/// One model file and the Python packages that carry it, each holding one part of it as a member of
/// its wheel. Value type.
struct CatalogueFile {
  std::string file;         // name in the models folder
  std::uint64_t bytes = 0;  // of the whole file
  std::string sha256;       // lower-case hex, of the whole file
  std::string package;      // its name, or with `numbered` the name before the part's number
  std::string version;      // empty: the newest
  std::string member;       // file name inside the wheel, or with `numbered` what is before {:02}
  std::string member_suffix;
  std::int32_t parts = 1;
  std::int32_t first_member = 1;  // number of the first part's member; packages count from 1
  bool numbered = true;

  /// Requirement as pip takes it; part from 0.
  [[nodiscard]] std::string requirement(std::int32_t part) const;
  /// Last component of the member's path in the wheel.
  [[nodiscard]] std::string member_name(std::int32_t part) const;
};

/// What `rift models fetch NAME` gets.
struct CatalogueEntry {
  std::string name;
  std::string about;
  std::vector<CatalogueFile> files;
};

[[nodiscard]] std::span<const CatalogueEntry> catalogue();
/// Errors (thrown): kNotFound listing the known names.
[[nodiscard]] const CatalogueEntry& find_in_catalogue(std::string_view name);

/// RIFT_MODELS, else ~/.cache/rift/models. Errors (thrown): kNotFound where neither RIFT_MODELS nor
/// HOME is set.
[[nodiscard]] std::filesystem::path models_folder();

}  // namespace rift::cli
