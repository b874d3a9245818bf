// SPDX-License-Identifier: Apache-2.0
#include "score_node/history_store.h"

#include "common/check.h"
#include "common/error.h"

#include <algorithm>
#include <utility>

namespace rift::score_node {

HistoryStore::HistoryStore(std::shared_ptr<const model::Weights> weights,
                           DType dtype,
                           std::uint64_t max_bytes)
    : weights_(std::move(weights)),
      projection_({weights_->config.query_heads,
                   weights_->config.kv_heads,
                   weights_->config.head_dim,
                   weights_->config.hidden}),
      dtype_(dtype),
      max_bytes_(max_bytes) {}

std::uint64_t HistoryStore::used_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [session, history] : open_) {
    bytes += history->capacity_bytes();
  }
  for (const Cached& cached : cached_) {
    bytes += cached.history->capacity_bytes();
  }
  return bytes;
}

ScoreHistory& HistoryStore::at(SessionRef session) const {
  const auto found = open_.find(session);
  RIFT_CHECK(found != open_.end(), "session {} is not open", static_cast<std::uint64_t>(session));
  return *found->second;
}

std::int32_t HistoryStore::open(const OpenHistory& job) {
  std::int32_t reused = 0;
  std::unique_ptr<ScoreHistory> history = take_over(job, reused);
  if (!history) {
    history = create(job);
  }
  open_[job.session] = std::move(history);
  return reused;
}

/// The cached history with the longest common prefix, cut to it. The window's queries are computed
/// again: they may have belonged to other tokens.
std::unique_ptr<ScoreHistory> HistoryStore::take_over(const OpenHistory& job,
                                                      std::int32_t& reused) {
  auto best = cached_.end();
  for (auto it = cached_.begin(); it != cached_.end(); ++it) {
    const auto [mine, theirs] =
        std::mismatch(it->tokens.begin(), it->tokens.end(), job.tokens.begin(), job.tokens.end());
    const auto common = static_cast<std::int32_t>(theirs - job.tokens.begin());
    const std::int32_t useful =
        std::min(common, static_cast<std::int32_t>(job.tokens.size()) - job.window);
    const ScoreHistory& history = *it->history;
    if (useful > reused && history.capacity() >= job.capacity &&
        history.serves(job.selector, job.window) && useful >= history.shortest_prefix()) {
      reused = useful;
      best = it;
    }
  }
  if (best == cached_.end()) {
    return nullptr;
  }
  std::unique_ptr<ScoreHistory> history = std::move(best->history);
  cached_.erase(best);
  reused = history->truncate(reused);
  history->set_window(job.window);
  return history;
}

std::unique_ptr<ScoreHistory> HistoryStore::create(const OpenHistory& job) {
  const std::uint64_t needed = ScoreHistory::capacity_bytes(
      weights_->config, dtype_, job.capacity, job.window, job.selector);
  while (!cached_.empty() && used_bytes() + needed > max_bytes_) {
    cached_.pop_back();
  }
  if (const std::uint64_t used = used_bytes(); used + needed > max_bytes_) {
    throw fail(Errc::kResourceExhausted,
               "a history of {} positions needs {} bytes; {} open sessions hold {} of the {} that "
               "--history-bytes allows",
               job.capacity,
               needed,
               open_.size(),
               used,
               max_bytes_);
  }
  return std::make_unique<ScoreHistory>(weights_->config,
                                        dtype_,
                                        job.capacity,
                                        job.window,
                                        job.selector,
                                        ValueWorth{weights_.get(), &projection_});
}

void HistoryStore::release(const ReleaseHistory& job) {
  const auto found = open_.find(job.session);
  if (found == open_.end()) {
    return;  // it could not be opened
  }
  std::unique_ptr<ScoreHistory> history = std::move(found->second);
  open_.erase(found);
  if (!job.tokens.empty()) {
    cached_.push_front({job.tokens, std::move(history)});
  }
}

}  // namespace rift::score_node
