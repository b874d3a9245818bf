// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace rift::eval {

/// A file that prompts quote. Value type.
struct SourceText {
  std::string file;                // path within its folder, as prompts name it
  std::filesystem::path path;      // as it was found
  bool python = false;             // otherwise prose
  std::string sha256;              // of the whole file, lower-case hex
  std::vector<std::string> lines;  // without newlines
};

/// Folders of text that a Debian machine has: the Python standard libraries (/usr/lib/python3.*)
/// and the common licences. Those that are there, in the order of their names.
[[nodiscard]] std::vector<std::filesystem::path> default_source_folders();

/// Every *.py, *.txt, *.rst, *.md and file without extension in the folders, in the order of their
/// paths, that is UTF-8 text of 1 kB to 512 kB; contents that occur twice once. Makefiles, tests,
/// installed packages and tables of the Python library are left out, and what cannot be read.
/// Errors (thrown): kNotFound (a folder is not there), kIo, kOutOfRange (more than 20,000 files).
/// Thread: any.
[[nodiscard]] std::vector<SourceText> find_sources(std::span<const std::filesystem::path> folders);

/// Lines first..end-1 of a source, from 0. Value type.
struct LineRange {
  std::size_t first = 0;
  std::size_t end = 0;
};
struct Definition {
  std::string name;
  bool is_class = false;
  LineRange lines;
};
/// Definitions that begin at the left margin of a Python source, in its order, decorators left out.
/// Recognised by indentation alone.
[[nodiscard]] std::vector<Definition> definitions(const SourceText& source);
/// Runs of lines without an empty one between.
[[nodiscard]] std::vector<LineRange> paragraphs(const SourceText& source);
/// Bytes of the lines, newlines included.
[[nodiscard]] std::size_t byte_count(const SourceText& source, const LineRange& range);

}  // namespace rift::eval
