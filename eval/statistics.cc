// SPDX-License-Identifier: Apache-2.0
#include "eval/statistics.h"

#include "common/check.h"
#include "common/percentile.h"
#include "eval/draws.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace rift::eval {
namespace {

void fill(Draws& draws, std::vector<std::size_t>& indices) {
  for (std::size_t& index : indices) {
    index = draws.below(indices.size());
  }
}

Interval quantiles(const std::vector<double>& values, double level) {
  return {percentile(values, (1.0 - level) / 2.0), percentile(values, (1.0 + level) / 2.0)};
}

// The part of a measurement that AL needs.
struct Totals {
  std::int64_t committed = 0;
  std::int64_t steps = 0;

  void add(const Totals& other) {
    committed += other.committed;
    steps += other.steps;
  }
  [[nodiscard]] double ratio() const {
    return steps == 0 ? 0.0 : static_cast<double>(committed) / static_cast<double>(steps);
  }
};

Totals totals(const Measurement& run) {
  return {run.committed(), static_cast<std::int64_t>(run.steps.size())};
}

std::vector<Totals> totals_of_run_prompts(std::span<const Measurement> runs) {
  std::vector<Totals> out;
  for (const Measurement& run : runs) {
    if (!run.steps.empty()) {
      out.push_back(totals(run));
    }
  }
  return out;
}

double pooled(const std::vector<Totals>& prompts, std::span<const std::size_t> drawn) {
  Totals sum;
  for (const std::size_t i : drawn) {
    sum.add(prompts[i]);
  }
  return sum.ratio();
}

struct Pairs {
  std::vector<Totals> a, b;
};

// Prompts that ran on both sides.
Pairs pairs(std::span<const Measurement> a, std::span<const Measurement> b) {
  RIFT_CHECK(a.size() == b.size(), "{} and {} prompts are not pairs", a.size(), b.size());
  Pairs out;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].steps.empty() && !b[i].steps.empty()) {
      out.a.push_back(totals(a[i]));
      out.b.push_back(totals(b[i]));
    }
  }
  return out;
}

// Sums of buckets by index, then the means.
class Buckets {
 public:
  explicit Buckets(std::int32_t width) : width_(width) {
    RIFT_CHECK(width > 0, "buckets of {} tokens", width);
  }
  void add(std::int32_t position, double value) {
    auto& [sum, count] = sums_[position / width_];
    sum += value;
    ++count;
  }
  [[nodiscard]] std::vector<Bucket> means() const {
    std::vector<Bucket> out;
    for (const auto& [index, sum] : sums_) {
      const std::int32_t begin = index * width_;
      const double mean = sum.first / static_cast<double>(sum.second);
      out.push_back({begin, begin + width_, mean, sum.second});
    }
    return out;
  }

 private:
  std::int32_t width_;
  std::map<std::int32_t, std::pair<double, std::int64_t>> sums_;
};

double per_token(std::uint64_t bytes, std::int64_t tokens) {
  return tokens == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(tokens);
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Lists of all prompts behind one another.
template <typename Member, typename Value>
std::vector<double> all_values(std::span<const Measurement> runs, Member member, Value value) {
  std::vector<double> out;
  for (const Measurement& run : runs) {
    for (const auto& item : run.*member) {
      out.push_back(static_cast<double>(value(item)));
    }
  }
  return out;
}

}  // namespace

double pooled_accepted_length(std::span<const Measurement> runs) {
  Totals sum;
  for (const Measurement& run : runs) {
    sum.add(totals(run));
  }
  return sum.ratio();
}

double mean_accepted_length(std::span<const Measurement> runs) {
  const auto prompts = totals_of_run_prompts(runs);
  double sum = 0.0;
  for (const Totals& prompt : prompts) {
    sum += prompt.ratio();
  }
  return prompts.empty() ? 0.0 : sum / static_cast<double>(prompts.size());
}

Interval bootstrap(std::size_t items, const Statistic& statistic, const BootstrapOptions& options) {
  if (items == 0) {
    return {};
  }
  Draws draws(options.seed);
  std::vector<std::size_t> drawn(items);
  std::vector<double> values;
  for (std::int32_t i = 0; i < options.resamples; ++i) {
    fill(draws, drawn);
    values.push_back(statistic(drawn));
  }
  return quantiles(values, options.level);
}

Interval bootstrap(std::size_t items_a,
                   std::size_t items_b,
                   const TwoSampleStatistic& statistic,
                   const BootstrapOptions& options) {
  if (items_a == 0 || items_b == 0) {
    return {};
  }
  Draws draws(options.seed);
  std::vector<std::size_t> drawn_a(items_a);
  std::vector<std::size_t> drawn_b(items_b);
  std::vector<double> values;
  for (std::int32_t i = 0; i < options.resamples; ++i) {
    fill(draws, drawn_a);
    fill(draws, drawn_b);
    values.push_back(statistic(drawn_a, drawn_b));
  }
  return quantiles(values, options.level);
}

Interval accepted_length_interval(std::span<const Measurement> runs,
                                  const BootstrapOptions& options) {
  const auto prompts = totals_of_run_prompts(runs);
  return bootstrap(
      prompts.size(),
      [&](std::span<const std::size_t> drawn) { return pooled(prompts, drawn); },
      options);
}

