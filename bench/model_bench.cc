// SPDX-License-Identifier: Apache-2.0
#include "bench/model_bench.h"

#include "common/clock.h"
#include "kernels/attention.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

namespace rift::bench {
namespace {

constexpr std::int32_t kNoiseRows = 256;

double matrix_bytes(const kernels::WeightView& w) {
  return static_cast<double>(w.rows) * static_cast<double>(row_bytes(w.dtype, w.cols));
}
double products(const kernels::WeightView& w) {
  return static_cast<double>(w.rows) * static_cast<double>(w.cols);
}

}  // namespace

std::string_view to_string(Test test) {
  switch (test) {
    case Test::kPrefill:
      return "prefill";
    case Test::kDecode:
      return "decode";
    case Test::kVerify:
      return "verify";
    case Test::kScore:
      return "score";
  }
  return "unknown";
}

ModelBench::ModelBench(std::shared_ptr<const model::Weights> weights,
                       const ModelBenchOptions& options)
    : weights_(std::move(weights)),
      options_(options),
      pool_(options.threads, options.cpus),
      runner_(
          weights_,
          {.max_batch = std::max(options.batch, options.max_width),
           .max_logit_rows = options.max_width,
           .mode = options.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized},
          pool_),
      cache_(weights_->config, DType::kF16, options.capacity),
      logits_(static_cast<std::size_t>(options.max_width) *
              static_cast<std::size_t>(weights_->config.vocab)) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  noise_.resize(
      static_cast<std::size_t>(kNoiseRows * weights_->config.kv_heads * weights_->config.head_dim));
  std::generate(noise_.begin(), noise_.end(), [&] { return normal(random); });
}

void ModelBench::fill(std::int32_t depth) {
  cache_.truncate(std::min(cache_.size(), depth));
  const model::ModelConfig& config = weights_->config;
  const std::int64_t cols = std::int64_t{config.kv_heads} * config.head_dim;
  while (cache_.size() < depth) {
    const MatView<const float> rows(
        noise_.data(), std::min(kNoiseRows, depth - cache_.size()), cols);
    for (std::int32_t layer = 0; layer < config.layers; ++layer) {
      cache_.append(layer, rows, rows, pool_);
    }
  }
}

void ModelBench::pass(std::int32_t tokens, std::int32_t width, std::int32_t logit_rows) {
  for (std::int32_t done = 0; done < tokens; done += width) {
    const std::int32_t count = std::min(width, tokens - done);
    const std::int32_t wanted = std::min(count, logit_rows);
    std::vector<TokenId> ids(static_cast<std::size_t>(count));
    std::vector<Position> positions(ids.size());
    std::iota(positions.begin(), positions.end(), cache_.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = (positions[i] * 131 + 17) % std::min(weights_->config.vocab, 32768);
    }
    std::vector<std::int32_t> rows(static_cast<std::size_t>(wanted));
    std::iota(rows.begin(), rows.end(), count - wanted);
    runner_.forward(ids, positions, cache_, rows, {logits_.data(), wanted, weights_->config.vocab});
  }
}

// Every layer's and head's window scores, heads side by side as the score node runs them.
double ModelBench::score(const Point& point) {
  const model::ModelConfig& config = weights_->config;
  const std::int32_t group = config.query_heads / config.kv_heads;
  const std::size_t queries = static_cast<std::size_t>(point.width) *
                              static_cast<std::size_t>(group) *
                              static_cast<std::size_t>(config.head_dim);
  std::vector<float> q(queries);
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = noise_[i % noise_.size()];
  }
  const TimePoint start = Clock::now();
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> per_head(static_cast<std::size_t>(group) *
                                static_cast<std::size_t>(point.depth));
    std::vector<float> scratch(kernels::window_score_scratch(point.width, point.depth));
    for (std::int64_t i = begin; i < end; ++i) {
      kernels::WindowScoreArgs args;
      args.q = q.data();
      args.window = point.width;
      args.group = group;
      args.head_dim = config.head_dim;
      args.scale = config.attention_scale;
      args.dtype = cache_.geometry().dtype;
      args.keys = cache_.keys(static_cast<std::int32_t>(i / config.kv_heads),
                              static_cast<std::int32_t>(i % config.kv_heads));
      args.key_count = point.depth;
      args.per_head = per_head.data();
      args.scratch = scratch.data();
      kernels::window_scores(args);
    }
  };
  pool_.parallel_for(std::int64_t{config.layers} * config.kv_heads, 1, std::ref(body));
  return seconds_between(start, Clock::now());
}

double ModelBench::run(const Point& point) {
  fill(point.depth);
  if (point.test == Test::kScore) {
    return score(point);
  }
  const TimePoint start = Clock::now();
  pass(point.tokens, point.width, point.test == Test::kVerify ? point.width : 1);
  return seconds_between(start, Clock::now());
}

Work ModelBench::work(const Point& point) const {
  const model::ModelConfig& c = weights_->config;
  const double kv_bytes = static_cast<double>(cache_.geometry().bytes_per_position());
  const double per_key = 2.0 * c.layers * c.query_heads * c.head_dim;  // q k, or p v
  Work work;
  if (point.test == Test::kScore) {
    work.read_bytes = kv_bytes / 2.0 * point.depth;
    work.f32_ops = per_key * point.width * (point.depth - (point.width - 1) / 2.0);
    return work;
  }
  double layers_bytes = 0.0;
  double layers_products = 0.0;
  for (const model::LayerWeights& layer : weights_->layers) {
    for (const kernels::WeightView* w :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down}) {
      layers_bytes += matrix_bytes(*w);
      layers_products += products(*w);
    }
  }
  for (std::int32_t done = 0; done < point.tokens; done += point.width) {
    const std::int32_t rows = std::min(point.width, point.tokens - done);
    const std::int32_t logit_rows = point.test == Test::kVerify ? rows : 1;
    const double end = point.depth + done + rows;
    work.read_bytes += layers_bytes + matrix_bytes(weights_->output) + kv_bytes * end;
    work.int8_ops += 2.0 * (layers_products * rows + products(weights_->output) * logit_rows);
    work.f32_ops += 2.0 * per_key * rows * (end - (rows - 1) / 2.0);
  }
  return work;
}

}  // namespace rift::bench
