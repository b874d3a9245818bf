// SPDX-License-Identifier: Apache-2.0
#include "model/runner.h"

#include "common/check.h"
#include "common/error.h"
#include "kernels/attention.h"
#include "kernels/ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <new>
#include <utility>

namespace rift::model {
namespace {

constexpr std::int64_t kAlignFloats = 16;  // one cache line
// Floats per range below which handing work to another thread costs more than the work.
constexpr std::int64_t kFloatsPerRange = 16384;
// silu(gate) * up is cut at fixed columns, so that which element falls into a vector's tail does
// not depend on the batch or the threads.
constexpr std::int64_t kSiluChunk = 2048;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// One allocation, handed out in pieces that start on cache lines. Its pages are touched at once:
/// what a runner needs is resident from the start. Resource type.
class Scratch {
 public:
  explicit Scratch(std::int64_t floats) : size_(floats) {
    data_.reset(static_cast<float*>(std::aligned_alloc(kAlignFloats * sizeof(float), bytes())));
    if (data_ == nullptr) {
      throw std::bad_alloc();
    }
    std::fill_n(data_.get(), size_, 0.0F);
  }

  [[nodiscard]] static std::int64_t piece(std::int64_t floats) {
    return ceil_div(floats, kAlignFloats) * kAlignFloats;
  }
  float* take(std::int64_t floats) {
    float* start = data_.get() + used_;
    used_ += piece(floats);
    RIFT_CHECK(used_ <= size_, "scratch of {} floats", size_);
    return start;
  }
  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(size_) * sizeof(float);
  }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_;
  std::int64_t used_ = 0;
};

std::int64_t scratch_floats(const ModelConfig& c, std::int64_t rows) {
  const std::int64_t q_cols = static_cast<std::int64_t>(c.query_heads) * c.head_dim;
  const std::int64_t kv_cols = static_cast<std::int64_t>(c.kv_heads) * c.head_dim;
  return 2 * Scratch::piece(rows * c.hidden) + 2 * Scratch::piece(rows * q_cols) +
         2 * Scratch::piece(rows * kv_cols) + 2 * Scratch::piece(rows * c.feed_forward) +
         2 * Scratch::piece(rows * (c.head_dim / 2));
}

/// Runs body(row) for every row of [rows, cols] on the pool; the body looks at its row only.
template <typename Body>
void for_each_row(ThreadPool& pool, std::int64_t rows, std::int64_t cols, const Body& body) {
  const auto range = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      body(row);
    }
  };
  // By reference: a std::function that holds the captures would allocate.
  pool.parallel_for(rows, std::max<std::int64_t>(1, kFloatsPerRange / cols), std::ref(range));
}

}  // namespace

struct Runner::Impl {
  Impl(std::shared_ptr<const Weights> w, const RunnerOptions& o, ThreadPool& p);

  void check_request(std::span<const TokenId> tokens,
                     std::span<const Position> positions,
                     std::span<const std::int32_t> wanted,
                     MatView<float> logits) const;
  void run_layers(std::span<const Position> positions,
                  AttentionBackend& attention,
                  std::span<const std::int32_t> wanted);
  void project_logits(MatView<float> logits);

  void embed(std::span<const TokenId> tokens);
  void compute_angles(std::span<const Position> positions);
  void attention_block(std::int32_t index,
                       std::span<const Position> positions,
                       AttentionBackend& attention);
  void add_bias_and_norm(const LayerWeights& layer);
  void rotate();
  void keep_rows(std::span<const std::int32_t> wanted);
  void project_attention(const LayerWeights& layer);
  void feed_forward_block(const LayerWeights& layer);
  void silu_gate();
  void normalise(std::span<const float> weight);
  void add_to_residual();

  [[nodiscard]] MatView<float> view(float* data, std::int64_t cols) const {
    return {data, rows, cols};
  }
  void matmul(const kernels::WeightView& weight, float* out) {
    kernels::matmul(activations, weight, view(out, weight.rows), pool);
  }
  void prepare(const float* x, std::int64_t cols) {
    activations.prepare({x, rows, cols}, options.mode, pool);
  }

