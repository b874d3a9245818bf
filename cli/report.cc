// SPDX-License-Identifier: Apache-2.0
#include "cli/report.h"

#include "common/percentile.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace rift::cli {
namespace {

namespace json = boost::json;
using transport::RefreshRecord;

struct Stage {
  std::string_view name;
  std::uint64_t RefreshRecord::*ns;
};
constexpr std::array<Stage, 7> kStages{{{"ingest", &RefreshRecord::ingest_ns},
                                        {"score", &RefreshRecord::score_ns},
                                        {"select", &RefreshRecord::select_ns},
                                        {"pack", &RefreshRecord::pack_ns},
                                        {"write", &RefreshRecord::write_ns},
                                        {"install", &RefreshRecord::install_ns},
                                        {"total", &RefreshRecord::total_ns}}};

constexpr double kNs = 1e-9;

// Epoch 0 is the first working set: part of prefill, not a refresh.
std::vector<RefreshRecord> later_refreshes(const target_node::Outcome& outcome) {
  std::vector<RefreshRecord> out;
  std::copy_if(outcome.draft_closed.refreshes.begin(),
               outcome.draft_closed.refreshes.end(),
               std::back_inserter(out),
               [](const RefreshRecord& r) { return r.epoch != Epoch{0}; });
  return out;
}

std::vector<double> stage_seconds(const std::vector<RefreshRecord>& refreshes, const Stage& stage) {
  std::vector<double> out;
  for (const RefreshRecord& r : refreshes) {
    out.push_back(static_cast<double>(r.*stage.ns) * kNs);
  }
  return out;
}

template <typename Member>
std::uint64_t sum(const std::vector<RefreshRecord>& refreshes, Member member) {
  return std::accumulate(
      refreshes.begin(), refreshes.end(), std::uint64_t{0}, [member](auto total, const auto& r) {
        return total + static_cast<std::uint64_t>(r.*member);
      });
}

double tokens_per_second(const target_node::Outcome& o) {
  const auto decoded = static_cast<double>(o.tokens.empty() ? 0 : o.tokens.size() - 1);
  return o.decode_seconds > 0 ? decoded / o.decode_seconds : 0.0;
}

json::object refresh_json(const target_node::Outcome& outcome) {
  const auto all = outcome.draft_closed.refreshes;
  const auto later = later_refreshes(outcome);
  json::object stages;
  for (const Stage& stage : kStages) {
    const auto seconds = stage_seconds(later, stage);
    stages[stage.name] = {{"p50", percentile(seconds, 0.5)}, {"p99", percentile(seconds, 0.99)}};
  }
  return {{"count", later.size()},
          {"blocks", sum(later, &RefreshRecord::blocks)},
          {"bytes", sum(later, &RefreshRecord::bytes)},
          {"first_working_set_bytes",
           sum(all, &RefreshRecord::bytes) - sum(later, &RefreshRecord::bytes)},
          {"stall_seconds", static_cast<double>(sum(later, &RefreshRecord::stall_ns)) * kNs},
          {"stale_tokens", sum(later, &RefreshRecord::stale_tokens)},
          {"stage_seconds", stages}};
}

json::object memory_json(const target_node::Outcome& o) {
  const transport::ArenaUse& a = o.draft_ready.arena;
  return {{"arena", a.capacity},
          {"weights", a.weights},
          {"working_set", a.working_set},
          {"staging", a.staging},
          {"state", a.state},
          {"scratch", a.scratch},
          {"score_history",
           std::max(o.draft_ready.score_history_bytes, o.draft_closed.score_history_bytes)}};
}

json::object load_stages(const StartUp& start_up) {
  const auto stages = [](const LoadSeconds& s) {
    return json::object{{"open", s.open}, {"prefault", s.prefault}, {"pack", s.pack}};
  };
  return {{"target", stages(start_up.target)},
          {"draft", stages(start_up.draft)},
          {"score", stages(start_up.score)}};
}

json::array numbers(const std::vector<std::uint64_t>& values) {
  return json::array(values.begin(), values.end());
}

}  // namespace

std::string human_bytes(double bytes) {
  constexpr std::array<std::string_view, 4> kUnits{"B", "kB", "MB", "GB"};
  std::size_t unit = 0;
  while (bytes >= 1000.0 && unit + 1 < kUnits.size()) {
    bytes /= 1000.0;
    ++unit;
  }
  const int digits = unit == 0 || bytes >= 100.0 ? 0 : 1;
  return fmt::format("{:.{}f} {}", bytes, digits, kUnits[unit]);
}

