// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "target_node/core/draft_length.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace rift::target_node {

/// What the costs of verification depend on. Value type.
struct VerifyKey {
  std::string fingerprint;  // of the model
  std::string cpu;          // as the machine calls it
  std::string cpu_target;   // kernels in use
  int threads = 1;
  bool exact = false;
  bool packed = true;
  std::int32_t widest = 0;  // rows of the last cost

  [[nodiscard]] std::string text() const;
};

/// Costs that were measured in an earlier run, a file for each key in `folder`. A file that is
/// missing, damaged or of another key gives none.
[[nodiscard]] std::optional<VerifyCosts> read_verify_costs(const std::filesystem::path& folder,
                                                           const VerifyKey& key);
/// Replaces the file as a whole, so that nodes that start at once see one or the other.
/// Errors (thrown): kIo.
void write_verify_costs(const std::filesystem::path& folder,
                        const VerifyKey& key,
                        const VerifyCosts& costs);

/// XDG_CACHE_HOME or ~/.cache, and rift/verify there; empty where neither is set.
[[nodiscard]] std::filesystem::path verify_cache_folder();
/// The processor's name; empty where the system does not say.
[[nodiscard]] std::string cpu_name();

}  // namespace rift::target_node
