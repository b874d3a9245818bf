// SPDX-License-Identifier: Apache-2.0
#include "common/policy_file.h"

#include "common/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace rift {
namespace {

using ::testing::HasSubstr;

class PolicyFileTest : public ::testing::Test {
 protected:
  ~PolicyFileTest() override { std::filesystem::remove(path_); }

  PolicyFile read(const std::string& text) {
    std::ofstream(path_) << text;
    return read_policy_file(path_);
  }
  std::string error_of(const std::string& text) {
    try {
      (void)read(text);
    } catch (const Error& error) {
      return error.message();
    }
    return "accepted";
  }

  std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / "rift_policy_file_test.toml";
};

TEST_F(PolicyFileTest, ReadsWhatItWrites) {
  PolicyFile file;
  PolicySpec& p = file.policy;
  p.policy = Policy::kRiftAda;
  p.budget = 777;
  p.block = 8;
  p.rho = 0.1F;
  p.window = 32;
  p.staging_percent = 50;
  p.selector = Selector::kCurDkv;
  p.allocation = Allocation::kAdaKv;
  p.pooling = Pooling::kMax;
  p.pool_width = 7;
  p.ada = {.stride = 8,
           .min_age = 1,
           .max_age = 99,
           .entropy_high = 2.7F,
           .drift_high = 1e-3F,
           .gate = AdaGate::kScore,
           .weights = {0.1F, 0.2F, 0.3F, 0.0F, 5.0F},
           .score_threshold = -1.5F};
  file.draft_fingerprint = "abc";
  file.target_fingerprint = "def";
  file.temperature = 0.7F;
  file.draft_len = 11;
  EXPECT_EQ(read(to_toml(file, "made for a test\n\nof two paragraphs")), file);
  // A threshold that is off is left out, and off again.
  file.policy.ada = {};
  EXPECT_EQ(read(to_toml(file, "")), file);
}

TEST_F(PolicyFileTest, MissingKeysKeepTheirDefaults) {
  const PolicyFile file = read("budget = 512\n[ada]\nentropy_high = 2\n");
  EXPECT_EQ(file.policy.policy, Policy::kRiftAda);
  EXPECT_EQ(file.policy.budget, 512);
  EXPECT_EQ(file.policy.block, PolicySpec().block);
  EXPECT_EQ(file.policy.ada.entropy_high, 2.0F);
  EXPECT_EQ(file.policy.ada.drift_high, AdaSpec::kOff);
}

TEST_F(PolicyFileTest, SaysWhereAndWhatIsWrong) {
  const std::string name = path_.string();
  EXPECT_EQ(error_of("budget = 1\nbudgett = 2\n"), name + ":2: unknown key 'budgett'");
  EXPECT_THAT(error_of("[ada]\n\nstrid = 2\n"), HasSubstr(":3: unknown key 'strid'"));
  EXPECT_THAT(error_of("budget = 1.5\n"), HasSubstr(":1: budget must be a whole number"));
  EXPECT_THAT(error_of("budget = 99999999999\n"), HasSubstr("32 bits"));
  EXPECT_THAT(error_of("rho = nan\n"), HasSubstr("rho must be a finite number"));
  EXPECT_THAT(error_of("rho = 1e99\n"), HasSubstr("rho must be a finite number"));
  EXPECT_THAT(error_of("rho = \"0.5\"\n"), HasSubstr("rho must be a finite number"));
  EXPECT_THAT(error_of("selector = \"best\"\n"), HasSubstr("selector must be another name"));
  EXPECT_THAT(error_of("selector = 3\n"), HasSubstr("selector must be a string"));
  EXPECT_THAT(error_of("ada = 3\n"), HasSubstr("ada must be a table"));
  EXPECT_THAT(error_of("[ada]\nweights = [1, 2]\n"), HasSubstr("weights must be 5 numbers"));
  EXPECT_THAT(error_of("[ada]\nweights = [1, 2, 3, 4, inf]\n"), HasSubstr("finite"));
  EXPECT_THAT(error_of("policy = \"swa\"\n"), HasSubstr("policy is swa"));
  EXPECT_THAT(error_of("budget = \n"), HasSubstr(name + ":"));
  EXPECT_THROW((void)read_policy_file(path_ / "none"), Error);
}

}  // namespace
}  // namespace rift