  std::shared_ptr<const Weights> weights;
  const ModelConfig& config;
  RunnerOptions options;
  ThreadPool& pool;
  kernels::Activations activations;
  LayerHook hook;

  const std::int64_t hidden;
  const std::int64_t q_cols;   // H * D
  const std::int64_t kv_cols;  // G * D
  const std::int64_t half_dim;
  Scratch scratch;
  float* residual;        // [T, C]
  float* normed;          // [T, C], also what a block adds to the residual
  float* q;               // [T, H * D]
  float* attended;        // [T, H * D]
  float* k;               // [T, G * D]
  float* v;               // [T, G * D]
  float* gate;            // [T, F]
  float* up;              // [T, F]
  float* cos;             // [T, D / 2]
  float* sin;             // [T, D / 2]
  std::int64_t rows = 0;  // T of the pass in progress
};

Runner::Impl::Impl(std::shared_ptr<const Weights> w, const RunnerOptions& o, ThreadPool& p)
    : weights(std::move(w)),
      config(weights->config),
      options(o),
      pool(p),
      hidden(config.hidden),
      q_cols(static_cast<std::int64_t>(config.query_heads) * config.head_dim),
      kv_cols(static_cast<std::int64_t>(config.kv_heads) * config.head_dim),
      half_dim(config.head_dim / 2),
      scratch(scratch_floats(config, o.max_batch)),
      residual(scratch.take(o.max_batch * hidden)),
      normed(scratch.take(o.max_batch * hidden)),
      q(scratch.take(o.max_batch * q_cols)),
      attended(scratch.take(o.max_batch * q_cols)),
      k(scratch.take(o.max_batch * kv_cols)),
      v(scratch.take(o.max_batch * kv_cols)),
      gate(scratch.take(static_cast<std::int64_t>(o.max_batch) * config.feed_forward)),
      up(scratch.take(static_cast<std::int64_t>(o.max_batch) * config.feed_forward)),
      cos(scratch.take(o.max_batch * half_dim)),
      sin(scratch.take(o.max_batch * half_dim)) {
  RIFT_CHECK(config.rope_frequencies.size() == static_cast<std::size_t>(half_dim),
             "{} rope frequencies for a head of {}",
             config.rope_frequencies.size(),
             config.head_dim);
  const std::int64_t widest =
      std::max({hidden, q_cols, static_cast<std::int64_t>(config.feed_forward)});
  activations.reserve(o.max_batch, widest);
  kernels::reserve_attend(config.head_dim, config.query_heads / config.kv_heads, pool);
}

void Runner::Impl::embed(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (token < 0 || token >= weights->embedding.rows) {
      throw fail(Errc::kInvalidArgument,
                 "token id {} is outside the vocabulary of {}",
                 token,
                 weights->embedding.rows);
    }
  }
  for_each_row(pool, rows, hidden, [&](std::int64_t t) {
    kernels::dequantize_row(
        weights->embedding, tokens[static_cast<std::size_t>(t)], residual + t * hidden);
  });
}

// A function of the position alone, in double: far positions lose nothing.
void Runner::Impl::compute_angles(std::span<const Position> positions) {
  constexpr std::int64_t kCostOfOne = 32;  // a sine and a cosine, in floats of a plain loop
  for_each_row(pool, rows, half_dim * kCostOfOne, [&](std::int64_t t) {
    const double position = positions[static_cast<std::size_t>(t)];
    for (std::int64_t i = 0; i < half_dim; ++i) {
      const double angle =
          position * static_cast<double>(config.rope_frequencies[static_cast<std::size_t>(i)]);
      cos[t * half_dim + i] = static_cast<float>(std::cos(angle));
      sin[t * half_dim + i] = static_cast<float>(std::sin(angle));
    }
  });
}

