// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/page_buffer.h"
#include "common/thread_pool.h"
#include "draft_node/core/draft_core.h"
#include "draft_node/engine.h"
#include "eval/types.h"
#include "kernels/matmul.h"
#include "model/weights.h"
#include "score_node/core/score_core.h"
#include "score_node/engine.h"
#include "target_node/core/target_core.h"
#include "target_node/engine.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

namespace rift::eval {

struct NodesOptions {
  std::shared_ptr<const model::Weights> draft;
  std::shared_ptr<const model::Weights> target;  // null: answers are replayed
  std::int32_t context = 0;                      // longest prompt and answer
  std::int32_t max_draft_len = 11;
  std::uint64_t arena_bytes = 0;  // for one session; see session_bytes()
  std::uint64_t history_bytes = 2ULL << 30U;
  int threads = 1;
  DType kv_dtype = DType::kF16;
  kernels::MatmulMode mode = kernels::MatmulMode::kQuantized;
};

/// Bytes of arena that the largest session of `settings` needs.
/// Errors (thrown): kInvalidArgument, kOutOfRange, as policy::plan_layout.
[[nodiscard]] std::uint64_t session_bytes(std::span<const Setting> settings,
                                          const model::ModelConfig& draft,
                                          DType kv_dtype,
                                          std::int32_t context);

/// The draft's attention over the whole history, at some positions of an answer: what the mass that
/// a working set retains is measured against. probabilities [L, H, position + 1].
struct FullAttention {
  struct At {
    std::int32_t answer_position = 0;
    Position position = 0;  // of the query
    std::vector<float> probabilities;
  };
  std::vector<At> at;
};

/// The cores and engines of all three nodes on one thread, joined by a queue: what the nodes run,
/// without transport and without a clock that could decide anything. The same request gives the
/// same answer and the same measurement, seconds apart.
///
/// Without a target model answers are replayed: the target's part is the sequence's response, and
/// the draft, whose continuation is thus known, works through a round in one pass. At temperature 0
/// that gives what the target model would (tests/integration/eval_test.cc).
/// Thread: one.
class Nodes {
 public:
  explicit Nodes(const NodesOptions& options);
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  /// `max_tokens` new tokens; in a replay no more than the response has. `stop_tokens` end an
  /// answer of the target. `full`: where retained mass is to be measured; may be null.
  /// Errors (thrown): what a node refuses; kInvalidArgument for a replay at temperature > 0.
  [[nodiscard]] Measurement run(const Sequence& sequence,
                                const Setting& setting,
                                std::int32_t max_tokens,
                                std::span<const TokenId> stop_tokens,
                                const FullAttention* full);
  /// Of the last run: the answer's tokens.
  [[nodiscard]] const std::vector<TokenId>& answer() const { return answer_; }

  /// Attention of the draft model at `positions` of the sequence's response. One full pass, whose
  /// history the next run() of the same prompt takes over.
  [[nodiscard]] FullAttention attention(const Sequence& sequence,
                                        std::span<const std::int32_t> positions,
                                        std::int32_t window);

 private:
  using Event = std::variant<target_node::Event, draft_node::Event, score_node::Event>;

  void drain();
  void handle(target_node::Event& event);
  void handle(draft_node::Event& event);
  void handle(score_node::Event& event);
  void post(target_node::Event event) { queue_.emplace_back(std::move(event)); }
  void post(draft_node::Event event) { queue_.emplace_back(std::move(event)); }
  void post(score_node::Event event) { queue_.emplace_back(std::move(event)); }

  // Actions of the target.
  void act(target_node::SendDraft& action);
  void act(target_node::Prefill& action);
  void act(target_node::Verify& action);
  void act(target_node::EmitTokens& action);
  void act(target_node::Finish& action);
  void act(target_node::Fail& action);
  // Of the draft node.
  void act(draft_node::SendTarget& action);
  void act(draft_node::SendScore& action);
  void act(draft_node::OpenWorkingSet& action);
  void act(draft_node::PrefillJob& action);
  void act(draft_node::DraftJob& action);
  void act(draft_node::DropWorkingSet& action);
  void act(draft_node::Note& action);
  void act(draft_node::RefreshSwapped& action);
  void act(draft_node::StrideEnded& action);
  // Of the score node.
  void act(score_node::OpenHistory& action) { post(score_engine_.run(action)); }
  void act(score_node::Ingest& action) { post(score_engine_.run(action)); }
  void act(score_node::Select& action) { post(score_engine_.run(action)); }
  void act(score_node::Pack& action);
  void act(score_node::ReleaseHistory& action) { score_engine_.run(action); }
  void act(score_node::Put& action);
  void act(score_node::Send& action);

  /// Tokens of the replayed sequence from position `begin` on.
  [[nodiscard]] std::span<const TokenId> known_from(Position begin) const;
  void measure_mass(const draft_node::DraftJob& job);

  NodesOptions options_;
  ThreadPool pool_;
  score_node::ScoreEngine score_engine_;
  draft_node::Engine draft_engine_;
  std::unique_ptr<target_node::TargetEngine> target_engine_;
  PageBuffer arena_;
  PageBuffer send_buffer_;
  score_node::ScoreCore score_;
  std::unique_ptr<draft_node::DraftCore> draft_;
  target_node::TargetCore target_;
  std::deque<Event> queue_;
  std::uint64_t next_session_ = 1;
  std::uint64_t next_probe_ = 1;

  // Of the run under way.
  const Sequence* sequence_ = nullptr;
  std::vector<TokenId> known_;  // prompt and response of a replay
  const FullAttention* full_ = nullptr;
  std::vector<float> mass_;  // as full_->at; NaN where no query came by
  Measurement measured_;
  std::vector<TokenId> answer_;
  std::optional<target_node::Outcome> outcome_;
  std::optional<Error> failure_;
  bool verified_ = false;  // tokens that come are those of measured_.steps.back()
};

}  // namespace rift::eval
