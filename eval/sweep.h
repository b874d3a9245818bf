// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/nodes.h"
#include "eval/types.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace rift::eval {

/// Values of a sweep; every combination is a setting.
struct SweepAxes {
  std::vector<Policy> policies;
  std::vector<std::int32_t> budgets, blocks, deltas, lags, draft_lens;
  std::vector<float> rhos, temperatures;
  std::vector<Selector> selectors;
  std::vector<Allocation> allocations;
  PolicySpec rest;  // what has no axis
};

/// Every combination once: what a policy does not have is set to its default first, so that `full`
/// or `swa` do not come again for every delta.
[[nodiscard]] std::vector<Setting> settings_of(const SweepAxes& axes);

struct SweepOptions {
  NodesOptions nodes;  // of each job; context, draft length and arena are filled in
  int jobs = 1;        // sequences worked on side by side
  std::int32_t max_tokens = 512;
  std::vector<TokenId> stop_tokens;
  std::int32_t mass_samples = 8;  // queries per answer at which retained mass is measured; replay
  /// Finished measurements are appended to this file, and read from it instead of made again.
  /// Empty: none.
  std::filesystem::path state;
  /// After every measurement; `seconds` it took, 0 where it was read from `state`. Thread: any, one
  /// at a time.
  std::function<void(std::size_t done, std::size_t total, double seconds)> on_progress;
  /// Live: the answer of a sequence, once.
  std::function<void(std::size_t sequence, const std::vector<TokenId>& answer)> on_answer;
  /// Looked at between two measurements; true ends the sweep with kCancelled.
  std::function<bool()> cancelled;
};

/// Every setting on every sequence. result[s][p] belongs to settings[s] and sequences[p]; the same
/// input gives the same result for any number of jobs, seconds apart. Errors (thrown): what a node
/// refuses, naming the setting and the sequence; kIo; kCancelled.
[[nodiscard]] std::vector<Row> run_sweep(std::span<const Setting> settings,
                                         std::span<const Sequence> sequences,
                                         const SweepOptions& options);

/// For people and for keys: "rift-dyn B=1024 P=16 rho=0.5 delta=32 lag=0 gamma=11 T=0".
[[nodiscard]] std::string describe(const Setting& setting);

}  // namespace rift::eval