void Runner::Impl::normalise(std::span<const float> weight) {
  for_each_row(pool, rows, hidden, [&](std::int64_t t) {
    kernels::rms_norm(
        view(residual, hidden).row_span(t), weight, config.norm_eps, normed + t * hidden);
  });
}

void Runner::Impl::add_to_residual() {
  for_each_row(pool, rows, hidden, [&](std::int64_t t) {
    kernels::add(view(residual, hidden).row_span(t), view(normed, hidden).row_span(t));
  });
}

void Runner::Impl::add_bias_and_norm(const LayerWeights& layer) {
  if (layer.q_bias.empty() && layer.q_norm.empty()) {
    return;
  }
  const std::int64_t dim = config.head_dim;
  const auto norm_heads = [&](float* row, std::int64_t cols, std::span<const float> weight) {
    for (std::int64_t at = 0; at < cols; at += dim) {
      kernels::rms_norm(
          {row + at, static_cast<std::size_t>(dim)}, weight, config.norm_eps, row + at);
    }
  };
  for_each_row(pool, rows, q_cols + 2 * kv_cols, [&](std::int64_t t) {
    if (!layer.q_bias.empty()) {
      kernels::add(view(q, q_cols).row_span(t), layer.q_bias);
      kernels::add(view(k, kv_cols).row_span(t), layer.k_bias);
      kernels::add(view(v, kv_cols).row_span(t), layer.v_bias);
    }
    if (!layer.q_norm.empty()) {
      norm_heads(q + t * q_cols, q_cols, layer.q_norm);
      norm_heads(k + t * kv_cols, kv_cols, layer.k_norm);
    }
  });
}

void Runner::Impl::rotate() {
  const auto rope =
      config.rope_layout == RopeLayout::kHalf ? kernels::rope_half : kernels::rope_interleaved;
  for_each_row(pool, rows, q_cols + kv_cols, [&](std::int64_t t) {
    const float* c = cos + t * half_dim;
    const float* s = sin + t * half_dim;
    rope(q + t * q_cols, config.query_heads, config.head_dim, c, s);
    rope(k + t * kv_cols, config.kv_heads, config.head_dim, c, s);
  });
}

void Runner::Impl::attention_block(std::int32_t index,
                                   std::span<const Position> positions,
                                   AttentionBackend& attention) {
  const LayerWeights& layer = weights->layers[static_cast<std::size_t>(index)];
  normalise(layer.attention_norm);
  prepare(normed, hidden);
  matmul(layer.q, q);
  matmul(layer.k, k);
  matmul(layer.v, v);
  add_bias_and_norm(layer);
  if (attention.wants_raw_queries()) {
    attention.raw_queries(index, {q, rows, q_cols});
  }
  rotate();
  attention.attend(index,
                   positions,
                   {q, rows, q_cols},
                   {k, rows, kv_cols},
                   {v, rows, kv_cols},
                   {attended, rows, q_cols},
                   pool);
}

// After the last attention only the rows whose logits are wanted matter: they move to the front.
void Runner::Impl::keep_rows(std::span<const std::int32_t> wanted) {
  std::int64_t to = 0;
  for (const std::int64_t from : wanted) {
    if (from != to) {
      std::copy_n(residual + from * hidden, hidden, residual + to * hidden);
      std::copy_n(attended + from * q_cols, q_cols, attended + to * q_cols);
    }
    ++to;
  }
  rows = to;
}

void Runner::Impl::project_attention(const LayerWeights& layer) {
  prepare(attended, q_cols);
  matmul(layer.o, normed);
  add_to_residual();
}

void Runner::Impl::silu_gate() {
  const std::int64_t cols = config.feed_forward;
  const std::int64_t chunks = ceil_div(cols, kSiluChunk);
  for_each_row(pool, rows * chunks, 2 * kSiluChunk, [&](std::int64_t i) {
    const std::int64_t begin = i % chunks * kSiluChunk;
    const auto length = static_cast<std::size_t>(std::min(kSiluChunk, cols - begin));
    const std::int64_t at = i / chunks * cols + begin;
    kernels::silu_multiply({gate + at, length}, {up + at, length}, gate + at);
  });
}

