// SPDX-License-Identifier: Apache-2.0
#include "eval/report.h"

#include "eval/axes.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace rift::eval {
namespace {

namespace json = boost::json;

template <typename Value>
json::value value_or_null(bool known, Value value) {
  return known ? json::value(value) : json::value(nullptr);
}

json::value value_or_null(const std::optional<double>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

// 0.7, where the float itself would print as 0.699999988079071.
double decimal(float value) { return std::stod(fmt::format("{}", value)); }

json::value threshold(float value) {
  return value_or_null(std::isfinite(value), decimal(std::isfinite(value) ? value : 0.0F));
}

json::array pair(const Interval& interval) { return {interval.low, interval.high}; }

json::value ada_json(const PolicySpec& p) {
  if (p.policy != Policy::kRiftAda) {
    return nullptr;
  }
  json::array weights;
  for (const float weight : p.ada.weights) {
    weights.push_back(decimal(weight));
  }
  return json::object{{"stride", p.ada.stride},
                      {"min_age", p.ada.min_age},
                      {"max_age", p.ada.max_age},
                      {"gate", to_string(p.ada.gate)},
                      {"acceptance_low", threshold(p.ada.acceptance_low)},
                      {"entropy_high", threshold(p.ada.entropy_high)},
                      {"acceptance_drop", threshold(p.ada.acceptance_drop)},
                      {"entropy_rise", threshold(p.ada.entropy_rise)},
                      {"drift_high", threshold(p.ada.drift_high)},
                      {"weights", weights},
                      {"score_threshold", threshold(p.ada.score_threshold)}};
}

void add_setting(json::object& out, const Setting& setting) {
  const PolicySpec& p = setting.policy;
  const bool selects = has_selector(p.policy);
  const auto has = [&p](Axis axis) { return has_axis(p.policy, axis); };
  out["policy"] = to_string(p.policy);
  out["budget"] = value_or_null(has(Axis::kBudget), p.budget);
  out["block"] = value_or_null(has(Axis::kBlock), p.block);
  out["rho"] = value_or_null(has(Axis::kRho), decimal(p.rho));
  out["delta"] = value_or_null(has(Axis::kDelta), p.delta);
  out["draft_len"] = setting.draft_len;
  out["temperature"] = decimal(setting.temperature);
  out["selector"] = value_or_null(selects, to_string(p.selector));
  out["allocation"] = value_or_null(selects, to_string(p.allocation));
  out["pooling"] = value_or_null(selects, to_string(p.pooling));
  out["window"] = value_or_null(selects, p.window);
  out["lag"] = value_or_null(has_refreshes(p.policy), p.refresh_lag);
  out["ada"] = ada_json(p);
}

void add_acceptance(json::object& out, const std::vector<PositionAcceptance>& positions) {
  json::array rates;
  json::array drafted;
  json::array accepted;
  for (const PositionAcceptance& position : positions) {
    rates.emplace_back(position.rate());
    drafted.emplace_back(position.drafted);
    accepted.emplace_back(position.accepted);
  }
  out["acceptance_per_position"] = std::move(rates);
  out["drafted_per_position"] = std::move(drafted);
  out["accepted_per_position"] = std::move(accepted);
}

json::object per_prompt(const Evaluation& evaluation, const Row& row) {
  json::object out;
  for (std::size_t i = 0; i < row.runs.size(); ++i) {
    if (!row.runs[i].steps.empty()) {
      out[evaluation.prompts.at(i)] = row.runs[i].accepted_length();
    }
  }
  return out;
}

json::object row_json(const Evaluation& evaluation,
                      const Row& row,
                      const BootstrapOptions& options) {
  const RowSummary s = summarise(evaluation, row, options);
  json::object out;
  add_setting(out, row.setting);
  out["prompts"] = s.prompts;
  out["steps"] = s.steps;
  out["committed_tokens"] = s.committed;
  out["accepted_length_pooled"] = s.pooled;
  out["accepted_length_mean"] = s.mean;
  out["ci95"] = pair(s.interval);
  out["retention"] = s.retention ? json::value(s.retention->share) : json::value(nullptr);
  out["retention_ci95"] =
      s.retention ? json::value(pair(s.retention->interval)) : json::value(nullptr);
  out["refreshes"] = s.refreshes;
  out["refreshes_per_1k_tokens"] = s.refreshes_per_1k;
  out["bytes_per_token"] = s.bytes_per_token();
  out["first_set_bytes_per_token"] = s.first_set_bytes_per_token;
  out["refresh_bytes_per_token"] = s.refresh_bytes_per_token;
  out["mass_retained"] = value_or_null(s.mass);
  out["lag_mean"] = value_or_null(s.lag);
  out["refresh_seconds_p50"] = value_or_null(s.refresh_seconds_p50);
  out["refresh_seconds_p99"] = value_or_null(s.refresh_seconds_p99);
  out["seconds"] = s.seconds;
  add_acceptance(out, s.acceptance);
  out["per_prompt"] = per_prompt(evaluation, row);
  return out;
}

json::object model_json(const std::string& file, const std::string& fingerprint) {
  return {{"file", file}, {"fingerprint", fingerprint}};
}

json::object settings_json(const Evaluation& e, const BootstrapOptions& options) {
  json::array prompts;
  for (std::size_t i = 0; i < e.prompts.size(); ++i) {
    prompts.push_back(json::object{{"name", e.prompts[i]},
                                   {"category", e.categories.at(i)},
                                   {"prompt_tokens", e.prompt_tokens.at(i)},
                                   {"response_tokens", e.response_tokens.at(i)}});
  }
  json::object out{{"mode", e.mode}, {"draft", model_json(e.draft_file, e.draft_fingerprint)}};
  out["target"] = e.target_file.empty()
                      ? json::value(nullptr)
                      : json::value(model_json(e.target_file, e.target_fingerprint));
  out["prompts"] = std::move(prompts);
  out["bootstrap"] = {{"resamples", options.resamples}, {"seed", options.seed}};
  return out;
}

std::string csv_field(const json::value& value) {
  if (value.is_null()) {
    return "";
  }
  if (value.is_double()) {
    return fmt::format("{}", value.get_double());
  }
  std::string text = value.is_string() ? std::string(value.get_string()) : json::serialize(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c;
    if (c == '"') {
      quoted += '"';
    }
  }
  return quoted + '"';
}

std::string csv_list(const json::array& values) {
  std::vector<std::string> fields;
  for (const json::value& value : values) {
    fields.push_back(csv_field(value));
  }
  return fmt::format("{}", fmt::join(fields, " "));
}

struct CsvRow {
  std::vector<std::string> columns;
  std::vector<std::string> fields;

  void add(const std::string& column, std::string field) {
    columns.push_back(column);
    fields.push_back(std::move(field));
  }
};

CsvRow csv_row(const json::object& row) {
  CsvRow out;
  for (const auto& [key, value] : row) {
    const std::string column(key);
    if (column == "per_prompt") {
      continue;
    }
    if (column.ends_with("ci95")) {
      const bool known = value.is_array();
      out.add(column + "_low", known ? csv_field(value.get_array().at(0)) : "");
      out.add(column + "_high", known ? csv_field(value.get_array().at(1)) : "");
    } else {
      out.add(column, value.is_array() ? csv_list(value.get_array()) : csv_field(value));
    }
  }
  return out;
}

}  // namespace

json::object to_json(const Evaluation& evaluation, const BootstrapOptions& options) {
  json::array rows;
  for (const Row& row : evaluation.rows) {
    rows.push_back(row_json(evaluation, row, options));
  }
  return {{"settings", settings_json(evaluation, options)}, {"rows", rows}};
}

std::string to_csv(const Evaluation& evaluation, const BootstrapOptions& options) {
  std::string out;
  for (const Row& row : evaluation.rows) {
    const CsvRow line = csv_row(row_json(evaluation, row, options));
    if (out.empty()) {
      out = fmt::format("{}\r\n", fmt::join(line.columns, ","));
    }
    out += fmt::format("{}\r\n", fmt::join(line.fields, ","));
  }
  return out;
}

}  // namespace rift::eval