Interval accepted_length_difference(std::span<const Measurement> a,
                                    std::span<const Measurement> b,
                                    Pairing pairing,
                                    const BootstrapOptions& options) {
  if (pairing == Pairing::kPaired) {
    const Pairs p = pairs(a, b);
    return bootstrap(
        p.a.size(),
        [&](std::span<const std::size_t> drawn) { return pooled(p.a, drawn) - pooled(p.b, drawn); },
        options);
  }
  const auto prompts_a = totals_of_run_prompts(a);
  const auto prompts_b = totals_of_run_prompts(b);
  return bootstrap(
      prompts_a.size(),
      prompts_b.size(),
      [&](std::span<const std::size_t> drawn_a, std::span<const std::size_t> drawn_b) {
        return pooled(prompts_a, drawn_a) - pooled(prompts_b, drawn_b);
      },
      options);
}

std::optional<Retention> retention(std::span<const Measurement> runs,
                                   std::span<const Measurement> reference,
                                   const BootstrapOptions& options) {
  const Pairs p = pairs(runs, reference);
  if (p.a.empty()) {
    return std::nullopt;
  }
  // A step commits a token at least, so that no denominator is 0.
  const auto share = [&](std::span<const std::size_t> drawn) {
    return pooled(p.a, drawn) / pooled(p.b, drawn);
  };
  std::vector<std::size_t> all(p.a.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return Retention{share(all), bootstrap(all.size(), share, options)};
}

const Row* full_kv_row(const Evaluation& evaluation, const Setting& setting) {
  const auto found = std::ranges::find_if(evaluation.rows, [&](const Row& row) {
    return row.setting.policy.policy == Policy::kFull &&
           row.setting.draft_len == setting.draft_len &&
           row.setting.temperature == setting.temperature;
  });
  return found == evaluation.rows.end() ? nullptr : &*found;
}

double PositionAcceptance::rate() const {
  return drafted == 0 ? 0.0 : static_cast<double>(accepted) / static_cast<double>(drafted);
}

std::vector<PositionAcceptance> acceptance_by_position(std::span<const Measurement> runs) {
  std::vector<PositionAcceptance> out;
  for (const Measurement& run : runs) {
    const auto& drafted = run.drafted_per_position;
    const auto& accepted = run.accepted_per_position;
    out.resize(std::max({out.size(), drafted.size(), accepted.size()}));
    for (std::size_t i = 0; i < drafted.size(); ++i) {
      out[i].drafted += drafted[i];
    }
    for (std::size_t i = 0; i < accepted.size(); ++i) {
      out[i].accepted += accepted[i];
    }
  }
  return out;
}

std::int32_t bucket_width(std::int32_t last, std::int32_t most) {
  std::int32_t width = 32;
  while (last / width >= most && width < (1 << 24)) {
    width *= 2;
  }
  return width;
}

std::vector<Bucket> accepted_length_by_position(std::span<const Measurement> runs,
                                                std::int32_t width) {
  Buckets buckets(width);
  for (const Measurement& run : runs) {
    for (const Step& step : run.steps) {
      buckets.add(step.position, static_cast<double>(step.length));
    }
  }
  return buckets.means();
}

std::vector<Bucket> accepted_length_by_output(std::span<const Measurement> runs,
                                              std::span<const std::int32_t> ends) {
  std::vector<Bucket> out;
  for (const std::int32_t end : ends) {
    Totals sum;
    for (const Measurement& run : runs) {
      for (const Step& step : run.steps) {
        if (step.position < end) {
          sum.add({step.length, 1});
        }
      }
    }
    out.push_back({0, end, sum.ratio(), sum.steps});
  }
  return out;
}

std::vector<Bucket> mass_by_position(std::span<const Measurement> runs, std::int32_t width) {
  Buckets buckets(width);
  for (const Measurement& run : runs) {
    for (const MassSample& sample : run.mass) {
      buckets.add(sample.position, static_cast<double>(sample.mass));
    }
  }
  return buckets.means();
}

RowSummary summarise(const Evaluation& evaluation,
                     const Row& row,
                     const BootstrapOptions& options) {
  RowSummary s;
  std::uint64_t first_set_bytes = 0;
  std::uint64_t refresh_bytes = 0;
  for (const Measurement& run : row.runs) {
    s.prompts += run.steps.empty() ? 0 : 1;
    s.steps += static_cast<std::int64_t>(run.steps.size());
    s.committed += run.committed();
    s.refreshes += static_cast<std::int64_t>(run.refresh_positions.size());
    s.seconds += run.seconds;
    first_set_bytes += run.first_set_bytes;
    refresh_bytes += run.refresh_bytes;
  }
  s.pooled = pooled_accepted_length(row.runs);
  s.mean = mean_accepted_length(row.runs);
  s.interval = accepted_length_interval(row.runs, options);
  if (const Row* full = full_kv_row(evaluation, row.setting); full != nullptr) {
    s.retention = retention(row.runs, full->runs, options);
  }
  s.refreshes_per_1k = 1000.0 * per_token(static_cast<std::uint64_t>(s.refreshes), s.committed);
  s.first_set_bytes_per_token = per_token(first_set_bytes, s.committed);
  s.refresh_bytes_per_token = per_token(refresh_bytes, s.committed);
  const auto mass =
      all_values(row.runs, &Measurement::mass, [](const MassSample& m) { return m.mass; });
  const auto lags =
      all_values(row.runs, &Measurement::refresh_lags, [](std::int32_t lag) { return lag; });
  const auto seconds =
      all_values(row.runs, &Measurement::refresh_seconds, [](double value) { return value; });
  if (!mass.empty()) {
    s.mass = mean_of(mass);
  }
  if (!lags.empty()) {
    s.lag = mean_of(lags);
  }
  if (!seconds.empty()) {
    s.refresh_seconds_p50 = percentile(seconds, 0.5);
    s.refresh_seconds_p99 = percentile(seconds, 0.99);
  }
  s.acceptance = acceptance_by_position(row.runs);
  return s;
}

}  // namespace rift::eval