void Runner::Impl::feed_forward_block(const LayerWeights& layer) {
  normalise(layer.feed_forward_norm);
  prepare(normed, hidden);
  matmul(layer.gate, gate);
  matmul(layer.up, up);
  silu_gate();
  prepare(gate, config.feed_forward);
  matmul(layer.down, normed);
  add_to_residual();
}

Runner::Runner(std::shared_ptr<const Weights> weights,
               const RunnerOptions& options,
               ThreadPool& pool) {
  RIFT_CHECK(options.max_batch >= 1, "max_batch = {}", options.max_batch);
  impl_ = std::make_unique<Impl>(std::move(weights), options, pool);
}

Runner::~Runner() = default;

const ModelConfig& Runner::config() const { return impl_->config; }

const Weights& Runner::weights() const { return *impl_->weights; }

void Runner::set_layer_hook(LayerHook hook) { impl_->hook = std::move(hook); }

std::uint64_t Runner::scratch_bytes() const {
  return impl_->scratch.bytes() + impl_->activations.bytes();
}

void Runner::Impl::check_request(std::span<const TokenId> tokens,
                                 std::span<const Position> positions,
                                 std::span<const std::int32_t> wanted,
                                 MatView<float> logits) const {
  const std::size_t count = tokens.size();
  RIFT_CHECK(count >= 1 && count <= static_cast<std::size_t>(options.max_batch),
             "{} tokens in a pass of at most {}",
             count,
             options.max_batch);
  RIFT_CHECK(positions.size() == count, "{} positions for {} tokens", positions.size(), count);
  RIFT_CHECK(wanted.size() <= static_cast<std::size_t>(options.max_logit_rows),
             "logits of {} rows, at most {}",
             wanted.size(),
             options.max_logit_rows);
  if (wanted.empty()) {
    return;
  }
  RIFT_CHECK(
      wanted.front() >= 0 && static_cast<std::size_t>(wanted.back()) < count &&
          std::adjacent_find(wanted.begin(), wanted.end(), std::greater_equal<>()) == wanted.end(),
      "logit rows not ascending or outside 0..{}",
      count - 1);
  RIFT_CHECK(logits.rows == static_cast<std::int64_t>(wanted.size()) &&
                 logits.cols == weights->output.rows,
             "logits [{}, {}]",
             logits.rows,
             logits.cols);
}

void Runner::Impl::run_layers(std::span<const Position> positions,
                              AttentionBackend& attention,
                              std::span<const std::int32_t> wanted) {
  for (std::int32_t i = 0; i < config.layers; ++i) {
    const LayerWeights& layer = weights->layers[static_cast<std::size_t>(i)];
    attention_block(i, positions, attention);
    // The hook is owed every row.
    if (i + 1 == config.layers && !hook) {
      keep_rows(wanted);
    }
    if (rows == 0) {
      return;
    }
    project_attention(layer);
    feed_forward_block(layer);
    if (hook) {
      hook(i, {residual, rows, hidden});
    }
  }
  if (hook) {
    keep_rows(wanted);
  }
}

void Runner::Impl::project_logits(MatView<float> logits) {
  normalise(weights->output_norm);
  prepare(normed, hidden);
  kernels::matmul(activations, weights->output, logits, pool);
}

void Runner::forward(std::span<const TokenId> tokens,
                     std::span<const Position> positions,
                     AttentionBackend& attention,
                     std::span<const std::int32_t> logit_rows,
                     MatView<float> logits) {
  Impl& r = *impl_;
  r.check_request(tokens, positions, logit_rows, logits);
  r.rows = static_cast<std::int64_t>(tokens.size());
  r.embed(tokens);
  r.compute_angles(positions);
  r.run_layers(positions, attention, logit_rows);
  if (r.rows > 0) {
    r.project_logits(logits);
  }
}

}  // namespace rift::model
