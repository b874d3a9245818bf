// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/machine_limits.h"
#include "common/types.h"
#include "kernels/matmul.h"
#include "model/kv_cache.h"
#include "model/runner.h"
#include "model/weights.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace rift::bench {

enum class Test : std::uint8_t { kPrefill, kDecode, kVerify, kScore };
[[nodiscard]] std::string_view to_string(Test test);

/// One thing to time: `tokens` after `depth` cached positions, `width` of them a pass. For kScore
/// a history of `depth` positions and a window of `width` queries.
struct Point {
  Test test = Test::kDecode;
  std::int32_t tokens = 1;
  std::int32_t depth = 0;
  std::int32_t width = 1;
};

/// What one repetition of a point must do at least.
struct Work {
  double read_bytes = 0.0;  // weights and cached keys and values, once a pass; kScore: keys
  double int8_ops = 0.0;    // two a product of the weight matrices
  double f32_ops = 0.0;     // two a product of queries, keys and values
};

struct ModelBenchOptions {
  int threads = 1;
  std::vector<int> cpus;
  std::int32_t batch = 512;    // tokens a prefill pass
  std::int32_t capacity = 0;   // positions that any point needs
  std::int32_t max_width = 1;  // of any verification
  bool exact = false;
};

/// Runs points on one model. What is cached before a point is pseudo-random: time does not depend
/// on the values, and no prompt has to be computed to get that deep. Thread: one.
class ModelBench {
 public:
  ModelBench(std::shared_ptr<const model::Weights> weights, const ModelBenchOptions& options);

  /// Seconds of one repetition; the cache is filled to the point's depth first, which is not timed.
  [[nodiscard]] double run(const Point& point);
  [[nodiscard]] Work work(const Point& point) const;
  [[nodiscard]] MachineLimits limits() { return measure_limits(pool_); }

 private:
  void fill(std::int32_t depth);
  void pass(std::int32_t tokens, std::int32_t width, std::int32_t logit_rows);
  [[nodiscard]] double score(const Point& point);

  std::shared_ptr<const model::Weights> weights_;
  ModelBenchOptions options_;
  ThreadPool pool_;
  model::Runner runner_;
  model::KvCache cache_;
  std::vector<float> noise_;  // [256, G D]
  std::vector<float> logits_;
};

}  // namespace rift::bench
