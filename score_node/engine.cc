// SPDX-License-Identifier: Apache-2.0
#include "score_node/engine.h"

#include "common/check.h"
#include "common/clock.h"
#include "common/error.h"
#include "score_node/scoring.h"

#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

namespace rift::score_node {
namespace {

std::uint64_t nanoseconds_since(TimePoint begin) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<Nanoseconds>(Clock::now() - begin).count());
}

/// A job's boundary: what it throws becomes the event's error.
template <typename Event, typename Body>
Event guarded(Event event, const Body& body) {
  try {
    body(event);
  } catch (const Error& error) {
    event.error = error;
  } catch (const std::bad_alloc&) {
    event.error = fail(Errc::kResourceExhausted, "the score node is out of memory");
  }
  return event;
}

}  // namespace

ScoreEngine::ScoreEngine(std::shared_ptr<const model::Weights> weights,
                         const EngineOptions& options)
    : weights_(std::move(weights)),
      pool_(options.threads, options.cpus),
      runner_(
          weights_, {.max_batch = options.chunk, .max_logit_rows = 1, .mode = options.mode}, pool_),
      histories_(weights_, options.kv_dtype, options.max_history_bytes) {}

HistoryOpened ScoreEngine::run(const OpenHistory& job) {
  HistoryOpened event;
  event.session = job.session;
  return guarded(std::move(event), [&](HistoryOpened& e) { e.reused = histories_.open(job); });
}

Ingested ScoreEngine::run(const Ingest& job) {
  Ingested event;
  event.session = job.session;
  return guarded(std::move(event), [&](Ingested& e) {
    ScoreHistory& history = histories_.at(job.session);
    if (history.truncate(job.start) < job.start) {
      e.size = history.size();
      e.queries_begin = history.queries_begin();
      e.history_bytes = history.bytes();
      return;
    }
    std::vector<Position> positions(job.tokens.size());
    std::iota(positions.begin(), positions.end(), job.start);
    runner_.forward(job.tokens, positions, history, {}, {});
    e.size = history.size();
    e.queries_begin = history.queries_begin();
    e.history_bytes = history.bytes();
  });
}

Selected ScoreEngine::run(const Select& job) {
  Selected event;
  event.session = job.session;
  return guarded(std::move(event), [&](Selected& e) {
    ScoreHistory& history = histories_.at(job.session);
    const std::int32_t heads = history.geometry().kv_heads;
    const std::int64_t count = std::int64_t{history.geometry().layers} * heads;
    const TimePoint began = Clock::now();
    const Scoring scoring(weights_->config, history, job);
    std::vector<BlockScores> scores(static_cast<std::size_t>(count));
    pool_.parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        scores[static_cast<std::size_t>(i)] = scoring.score(static_cast<std::int32_t>(i / heads),
                                                            static_cast<std::int32_t>(i % heads));
      }
    });
    e.score_ns = nanoseconds_since(began);
    const TimePoint scored = Clock::now();
    e.heads = choose_blocks(std::move(scores), heads, job);
    e.select_ns = nanoseconds_since(scored);
  });
}

Packed ScoreEngine::run(const Pack& job, std::span<std::byte> buffer) {
  Packed event;
  event.session = job.session;
  event.chunk = job.chunk;
  return guarded(std::move(event), [&](Packed& e) {
    const TimePoint began = Clock::now();
    ScoreHistory& history = histories_.at(job.session);
    const std::size_t vector_bytes = history.geometry().vector_bytes();
    for (const Copy& copy : job.copies) {
      const std::size_t used = static_cast<std::size_t>(copy.count) * vector_bytes;
      const std::size_t all = static_cast<std::size_t>(copy.padded) * vector_bytes;
      RIFT_CHECK(
          copy.offset + all <= buffer.size() && copy.first + copy.count <= history.capacity(),
          "copy of {} positions from {}",
          copy.count,
          copy.first);
      const std::byte* plane =
          copy.values ? history.values(copy.layer, copy.head) : history.keys(copy.layer, copy.head);
      std::byte* to = buffer.data() + copy.offset;
      std::memcpy(to, plane + static_cast<std::size_t>(copy.first) * vector_bytes, used);
      std::memset(to + used, 0, all - used);
    }
    e.pack_ns = nanoseconds_since(began);
  });
}

}  // namespace rift::score_node
