// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/load_seconds.h"
#include "model/weights.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

namespace rift::model {

struct LoadOptions {
  int threads = 1;
  std::vector<int> cpus = {};  // as ThreadPool takes them
  bool repack = true;          // false: computed from the file as it lies
  /// Bytes of matrices that are ready, of all; on the calling thread, after every matrix.
  std::function<void(std::uint64_t done, std::uint64_t total)> on_progress = {};
};

struct LoadedModel {
  std::shared_ptr<const Weights> weights;
  LoadSeconds seconds;
};

/// Loads a checkpoint (load_weights) to compute with: its matrices are brought into memory one by
/// one, and every quantised one is put into the order that this machine's kernels read
/// (kernels::pack): faster, same bits, same bytes but for whole panels. A packed matrix takes its
/// own memory and gives the file's pages back.
/// Errors (thrown): as load_weights; kResourceExhausted.
[[nodiscard]] LoadedModel load_model(const std::filesystem::path& path, const LoadOptions& options);

}  // namespace rift::model