json::object to_json(const RunReport& r) {
  const target_node::Outcome& o = r.outcome;
  const PolicySpec& p = r.request.policy;
  json::array lanes;
  for (const std::string& lane : o.draft_link.lanes) {
    lanes.emplace_back(lane);
  }
  return {{"version", RIFT_VERSION},
          {"transport",
           {{"name", r.transport},
            {"lanes", lanes},
            {"emulated", o.draft_link.emulated},
            {"score_link", o.draft_ready.score_link}}},
          {"target",
           {{"file", r.target_file},
            {"architecture", r.target_architecture},
            {"fingerprint", r.target_fingerprint}}},
          {"draft",
           {{"file", r.draft_file},
            {"architecture", r.draft_architecture},
            {"fingerprint", r.draft_fingerprint}}},
          {"policy",
           {{"name", to_string(p.policy)},
            {"budget", p.budget},
            {"block", p.block},
            {"rho", p.rho},
            {"delta", p.delta},
            {"window", p.window}}},
          {"draft_len", r.request.use_draft ? r.request.draft_len : 0},
          {"draft_len_auto", r.request.use_draft && r.request.auto_draft_len},
          {"prompt_tokens", r.request.prompt.size()},
          {"output_tokens", json::array(o.tokens.begin(), o.tokens.end())},
          {"text", r.text},
          {"finish_reason", to_string(o.finish)},
          {"steps", o.progress.steps},
          {"drafted_tokens", o.progress.drafted_tokens},
          {"accepted_tokens", o.progress.accepted_tokens},
          {"accepted_per_position", numbers(o.accepted_per_position)},
          {"drafted_per_position", numbers(o.drafted_per_position)},
          // One request: both averages are the same number.
          {"accepted_length_pooled", o.accepted_length()},
          {"accepted_length_mean", o.accepted_length()},
          {"seconds",
           {{"load", r.load_seconds},
            {"load_stages", load_stages(r.start_up)},
            {"first_token", r.first_token_seconds},
            {"prefill_target", o.prefill_seconds},
            {"prefill_score", static_cast<double>(o.draft_ready.score_prefill_ns) * kNs},
            {"decode", o.decode_seconds},
            {"verify", o.verify_seconds},
            {"draft_wait", o.draft_wait_seconds},
            {"draft_steps", static_cast<double>(o.draft_closed.draft_step_ns) * kNs}}},
          {"draft_steps", o.draft_closed.draft_steps},
          {"tokens_per_second", tokens_per_second(o)},
          {"refresh", refresh_json(o)},
          {"memory_bytes", memory_json(o)},
          {"faults",
           {{"draft_lost", o.draft_lost},
            {"score_lost", o.draft_closed.score_lost},
            {"recovered", 0},
            {"message", o.draft_error}}}};
}

