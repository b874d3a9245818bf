// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/types.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace rift::eval {

// All functions are pure. Thread: any. A prompt whose measurement has no steps has not run: it
// counts in no average.

/// Accepted length (AL) over prompts: tokens committed / verification steps; 0 without steps.
[[nodiscard]] double pooled_accepted_length(std::span<const Measurement> runs);
/// Mean of the prompts' own ALs; 0 without steps.
[[nodiscard]] double mean_accepted_length(std::span<const Measurement> runs);

struct Interval {
  double low = 0.0;
  double high = 0.0;

  bool operator==(const Interval&) const = default;
};

struct BootstrapOptions {
  std::int32_t resamples = 2000;
  std::uint64_t seed = 1;
  double level = 0.95;
};

/// A number over the items drawn: indices, with repetitions.
using Statistic = std::function<double(std::span<const std::size_t> drawn)>;
using TwoSampleStatistic =
    std::function<double(std::span<const std::size_t>, std::span<const std::size_t>)>;

/// Percentile bootstrap: the nearest-rank quantiles (1 -+ level) / 2 of the statistic over
/// resamples of `items` items. The same seed gives the same draws for the same number of items. No
/// items: 0. Source: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, 13.3.
[[nodiscard]] Interval bootstrap(std::size_t items,
                                 const Statistic& statistic,
                                 const BootstrapOptions& options);
/// Two samples, each drawn on its own.
[[nodiscard]] Interval bootstrap(std::size_t items_a,
                                 std::size_t items_b,
                                 const TwoSampleStatistic& statistic,
                                 const BootstrapOptions& options);

/// Of the pooled AL, over prompts.
[[nodiscard]] Interval accepted_length_interval(std::span<const Measurement> runs,
                                                const BootstrapOptions& options);

enum class Pairing : std::uint8_t {
  kPaired,    // a[i] and b[i] are the same prompt and are drawn together
  kUnpaired,  // different prompts
};
/// Of pooled AL(a) - pooled AL(b). Precondition: paired runs have one size; a prompt that lacks one
/// side is left out.
[[nodiscard]] Interval accepted_length_difference(std::span<const Measurement> a,
                                                  std::span<const Measurement> b,
                                                  Pairing pairing,
                                                  const BootstrapOptions& options);

/// Pooled AL as a share of another row's on the prompts that both ran.
struct Retention {
  double share = 0.0;
  Interval interval;  // paired
};
/// Nothing where no prompt ran in both. Precondition: one size.
[[nodiscard]] std::optional<Retention> retention(std::span<const Measurement> runs,
                                                 std::span<const Measurement> reference,
                                                 const BootstrapOptions& options);
/// The full-KV row with this setting's draft length and temperature; null where there is none.
[[nodiscard]] const Row* full_kv_row(const Evaluation& evaluation, const Setting& setting);

/// Drafts that got as far as a position of the draft, and how many of them were committed there.
struct PositionAcceptance {
  std::uint64_t drafted = 0;
  std::uint64_t accepted = 0;

  /// 0 where none was drafted.
  [[nodiscard]] double rate() const;
  bool operator==(const PositionAcceptance&) const = default;
};
/// [gamma], over prompts.
[[nodiscard]] std::vector<PositionAcceptance> acceptance_by_position(
    std::span<const Measurement> runs);

/// A value over the answers' tokens begin..end-1.
struct Bucket {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  double value = 0.0;
  std::int64_t count = 0;  // steps or samples that it is the mean of

  bool operator==(const Bucket&) const = default;
};
/// Smallest power of two, 32 or more, that divides 0..last into at most `most` buckets.
[[nodiscard]] std::int32_t bucket_width(std::int32_t last, std::int32_t most);
/// Pooled AL of the steps that began in each bucket of `width` tokens; empty buckets are left out.
[[nodiscard]] std::vector<Bucket> accepted_length_by_position(std::span<const Measurement> runs,
                                                              std::int32_t width);
/// Pooled AL of the steps that began before `ends[i]`: what an answer of that length would give.
[[nodiscard]] std::vector<Bucket> accepted_length_by_output(std::span<const Measurement> runs,
                                                            std::span<const std::int32_t> ends);
/// Mean retained mass of the samples in each bucket; empty buckets are left out.
[[nodiscard]] std::vector<Bucket> mass_by_position(std::span<const Measurement> runs,
                                                   std::int32_t width);

/// Everything that a row of a result table says. Value type.
struct RowSummary {
  std::int32_t prompts = 0;  // that ran
  std::int64_t steps = 0;
  std::int64_t committed = 0;
  double pooled = 0.0;
  double mean = 0.0;
  Interval interval;                   // of `pooled`
  std::optional<Retention> retention;  // against full KV
  std::int64_t refreshes = 0;
  double refreshes_per_1k = 0.0;           // per 1,000 committed tokens
  double first_set_bytes_per_token = 0.0;  // per committed token
  double refresh_bytes_per_token = 0.0;
  std::optional<double> mass;  // mean over samples
  std::optional<double> lag;   // mean over refreshes, tokens
  std::optional<double> refresh_seconds_p50, refresh_seconds_p99;
  double seconds = 0.0;  // over prompts
  std::vector<PositionAcceptance> acceptance;

  [[nodiscard]] double bytes_per_token() const {
    return first_set_bytes_per_token + refresh_bytes_per_token;
  }
};
[[nodiscard]] RowSummary summarise(const Evaluation& evaluation,
                                   const Row& row,
                                   const BootstrapOptions& options);

}  // namespace rift::eval
