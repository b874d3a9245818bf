// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/thread_pool.h"
#include "common/working_set_layout.h"
#include "draft_node/core/types.h"
#include "draft_node/working_set.h"
#include "model/runner.h"
#include "model/sampling.h"
#include "model/weights.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace rift::draft_node {

struct EngineOptions {
  std::int32_t max_batch = 64;      // tokens of one pass (prefill, catching up)
  std::int32_t max_logit_rows = 1;  // of one pass; more make run_known faster
  DType kv_dtype = DType::kF16;
  kernels::MatmulMode mode = kernels::MatmulMode::kQuantized;
};

/// Carries out the core's work: forward passes of the draft model over the working sets. Its
/// scratch is taken in the constructor and counted in scratch_bytes(); a working set's bookkeeping
/// when it is opened. Thread: the compute thread (construction and queries apart).
class Engine {
 public:
  /// `pool` outlives the engine. Errors (thrown): kUnsupported.
  Engine(std::shared_ptr<const model::Weights> weights,
         const EngineOptions& options,
         ThreadPool& pool);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] KvGeometry geometry() const;
  [[nodiscard]] std::uint64_t weight_bytes() const { return weights_->bytes; }
  /// Bytes held besides weights and arena.
  [[nodiscard]] std::uint64_t scratch_bytes() const;

  /// The registered region that offsets refer to; before any work. It outlives the engine.
  void set_arena(std::span<std::byte> arena) { arena_ = arena; }

  void run(const OpenWorkingSet& job);
  void run(const DropWorkingSet& job);
  /// Failures come back in the result.
  [[nodiscard]] PrefillDone run(const PrefillJob& job);
  [[nodiscard]] DraftDone run(const DraftJob& job);
  /// As run(job) for a greedy sequence whose continuation `next` is known: passes over several of
  /// its tokens give what single steps would, up to the first draft that differs from `next`. The
  /// drafts after it could not hold: they repeat it.
  [[nodiscard]] DraftDone run_known(const DraftJob& job, std::span<const TokenId> next);

  /// Of an open working set; for tests and metrics.
  [[nodiscard]] const WorkingSet& working_set(WorkingSetId id) const;

 private:
  struct Context;
  /// Whose tokens are fed: queries of the prompt say nothing about drift.
  enum class Rows : std::uint8_t { kPrompt, kCommitted, kDrafted };
  [[nodiscard]] Context& context(WorkingSetId id);
  /// Feeds tokens from the working set's end on, in passes of max_batch; the logits of the last
  /// `logit_rows`, all of one pass, are left in logits_.
  void feed(Context& context,
            std::span<const TokenId> tokens,
            Rows kind,
            std::int32_t logit_rows,
            DraftDone& done);
  /// The next draft from row `row` of logits_, by the session's sampling.
  [[nodiscard]] TokenId choose(Context& context, std::int32_t row, DraftDone& done);
  void prepare(Context& context, const DraftJob& job);
  void draft(Context& context, const DraftJob& job, DraftDone& done);
  void draft_known(Context& context,
                   const DraftJob& job,
                   std::span<const TokenId> next,
                   DraftDone& done);
  /// Drift by the number of drafts that hold; `committed` pending rows come before the drafts'.
  static void add_drift(const Context& context, std::int32_t committed, DraftDone& done);

  std::shared_ptr<const model::Weights> weights_;
  EngineOptions options_;
  model::Runner runner_;
  std::vector<float> logits_;  // [max_logit_rows, V]
  std::vector<std::int32_t> logit_rows_;
  std::vector<Position> positions_;
  std::span<std::byte> arena_;
  std::map<WorkingSetId, std::unique_ptr<Context>> contexts_;
};

}  // namespace rift::draft_node