namespace {

std::string acceptance_row(const target_node::Outcome& o) {
  std::string out;
  for (std::size_t i = 0; i < o.accepted_per_position.size(); ++i) {
    const auto drafted = o.drafted_per_position[i];
    if (drafted > 0) {
      out += fmt::format(
          "{}{:.0f}%",
          out.empty() ? "" : " ",
          100.0 * static_cast<double>(o.accepted_per_position[i]) / static_cast<double>(drafted));
    }
  }
  return out.empty() ? "-" : out;
}

void add_draft_rows(const RunReport& r, std::vector<std::pair<std::string, std::string>>& rows) {
  const target_node::Outcome& o = r.outcome;
  const auto later = later_refreshes(o);
  const auto bytes = static_cast<double>(sum(later, &RefreshRecord::bytes));
  const auto n = static_cast<double>(std::max<std::size_t>(later.size(), 1));
  rows.emplace_back("accepted length (AL), pooled",
                    fmt::format("{:.3f} tokens per verification", o.accepted_length()));
  rows.emplace_back("accepted length (AL), mean", fmt::format("{:.3f}", o.accepted_length()));
  rows.emplace_back("acceptance by draft position", acceptance_row(o));
  rows.emplace_back("draft steps",
                    fmt::format("{} of {:.1f} ms",
                                o.draft_closed.draft_steps,
                                o.draft_closed.draft_steps == 0
                                    ? 0.0
                                    : static_cast<double>(o.draft_closed.draft_step_ns) * 1e-6 /
                                          static_cast<double>(o.draft_closed.draft_steps)));
  const auto first =
      static_cast<double>(sum(o.draft_closed.refreshes, &RefreshRecord::bytes)) - bytes;
  rows.emplace_back("first working set", human_bytes(first));
  rows.emplace_back("refreshes",
                    fmt::format("{}: {} blocks, {} in total, {} each",
                                later.size(),
                                sum(later, &RefreshRecord::blocks),
                                human_bytes(bytes),
                                human_bytes(bytes / n)));
  for (const Stage& stage : kStages) {
    const auto seconds = stage_seconds(later, stage);
    if (!later.empty()) {
      rows.emplace_back(fmt::format("  {} p50 / p99", stage.name),
                        fmt::format("{:.2f} / {:.2f} ms",
                                    percentile(seconds, 0.5) * 1e3,
                                    percentile(seconds, 0.99) * 1e3));
    }
  }
  rows.emplace_back("  drafting stalled",
                    fmt::format("{:.2f} ms in all",
                                static_cast<double>(sum(later, &RefreshRecord::stall_ns)) * 1e-6));
  const transport::ArenaUse& a = o.draft_ready.arena;
  rows.emplace_back("draft arena",
                    fmt::format("{}: weights {}, working set {}, staging {}, scratch {}",
                                human_bytes(static_cast<double>(a.capacity)),
                                human_bytes(static_cast<double>(a.weights)),
                                human_bytes(static_cast<double>(a.working_set)),
                                human_bytes(static_cast<double>(a.staging)),
                                human_bytes(static_cast<double>(a.scratch))));
  rows.emplace_back("score history",
                    human_bytes(static_cast<double>(std::max(o.draft_ready.score_history_bytes,
                                                             o.draft_closed.score_history_bytes))));
  rows.emplace_back("link", o.draft_ready.score_link);
}

std::string draft_length_text(const RunReport& r) {
  if (!r.request.auto_draft_len) {
    return std::to_string(r.request.draft_len);
  }
  const target_node::Progress& p = r.outcome.progress;
  return fmt::format(
      "auto (mean {:.1f})",
      p.steps == 0 ? 0.0 : static_cast<double>(p.drafted_tokens) / static_cast<double>(p.steps));
}

}  // namespace

std::string to_table(const RunReport& r) {
  const target_node::Outcome& o = r.outcome;
  std::vector<std::pair<std::string, std::string>> rows;
  const PolicySpec& p = r.request.policy;
  if (r.request.use_draft) {
    rows.emplace_back("policy",
                      fmt::format("{}: B = {}, P = {}, rho = {:.2f}, delta = {}, draft length {}",
                                  to_string(p.policy),
                                  p.budget,
                                  p.block,
                                  p.rho,
                                  p.delta,
                                  draft_length_text(r)));
  }
  rows.emplace_back("tokens",
                    fmt::format("{} prompt, {} answer ({})",
                                r.request.prompt.size(),
                                o.tokens.size(),
                                to_string(o.finish)));
  rows.emplace_back("speed",
                    fmt::format("{:.2f} tok/s, {} verifications of {:.0f} ms",
                                tokens_per_second(o),
                                o.progress.steps,
                                o.progress.steps == 0 ? 0.0
                                                      : o.verify_seconds * 1e3 /
                                                            static_cast<double>(o.progress.steps)));
  rows.emplace_back("first token",
                    fmt::format("{:.2f} s after the start; nodes ready after {:.2f} s (weights: "
                                "target {:.2f} s, draft {:.2f} s, score {:.2f} s)",
                                r.first_token_seconds,
                                r.load_seconds,
                                r.start_up.target.total(),
                                r.start_up.draft.total(),
                                r.start_up.score.total()));
  rows.emplace_back("prefill",
                    fmt::format("target {:.2f} s, score node {:.2f} s",
                                o.prefill_seconds,
                                static_cast<double>(o.draft_ready.score_prefill_ns) * kNs));
  if (r.request.use_draft) {
    add_draft_rows(r, rows);
  }
  if (!o.draft_error.empty()) {
    rows.emplace_back("draft ended", o.draft_error);
  }
  std::size_t width = 0;
  for (const auto& [name, value] : rows) {
    width = std::max(width, name.size());
  }
  std::string out;
  for (const auto& [name, value] : rows) {
    out += fmt::format("  {:<{}}  {}\n", name, width, value);
  }
  return out;
}

}  // namespace rift::cli
