// SPDX-License-Identifier: Apache-2.0
#include "score_node/history.h"

#include "common/check.h"
#include "kernels/attention.h"
#include "policy/sinks.h"

#include <algorithm>

namespace rift::score_node {
namespace {

std::int32_t ring_positions(std::int32_t window, std::int32_t capacity) {
  return static_cast<std::int32_t>(
      std::min<std::int64_t>(std::int64_t{window} + ScoreHistory::kQuerySlack, capacity));
}

std::int64_t row_floats(const model::ModelConfig& config) {
  return std::int64_t{config.query_heads} * config.head_dim;
}

StatisticsSpec statistics_of(Selector selector, const model::ModelConfig& config) {
  StatisticsSpec spec;
  if (selector == Selector::kExpectedAttention) {
    spec.second = StatisticsSpec::Second::kProducts;
    spec.skip = policy::kSinks;
  } else if (selector == Selector::kTriAttention) {
    spec.second = StatisticsSpec::Second::kPairLengths;
    spec.interleaved_pairs = config.rope_layout == model::RopeLayout::kInterleaved;
  }
  return spec;
}

QueryStatistics::Shape statistics_shape(const model::ModelConfig& config, std::int32_t slack) {
  return {config.layers, config.query_heads, config.head_dim, slack};
}

/// Floats of a plane [L, G, capacity] that one selector wants.
std::size_t plane_floats(bool wanted, const model::ModelConfig& config, std::int32_t capacity) {
  return wanted ? static_cast<std::size_t>(config.layers) *
                      static_cast<std::size_t>(config.kv_heads) * static_cast<std::size_t>(capacity)
                : 0;
}

}  // namespace

ScoreHistory::ScoreHistory(const model::ModelConfig& config,
                           DType dtype,
                           std::int32_t capacity,
                           std::int32_t window,
                           Selector selector,
                           const ValueWorth& worth)
    : KvCache(config, dtype, capacity),
      row_(row_floats(config)),
      selector_(selector),
      worth_(worth),
      norms_(plane_floats(selector == Selector::kCriticalKv, config, capacity)),
      sums_(plane_floats(selector == Selector::kH2o, config, capacity)),
      statistics_(statistics_shape(config, ring_positions(window, capacity)),
                  statistics_of(selector, config)) {
  set_window(window);
}

void ScoreHistory::set_window(std::int32_t window) {
  const std::int32_t ring = ring_positions(window, capacity());
  if (ring != ring_) {
    ring_ = ring;
    queries_.assign(static_cast<std::size_t>(config().layers) * static_cast<std::size_t>(ring) *
                        static_cast<std::size_t>(row_),
                    0.0F);
  }
  queries_begin_ = size();
}

std::int32_t ScoreHistory::truncate(std::int32_t size) {
  std::int32_t left = statistics_.truncate(std::min(size, KvCache::size()));
  if (!sums_.empty() && left < KvCache::size()) {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    left = 0;
  }
  KvCache::truncate(left);
  queries_begin_ = std::min(queries_begin_, left);
  return left;
}

bool ScoreHistory::serves(Selector selector, std::int32_t window) const {
  return selector == selector_ &&
         (!wants_raw_queries() || statistics_.slack() >= ring_positions(window, capacity()));
}

void ScoreHistory::raw_queries(std::int32_t layer, MatView<const float> q) {
  statistics_.append(layer, size(), q);
}

std::span<const float> ScoreHistory::value_norms(std::int32_t layer, std::int32_t head) const {
  return head_of(norms_, layer, head);
}

std::span<const float> ScoreHistory::attention_sums(std::int32_t layer, std::int32_t head) const {
  return head_of(sums_, layer, head);
}

std::span<const float> ScoreHistory::head_of(const std::vector<float>& plane,
                                             std::int32_t layer,
                                             std::int32_t head) const {
  if (plane.empty()) {
    return {};
  }
  const auto index = static_cast<std::size_t>(layer * config().kv_heads + head);
  return std::span(plane).subspan(index * static_cast<std::size_t>(capacity()),
                                  static_cast<std::size_t>(size()));
}

void ScoreHistory::add_sums(std::int32_t layer,
                            Position first,
                            MatView<const float> q,
                            ThreadPool& pool) {
  const std::int32_t heads = config().kv_heads;
  const std::int32_t group = config().query_heads / heads;
  const auto keys = static_cast<std::int32_t>(first + q.rows);
  const std::size_t scratch = kernels::key_share_scratch(q.rows, group, keys);
  share_scratch_.resize(std::max(share_scratch_.size(), scratch * static_cast<std::size_t>(heads)));
  pool.parallel_for(heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto head = static_cast<std::int32_t>(begin); head < end; ++head) {
      const kernels::KvRun run{this->keys(layer, head), nullptr, keys};
      const auto plane = static_cast<std::size_t>(layer * heads + head);
      const std::int64_t columns = std::int64_t{group} * config().head_dim;
      kernels::add_key_shares(
          {.q = {q.data + head * columns, q.rows, columns, q.stride},
           .group = group,
           .head_dim = config().head_dim,
           .scale = config().attention_scale,
           .dtype = geometry().dtype,
           .runs = {&run, 1},
           .visible = first + 1,
           .sums = sums_.data() + plane * static_cast<std::size_t>(capacity()),
           .scratch = share_scratch_.data() + static_cast<std::size_t>(head) * scratch});
    }
  });
}

