// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/policy_spec.h"

#include <filesystem>
#include <string>

namespace rift {

/// A RIFT-ada policy and what it was calibrated for (`rift calibrate`). Value type.
struct PolicyFile {
  PolicySpec policy;              // Policy::kRiftAda
  std::string draft_fingerprint;  // of the models; empty: any
  std::string target_fingerprint;
  float temperature = 0.0F;
  std::int32_t draft_len = 0;  // gamma of the calibration; 0: not said

  bool operator==(const PolicyFile&) const = default;
};

/// Reads a policy file (TOML, docs/policy-file.md). Keys that are missing keep PolicySpec's
/// defaults; a threshold that is missing is off. Errors (thrown): kNotFound; kInvalidArgument,
/// naming the file, the line and the key, for anything that is unknown, of the wrong type or out of
/// the range of 32 bits. What values make sense is plan_budget's to say.
[[nodiscard]] PolicyFile read_policy_file(const std::filesystem::path& path);

/// The text of a policy file, `notes` as comments above it, line by line.
[[nodiscard]] std::string to_toml(const PolicyFile& file, const std::string& notes);

}  // namespace rift
