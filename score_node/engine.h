// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"
#include "kernels/matmul.h"
#include "model/runner.h"
#include "model/weights.h"
#include "score_node/core/types.h"
#include "score_node/history_store.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rift::score_node {

struct EngineOptions {
  int threads = 1;
  std::vector<int> cpus = {};  // as ThreadPool takes them; empty: any
  std::int32_t chunk = 512;    // largest ingest job
  std::uint64_t max_history_bytes = 4ULL << 30U;
  DType kv_dtype = DType::kF16;
  kernels::MatmulMode mode = kernels::MatmulMode::kQuantized;
};

/// Does the core's compute jobs: runs the draft model over the histories, scores and packs.
/// Failures come back in the event. Thread: one at a time (the compute thread).
class ScoreEngine {
 public:
  ScoreEngine(std::shared_ptr<const model::Weights> weights, const EngineOptions& options);

  [[nodiscard]] HistoryOpened run(const OpenHistory& job);
  [[nodiscard]] Ingested run(const Ingest& job);
  [[nodiscard]] Selected run(const Select& job);
  /// `buffer`: the whole send buffer chunk that the job names.
  [[nodiscard]] Packed run(const Pack& job, std::span<std::byte> buffer);
  void run(const ReleaseHistory& job) { histories_.release(job); }

  [[nodiscard]] const HistoryStore& histories() const { return histories_; }

 private:
  std::shared_ptr<const model::Weights> weights_;
  ThreadPool pool_;
  model::Runner runner_;
  HistoryStore histories_;
};

}  // namespace rift::score_node
