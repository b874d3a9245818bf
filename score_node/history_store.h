// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/weights.h"
#include "score_node/core/types.h"
#include "score_node/history.h"

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace rift::score_node {

/// The histories of open sessions, and those of closed ones for as long as there is room: a new
/// session that begins with the same tokens takes one over. Memory is bounded by what all of them
/// hold when full. Thread: one at a time.
class HistoryStore {
 public:
  HistoryStore(std::shared_ptr<const model::Weights> weights, DType dtype, std::uint64_t max_bytes);

  /// Opens a history for job.capacity positions and returns how many of job.tokens it holds.
  /// Errors (thrown): kResourceExhausted with the arithmetic.
  std::int32_t open(const OpenHistory& job);
  /// The history of an open session.
  [[nodiscard]] ScoreHistory& at(SessionRef session) const;
  /// Keeps the history for later where job.tokens are worth it, else frees it.
  void release(const ReleaseHistory& job);

  [[nodiscard]] std::uint64_t used_bytes() const;
  [[nodiscard]] std::size_t cached() const { return cached_.size(); }

 private:
  struct Cached {
    std::vector<TokenId> tokens;  // what it holds
    std::unique_ptr<ScoreHistory> history;
  };

  std::unique_ptr<ScoreHistory> take_over(const OpenHistory& job, std::int32_t& reused);
  std::unique_ptr<ScoreHistory> create(const OpenHistory& job);

  std::shared_ptr<const model::Weights> weights_;
  ValueProjection projection_;
  DType dtype_;
  std::uint64_t max_bytes_;
  std::map<SessionRef, std::unique_ptr<ScoreHistory>> open_;
  std::list<Cached> cached_;  // the one used last is at the front
};

}  // namespace rift::score_node
