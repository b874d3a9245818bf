// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <archive.h>
#include <archive_entry.h>

#include <filesystem>
#include <string>

namespace rift::cli {

/// Writes a zip file with one member, as a wheel has it.
inline void write_wheel(const std::filesystem::path& path,
                        const std::string& member,
                        const std::string& content) {
  archive* a = archive_write_new();
  archive_write_set_format_zip(a);
  archive_write_open_filename(a, path.c_str());
  archive_entry* entry = archive_entry_new();
  archive_entry_set_pathname(entry, member.c_str());
  archive_entry_set_size(entry, static_cast<la_int64_t>(content.size()));
  archive_entry_set_filetype(entry, AE_IFREG);
  archive_entry_set_perm(entry, 0644);
  archive_write_header(a, entry);
  archive_write_data(a, content.data(), content.size());
  archive_entry_free(entry);
  archive_write_close(a);
  archive_write_free(a);
}

}  // namespace rift::cli
