// SPDX-License-Identifier: Apache-2.0
#include "bench/machine_limits.h"

#include "common/clock.h"
#include "common/error.h"
#include "common/page_buffer.h"
#include "kernels/ops.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rift::bench {
namespace {

constexpr int kSteps = 1 << 16;  // of a multiply loop, kChains independent sums each
constexpr int kChains = 12;      // more than latency times throughput of any multiply unit

double read_bandwidth(ThreadPool& pool) {
  constexpr std::int64_t kBytes = 512LL << 20;
  constexpr std::int64_t kGrain = 1LL << 20;
  constexpr std::size_t kLanes = 8;
  const PageBuffer memory(static_cast<std::size_t>(kBytes));
  const auto fill = [&](std::int64_t begin, std::int64_t end) {
    std::memset(memory.bytes().data() + begin, 1, static_cast<std::size_t>(end - begin));
  };
  pool.parallel_for(kBytes, kGrain, fill);
  std::atomic<std::uint64_t> total{0};
  double best = 0.0;
  constexpr int kPasses = 4;
  for (int pass = 0; pass < kPasses; ++pass) {
    const TimePoint start = Clock::now();
    pool.parallel_for(kBytes, kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::uint64_t lanes[kLanes] = {};
      for (std::int64_t at = begin; at < end; at += std::int64_t{sizeof(lanes)}) {
        std::uint64_t words[kLanes];
        std::memcpy(words, memory.bytes().data() + at, sizeof(words));
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
          lanes[lane] += words[lane];
        }
      }
      // The sum is used, so that the reads stay.
      total.fetch_add(std::accumulate(lanes, lanes + kLanes, std::uint64_t{0}));
    });
    best = std::max(best, static_cast<double>(kBytes) / seconds_between(start, Clock::now()));
  }
  constexpr std::uint64_t kWord = 0x0101010101010101U;
  if (total.load() != static_cast<std::uint64_t>(kBytes) / 8 * kWord * kPasses) {
    throw fail(Errc::kInternal, "the read loop read wrong data");
  }
  return best;
}

/// Operations a second of `loop`, which does kSteps * kChains multiplications of `ops` each and
/// returns what cannot be left out.
double multiply_rate(ThreadPool& pool, double ops, float (*loop)()) {
  const int runs = 4 * pool.threads();
  std::atomic<int> finite{0};
  double best = 0.0;
  for (int pass = 0; pass < 6; ++pass) {
    const TimePoint start = Clock::now();
    pool.parallel_for(runs, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        finite.fetch_add(loop() != -1.0F ? 1 : 0);
      }
    });
    const double seconds = seconds_between(start, Clock::now());
    best = std::max(best, ops * kSteps * kChains * runs / seconds);
  }
  return finite.load() > 0 ? best : 0.0;
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) float int8_avx2() {
  __m256i sums[kChains];
  for (__m256i& sum : sums) {
    sum = _mm256_setzero_si256();
  }
  __m256i x = _mm256_set1_epi8(3);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int step = 0; step < kSteps; ++step) {
    __asm__ volatile("" : "+x"(x));  // not the same product every time
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      const __m256i pairs = _mm256_maddubs_epi16(x, _mm256_set1_epi8(static_cast<char>(i + 1)));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
  __m256i all = _mm256_setzero_si256();
  for (const __m256i& sum : sums) {
    all = _mm256_add_epi32(all, sum);
  }
  return static_cast<float>(_mm256_extract_epi32(all, 0));
}

__attribute__((target("avx2,fma"))) float f32_avx2() {
  __m256 sums[kChains];
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
  }
  __m256 x = _mm256_set1_ps(0.5F);
  for (int step = 0; step < kSteps; ++step) {
    __asm__ volatile("" : "+x"(x));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_fmadd_ps(x, x, sums[i]);
    }
  }
  __m256 all = _mm256_setzero_ps();
  for (const __m256& sum : sums) {
    all = _mm256_add_ps(all, sum);
  }
  return _mm256_cvtss_f32(all);
}

__attribute__((target("avx512f,avx512vnni"))) float int8_vnni() {
  __m512i sums[kChains];
  for (__m512i& sum : sums) {
    sum = _mm512_setzero_si512();
  }
  __m512i x = _mm512_set1_epi32(0x03030303);
  for (int step = 0; step < kSteps; ++step) {
    __asm__ volatile("" : "+v"(x));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], x, x);
    }
  }
  __m512i all = _mm512_setzero_si512();
  for (const __m512i& sum : sums) {
    all = _mm512_add_epi32(all, sum);
  }
  int out[16];
  _mm512_storeu_si512(out, all);
  return static_cast<float>(out[0]);
}

__attribute__((target("avx512f"))) float f32_avx512() {
  __m512 sums[kChains];
  for (__m512& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  __m512 x = _mm512_set1_ps(0.5F);
  for (int step = 0; step < kSteps; ++step) {
    __asm__ volatile("" : "+v"(x));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_fmadd_ps(x, x, sums[i]);
    }
  }
  __m512 all = _mm512_setzero_ps();
  for (const __m512& sum : sums) {
    all = _mm512_add_ps(all, sum);
  }
  float out[16];
  _mm512_storeu_ps(out, all);
  return out[0];
}

#endif

}  // namespace

boost::json::object MachineLimits::to_json() const {
  return {{"read_gbytes_per_second", read_bytes / 1e9},
          {"int8_gops_per_second", int8_ops / 1e9},
          {"int8_loop", int8_loop},
          {"f32_gflops_per_second", f32_ops / 1e9}};
}

MachineLimits measure_limits(ThreadPool& pool) {
  MachineLimits limits;
  limits.read_bytes = read_bandwidth(pool);
  limits.int8_loop = "none";
#if defined(__x86_64__)
  // A target's name begins with the widest registers that it uses.
  const bool wide = kernels::cpu_target().starts_with("avx512");
  if (wide && __builtin_cpu_supports("avx512vnni")) {
    limits.int8_loop = "vpdpbusd, 512 bits";
    limits.int8_ops = multiply_rate(pool, 2.0 * 64, int8_vnni);
  } else if (kernels::cpu_target() != "scalar") {
    limits.int8_loop = "vpmaddubsw, vpmaddwd, vpaddd, 256 bits";
    limits.int8_ops = multiply_rate(pool, 2.0 * 32, int8_avx2);
  }
  if (wide) {
    limits.f32_ops = multiply_rate(pool, 2.0 * 16, f32_avx512);
  } else if (kernels::cpu_target() != "scalar") {
    limits.f32_ops = multiply_rate(pool, 2.0 * 8, f32_avx2);
  }
#endif
  return limits;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2.0;
}

void write_json(const std::string& file, const boost::json::value& value) {
  if (file.empty()) {
    return;
  }
  if (file == "-") {
    fmt::print("{}\n", boost::json::serialize(value));
    return;
  }
  std::ofstream out(file, std::ios::trunc);
  out << boost::json::serialize(value) << '\n';
  if (!out.flush()) {
    throw fail(Errc::kIo, "cannot write {}", file);
  }
}

std::FILE* table_for(const std::string& json_file) { return json_file == "-" ? stderr : stdout; }

}  // namespace rift::bench
