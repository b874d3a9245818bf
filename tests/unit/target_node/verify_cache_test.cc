// SPDX-License-Identifier: Apache-2.0
#include "target_node/verify_cache.h"

#include "common/error.h"
#include "tests/unit/model/temporary_folder.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

namespace rift::target_node {
namespace {

VerifyKey key() {
  VerifyKey k;
  k.fingerprint = "abc";
  k.cpu = "a processor";
  k.cpu_target = "avx2";
  k.threads = 2;
  k.widest = 3;
  return k;
}

VerifyCosts costs() { return {{0.125, 0.25, 0.5}, {0.25, 0.75, 1.5}, 2048}; }

TEST(VerifyCache, GivesBackWhatWasWrittenForTheSameKeyOnly) {
  const TemporaryFolder folder;
  const auto inside = folder.path() / "made/on/demand";
  EXPECT_FALSE(read_verify_costs(inside, key()));
  write_verify_costs(inside, key(), costs());
  EXPECT_EQ(read_verify_costs(inside, key()), costs());
  const std::function<void(VerifyKey&)> changes[] = {
      [](VerifyKey& k) { k.fingerprint = "abd"; },
      [](VerifyKey& k) { k.cpu = "another"; },
      [](VerifyKey& k) { k.cpu_target = "scalar"; },
      [](VerifyKey& k) { k.threads = 3; },
      [](VerifyKey& k) { k.exact = true; },
      [](VerifyKey& k) { k.packed = false; },
      [](VerifyKey& k) { k.widest = 4; },
  };
  for (const auto& change : changes) {
    VerifyKey other = key();
    change(other);
    EXPECT_FALSE(read_verify_costs(inside, other)) << other.text();
  }
  const VerifyCosts newer{{1.0, 2.0, 3.0}, {2.0, 3.0, 4.0}, 100};
  write_verify_costs(inside, key(), newer);
  EXPECT_EQ(read_verify_costs(inside, key()), newer);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(inside), {}), 1);
}

TEST(VerifyCache, TakesADamagedFileForNone) {
  const TemporaryFolder folder;
  write_verify_costs(folder.path(), key(), costs());
  const auto file = std::filesystem::directory_iterator(folder.path())->path();
  std::ifstream in(file);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from << " in " << good;
    text.replace(text.find(from), from.size(), to);
    std::ofstream(file, std::ios::trunc) << text;
    return read_verify_costs(folder.path(), key()).has_value();
  };
  EXPECT_TRUE(with("{", "{"));
  EXPECT_FALSE(with("2048", "0"));
  EXPECT_FALSE(with("\"depth\"", "\"width\""));
  EXPECT_FALSE(with("1.25E-1", "-1.25E-1"));
  EXPECT_FALSE(with("1.25E-1,", ""));
  EXPECT_FALSE(with("\"key\":\"abc", "\"key\":\"xyz"));
  EXPECT_FALSE(with(good, good.substr(0, good.size() / 2)));
  EXPECT_FALSE(with(good, ""));
}

TEST(VerifyCache, SaysWhereItCannotWrite) {
  const TemporaryFolder folder;
  const auto blocked = folder.path() / "file";
  std::ofstream(blocked) << "x";
  EXPECT_THROW(write_verify_costs(blocked, key(), costs()), Error);
}

}  // namespace
}  // namespace rift::target_node
