// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/attention.h"

#include "common/f16.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace rift::kernels::ref {
namespace {

double element(DType type, const void* from, std::int64_t i) {
  if (type == DType::kF32) {
    float value = 0.0F;
    std::memcpy(&value, static_cast<const std::byte*>(from) + 4 * i, sizeof(value));
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, static_cast<const std::byte*>(from) + 2 * i, sizeof(bits));
  return type == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

double dot(const float* q, DType type, const void* keys, std::int64_t key, std::int64_t head_dim) {
  double sum = 0.0;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    sum += static_cast<double>(q[d]) * element(type, keys, key * head_dim + d);
  }
  return sum;
}

void softmax(std::vector<double>& x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0.0;
  for (double& value : x) {
    value = std::exp(value - largest);
    sum += value;
  }
  for (double& value : x) {
    value /= sum;
  }
}

struct Place {
  const KvRun* run;
  std::int32_t index;
};

/// Where the first `visible` keys of some runs lie.
std::vector<Place> places_of(std::span<const KvRun> runs, int visible) {
  std::vector<Place> places;
  for (const KvRun& run : runs) {
    for (std::int32_t i = 0; i < run.count; ++i) {
      places.push_back({&run, i});
    }
  }
  places.resize(static_cast<std::size_t>(visible));
  return places;
}

/// One query over the first `visible` keys of one head.
void attend_one(const AttendArgs& a, const float* q, int kv_head, int visible, double* out) {
  const auto head = static_cast<std::size_t>(kv_head);
  const auto first = static_cast<std::size_t>(a.first[head]);
  const std::vector<Place> places = places_of(
      a.runs.subspan(first, static_cast<std::size_t>(a.first[head + 1]) - first), visible);
  std::vector<double> weights;
  for (const Place& place : places) {
    weights.push_back(a.scale * dot(q, a.dtype, place.run->keys, place.index, a.head_dim));
  }
  softmax(weights);
  for (std::size_t j = 0; j < places.size(); ++j) {
    for (std::int64_t d = 0; d < a.head_dim; ++d) {
      const std::int64_t at = static_cast<std::int64_t>(places[j].index) * a.head_dim + d;
      out[d] += weights[j] * element(a.dtype, places[j].run->values, at);
    }
  }
}

}  // namespace

std::vector<double> attend(const AttendArgs& args) {
  const std::int64_t width = static_cast<std::int64_t>(args.query_heads) * args.head_dim;
  std::vector<double> out(static_cast<std::size_t>(args.q.rows * width));
  const int group = args.query_heads / args.kv_heads;
  for (std::int64_t t = 0; t < args.q.rows; ++t) {
    for (int h = 0; h < args.query_heads; ++h) {
      const std::int64_t column = static_cast<std::int64_t>(h) * args.head_dim;
      attend_one(args,
                 args.q.row(t) + column,
                 h / group,
                 args.visible[static_cast<std::size_t>(t)],
                 out.data() + t * width + column);
    }
  }
  return out;
}

std::vector<double> window_scores(const WindowScoreArgs& args) {
  std::vector<double> out(static_cast<std::size_t>(args.group * args.key_count));
  for (std::int32_t i = 0; i < args.window; ++i) {
    const std::int32_t seen = args.key_count - args.window + i + 1;
    for (std::int32_t h = 0; h < args.group; ++h) {
      const float* q = args.q + static_cast<std::int64_t>(i * args.group + h) * args.head_dim;
      std::vector<double> weights;
      for (std::int32_t j = 0; j < seen; ++j) {
        weights.push_back(args.scale * dot(q, args.dtype, args.keys, j, args.head_dim));
      }
      softmax(weights);
      for (std::int32_t j = 0; j < seen; ++j) {
        out[static_cast<std::size_t>(h * args.key_count + j)] +=
            weights[static_cast<std::size_t>(j)] / args.window;
      }
    }
  }
  return out;
}

std::vector<double> key_shares(const KeyShareArgs& args) {
  std::vector<double> out(static_cast<std::size_t>(args.visible + args.q.rows - 1));
  for (std::int64_t t = 0; t < args.q.rows; ++t) {
    const std::vector<Place> places = places_of(args.runs, static_cast<int>(args.visible + t));
    for (std::int32_t h = 0; h < args.group; ++h) {
      const float* q = args.q.row(t) + static_cast<std::int64_t>(h) * args.head_dim;
      std::vector<double> weights;
      for (const Place& place : places) {
        weights.push_back(args.scale *
                          dot(q, args.dtype, place.run->keys, place.index, args.head_dim));
      }
      softmax(weights);
      for (std::size_t j = 0; j < weights.size(); ++j) {
        out[j] += weights[j] / args.group;
      }
    }
  }
  return out;
}

}  // namespace rift::kernels::ref