void ScoreHistory::store_norms(std::int32_t layer,
                               Position first,
                               MatView<const float> v,
                               ThreadPool& pool) {
  const auto heads = static_cast<std::size_t>(config().kv_heads);
  const auto rows = static_cast<std::size_t>(v.rows);
  batch_norms_.resize(std::max(batch_norms_.size(), heads * rows));
  const MatView<float> norms(batch_norms_.data(), config().kv_heads, v.rows);
  worth_.projection->norms(
      worth_.weights->layers[static_cast<std::size_t>(layer)].o, v, norms, pool);
  for (std::size_t head = 0; head < heads; ++head) {
    const std::size_t plane = static_cast<std::size_t>(layer) * heads + head;
    std::copy_n(
        batch_norms_.data() + head * rows,
        rows,
        norms_.begin() + static_cast<std::ptrdiff_t>(plane * static_cast<std::size_t>(capacity()) +
                                                     static_cast<std::size_t>(first)));
  }
}

std::size_t ScoreHistory::query_offset(std::int32_t layer, Position position) const {
  return (static_cast<std::size_t>(layer) * static_cast<std::size_t>(ring_) +
          static_cast<std::size_t>(position % ring_)) *
         static_cast<std::size_t>(row_);
}

void ScoreHistory::attend(std::int32_t layer,
                          std::span<const Position> positions,
                          MatView<const float> q,
                          MatView<const float> k,
                          MatView<const float> v,
                          MatView<float> out,
                          ThreadPool& pool) {
  KvCache::attend(layer, positions, q, k, v, out, pool);
  if (!norms_.empty()) {
    store_norms(layer, positions.front(), v, pool);
  }
  if (!sums_.empty()) {
    add_sums(layer, positions.front(), q, pool);
  }
  for (std::int64_t t = std::max<std::int64_t>(0, q.rows - ring_); t < q.rows; ++t) {
    const auto row = q.row_span(t);
    std::copy(row.begin(),
              row.end(),
              queries_.begin() + static_cast<std::ptrdiff_t>(
                                     query_offset(layer, positions[static_cast<std::size_t>(t)])));
  }
  if (layer == config().layers - 1) {
    queries_begin_ = std::max(queries_begin_, size() - ring_);
  }
}

void ScoreHistory::copy_queries(std::int32_t layer,
                                std::int32_t head,
                                Position end,
                                std::int32_t window,
                                std::span<float> out) const {
  RIFT_CHECK(end <= size() && end - window >= queries_begin_,
             "queries [{}, {}) of [{}, {})",
             end - window,
             end,
             queries_begin_,
             size());
  const auto group = static_cast<std::size_t>(row_ / config().kv_heads);
  RIFT_CHECK(out.size() == group * static_cast<std::size_t>(window), "out [{}]", out.size());
  for (std::int32_t i = 0; i < window; ++i) {
    const std::size_t from =
        query_offset(layer, end - window + i) + static_cast<std::size_t>(head) * group;
    std::copy_n(queries_.begin() + static_cast<std::ptrdiff_t>(from),
                group,
                out.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * group));
  }
}

std::uint64_t ScoreHistory::capacity_bytes() const {
  return geometry().bytes_per_position() * static_cast<std::uint64_t>(capacity()) + extra_bytes();
}

std::uint64_t ScoreHistory::capacity_bytes(const model::ModelConfig& config,
                                           DType dtype,
                                           std::int32_t capacity,
                                           std::int32_t window,
                                           Selector selector) {
  const KvGeometry geometry{config.layers, config.kv_heads, config.head_dim, dtype};
  const auto ring = static_cast<std::uint64_t>(ring_positions(window, capacity));
  return geometry.bytes_per_position() * static_cast<std::uint64_t>(capacity) +
         ring * static_cast<std::uint64_t>(row_floats(config) * config.layers) * sizeof(float) +
         plane_floats(
             selector == Selector::kCriticalKv || selector == Selector::kH2o, config, capacity) *
             sizeof(float) +
         QueryStatistics::bytes(statistics_shape(config, ring_positions(window, capacity)),
                                statistics_of(selector, config));
}

}  // namespace rift::score_node
