// SPDX-License-Identifier: Apache-2.0
#include "eval/source_text.h"

#include "common/error.h"
#include "model/sha256.h"
#include "model/utf8.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <unordered_set>

namespace rift::eval {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLeastBytes = 1000;
constexpr std::uintmax_t kMostBytes = 512 * 1024;
constexpr std::size_t kMostFiles = 20'000;
constexpr std::array<std::string_view, 7> kLeftOut{"test",
                                                   "tests",
                                                   "__pycache__",
                                                   "dist-packages",
                                                   "site-packages",
                                                   "encodings",    // tables of characters
                                                   "pydoc_data"};  // one large table
constexpr std::array<std::string_view, 5> kExtensions{".py", ".txt", ".rst", ".md", ""};

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    lines.emplace_back(line);
  }
  return lines;
}

// By its name; "Apache-2.0" has no extension.
bool may_be_text(const fs::path& path) {
  const std::string extension = path.extension().string();
  const bool version =
      extension.size() > 1 && extension.find_first_not_of("0123456789", 1) == std::string::npos;
  const bool known = std::ranges::find(kExtensions, extension) != kExtensions.end();
  return (known || version) && path.filename() != "Makefile";
}

// Text, or nothing where the file is none.
std::optional<std::string> read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f';
  };
  if (!file.good() || !model::is_utf8(text) || std::ranges::any_of(text, control)) {
    return std::nullopt;
  }
  return text;
}

std::vector<fs::path> list_files(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    throw fail(Errc::kNotFound, "{} is not a folder", folder.string());
  }
  std::vector<fs::path> files;
  constexpr auto kSkip = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(folder, kSkip, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code unreadable;
    const fs::path& path = it->path();
    if (it->is_directory(unreadable)) {
      if (std::ranges::find(kLeftOut, path.filename().string()) != kLeftOut.end()) {
        it.disable_recursion_pending();
      }
      continue;
    }
    if (may_be_text(path) && it->is_regular_file(unreadable)) {
      files.push_back(path);
    }
    if (files.size() > kMostFiles) {
      throw fail(Errc::kOutOfRange, "{} holds more than {} files", folder.string(), kMostFiles);
    }
  }
  if (error) {
    throw fail(Errc::kIo, "cannot list {}: {}", folder.string(), error.message());
  }
  std::ranges::sort(files);
  return files;
}

// "Name" of "class Name(Base):" behind `keyword`; empty for other lines.
std::string_view name_behind(std::string_view line, std::string_view keyword) {
  if (!line.starts_with(keyword)) {
    return {};
  }
  line.remove_prefix(keyword.size());
  const auto end = std::ranges::find_if_not(line, is_name_character);
  return line.substr(0, static_cast<std::size_t>(end - line.begin()));
}

// A line that ends the block before it.
bool at_margin(std::string_view line) {
  return !line.empty() && line.front() != ' ' && line.front() != '\t' && line.front() != ')' &&
         line.front() != '#';
}

}  // namespace

std::vector<fs::path> default_source_folders() {
  std::vector<fs::path> folders;
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator("/usr/lib", absent)) {
    if (entry.path().filename().string().starts_with("python3.") &&
        fs::exists(entry.path() / "os.py", absent)) {
      folders.push_back(entry.path());
    }
  }
  std::ranges::sort(folders);
  const fs::path licences = "/usr/share/common-licenses";
  if (fs::is_directory(licences, absent)) {
    folders.push_back(licences);
  }
  return folders;
}

std::vector<SourceText> find_sources(std::span<const fs::path> folders) {
  std::vector<SourceText> sources;
  std::unordered_set<std::string> seen;
  for (const fs::path& folder : folders) {
    for (const fs::path& path : list_files(folder)) {
      std::error_code error;
      const std::uintmax_t bytes = fs::file_size(path, error);
      if (error || bytes < kLeastBytes || bytes > kMostBytes) {
        continue;
      }
      const auto text = read_text(path);
      if (!text) {
        continue;
      }
      model::Sha256 hash;
      hash.update(*text);
      if (seen.insert(hash.hex()).second) {
        sources.push_back({path.lexically_relative(folder).string(),
                           path,
                           path.extension() == ".py",
                           hash.hex(),
                           split_lines(*text)});
      }
    }
  }
  return sources;
}

std::vector<Definition> definitions(const SourceText& source) {
  std::vector<Definition> out;
  const auto& lines = source.lines;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view class_name = name_behind(lines[i], "class ");
    std::string_view name = class_name;
    for (const std::string_view keyword : {"def ", "async def "}) {
      name = name.empty() ? name_behind(lines[i], keyword) : name;
    }
    if (name.empty()) {
      continue;
    }
    std::size_t end = i + 1;
    while (end < lines.size() && !at_margin(lines[end])) {
      ++end;
    }
    while (lines[end - 1].empty() || lines[end - 1].front() == '#') {
      --end;
    }
    out.push_back({std::string(name), !class_name.empty(), {i, end}});
  }
  return out;
}

std::vector<LineRange> paragraphs(const SourceText& source) {
  std::vector<LineRange> out;
  bool open = false;
  for (std::size_t i = 0; i < source.lines.size(); ++i) {
    const bool blank = source.lines[i].find_first_not_of(" \t\f") == std::string::npos;
    if (blank) {
      open = false;
    } else if (open) {
      out.back().end = i + 1;
    } else {
      out.push_back({i, i + 1});
      open = true;
    }
  }
  return out;
}

std::size_t byte_count(const SourceText& source, const LineRange& range) {
  std::size_t bytes = 0;
  for (std::size_t i = range.first; i < range.end; ++i) {
    bytes += source.lines[i].size() + 1;
  }
  return bytes;
}

}  // namespace rift::eval
