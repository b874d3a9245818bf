// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/thread_pool.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/sampling.h"
#include "target_node/core/target_core.h"

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

namespace rift::target_node {

struct EngineOptions {
  std::int32_t max_context = 0;
  std::int32_t max_draft_len = 31;
  std::int32_t prefill_chunk = 512;
  std::int32_t parked_caches = 2;  // caches of finished sessions kept for prompts that begin alike
  DType kv_dtype = DType::kF16;
  kernels::MatmulMode mode = kernels::MatmulMode::kQuantized;
};

/// Runs the target model for TargetCore's jobs: one KV cache per session.
/// A cache of a finished session is kept and taken over by the next one for the prefix that both
/// share; the forward pass is batch-invariant, so that this changes no bit of any answer.
/// Thread: compute. Errors (thrown): rift::Error.
class TargetEngine {
 public:
  TargetEngine(std::shared_ptr<const model::Weights> weights,
               const EngineOptions& options,
               int threads,
               const std::vector<int>& cpus = {});

  using OnPrefill = std::function<void(std::int32_t done, std::int32_t total)>;
  [[nodiscard]] PrefillDone prefill(const Prefill& job, const OnPrefill& progress);
  [[nodiscard]] VerifyDone verify(const Verify& job);
  /// What verification passes of 1 .. max_draft_len + 1 rows cost: some widths measured, the best
  /// of three, the others on straight lines between them. The deep cache is filled with
  /// pseudo-random values: time does not depend on them.
  [[nodiscard]] VerifyCosts measure_verify();
  /// The session is over. Unknown ids are ignored.
  void release(SessionId id);

 private:
  struct Session {
    std::vector<TokenId> history;  // committed tokens; the newest is not in the cache yet
    std::unique_ptr<model::KvCache> cache;
    std::unique_ptr<model::SamplerChain> sampler;
  };

  [[nodiscard]] std::vector<double> measure_verify(Session& session, std::int32_t depth);
  /// Takes the parked cache that shares most with `prompt`, or a new one; returns the positions
  /// kept.
  std::int32_t adopt_cache(Session& session, std::span<const TokenId> prompt);
  void forward(Session& session,
               std::span<const TokenId> tokens,
               std::int32_t first_position,
               std::span<const std::int32_t> logit_rows);

  EngineOptions options_;
  ThreadPool pool_;
  model::Runner runner_;
  std::vector<float> logits_;  // [max_draft_len + 1, V]
  std::vector<Position> positions_;
  std::vector<TokenId> tokens_;     // of a verification
  std::vector<std::int32_t> rows_;  // likewise
  std::map<SessionId, Session> sessions_;
  std::list<Session> parked_;  // newest first
};

}  // namespace rift::target_node
