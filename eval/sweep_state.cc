// SPDX-License-Identifier: Apache-2.0
#include "eval/sweep_state.h"

#include "common/error.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <fstream>
#include <utility>

namespace rift::eval {
namespace {

namespace json = boost::json;

template <typename T>
json::array to_array(const std::vector<T>& values) {
  return json::array(values.begin(), values.end());
}

template <typename T>
std::vector<T> from_array(const json::value& value) {
  std::vector<T> out;
  for (const json::value& item : value.as_array()) {
    out.push_back(item.to_number<T>());
  }
  return out;
}

json::object to_json(const Measurement& m) {
  json::array steps;
  for (const Step& step : m.steps) {
    steps.push_back({step.position, step.length});
  }
  json::array mass;
  for (const MassSample& sample : m.mass) {
    mass.push_back({sample.position, sample.mass});
  }
  json::array strides;
  for (const Stride& stride : m.strides) {
    const policy::Signals& s = stride.signals;
    strides.push_back({stride.position,
                       s.age,
                       s.acceptance,
                       s.acceptance_base,
                       s.entropy,
                       s.entropy_base,
                       s.drift,
                       stride.decision.refresh,
                       static_cast<int>(stride.decision.rule)});
  }
  return {{"steps", steps},
          {"drafted", to_array(m.drafted_per_position)},
          {"accepted", to_array(m.accepted_per_position)},
          {"first_set_bytes", m.first_set_bytes},
          {"refresh_bytes", m.refresh_bytes},
          {"refresh_positions", to_array(m.refresh_positions)},
          {"refresh_lags", to_array(m.refresh_lags)},
          {"refresh_seconds", to_array(m.refresh_seconds)},
          {"mass", mass},
          {"strides", strides},
          {"seconds", m.seconds}};
}

Measurement from_json(const json::object& in) {
  Measurement m;
  for (const json::value& step : in.at("steps").as_array()) {
    m.steps.push_back({step.at(0).to_number<std::int32_t>(), step.at(1).to_number<std::int32_t>()});
  }
  m.drafted_per_position = from_array<std::uint64_t>(in.at("drafted"));
  m.accepted_per_position = from_array<std::uint64_t>(in.at("accepted"));
  m.first_set_bytes = in.at("first_set_bytes").to_number<std::uint64_t>();
  m.refresh_bytes = in.at("refresh_bytes").to_number<std::uint64_t>();
  m.refresh_positions = from_array<std::int32_t>(in.at("refresh_positions"));
  m.refresh_lags = from_array<std::int32_t>(in.at("refresh_lags"));
  m.refresh_seconds = from_array<double>(in.at("refresh_seconds"));
  for (const json::value& sample : in.at("mass").as_array()) {
    m.mass.push_back({sample.at(0).to_number<std::int32_t>(), sample.at(1).to_number<float>()});
  }
  for (const json::value& item : in.at("strides").as_array()) {
    Stride& stride = m.strides.emplace_back();
    stride.position = item.at(0).to_number<std::int32_t>();
    stride.signals = {item.at(1).to_number<std::int32_t>(),
                      item.at(2).to_number<double>(),
                      item.at(3).to_number<double>(),
                      item.at(4).to_number<double>(),
                      item.at(5).to_number<double>(),
                      item.at(6).to_number<double>()};
    stride.decision = {item.at(7).as_bool(),
                       static_cast<policy::AdaRule>(item.at(8).to_number<int>())};
  }
  m.seconds = in.at("seconds").to_number<double>();
  return m;
}

}  // namespace

SweepState::SweepState(std::filesystem::path file) : file_(std::move(file)) {
  std::ifstream in(file_);
  std::string line;
  bool whole = true;
  while (std::getline(in, line)) {
    whole = !in.eof();  // the last line has its newline
    try {
      const json::value parsed = json::parse(line);
      known_[std::string(parsed.at("key").as_string())] =
          from_json(parsed.at("measurement").as_object());
    } catch (const std::exception&) {  // cut by the end of the process that wrote it
      continue;
    }
  }
  std::ofstream out(file_, std::ios::app);
  if (!whole) {
    out << '\n';
  }
  if (!out.flush()) {
    throw fail(Errc::kIo, "cannot write {}", file_.string());
  }
}

std::optional<Measurement> SweepState::find(const std::string& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void SweepState::add(const std::string& key, const Measurement& measurement) {
  std::ofstream out(file_, std::ios::app);
  out << json::serialize(json::object{{"key", key}, {"measurement", to_json(measurement)}}) << '\n';
  if (!out.flush()) {
    throw fail(Errc::kIo, "cannot write {}", file_.string());
  }
}

void KeyHash::add_byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001B3U; }

KeyHash& KeyHash::add(std::string_view text) {
  for (const char c : text) {
    add_byte(static_cast<unsigned char>(c));
  }
  add_byte(0);  // so that "ab", "c" differs from "a", "bc"
  return *this;
}

KeyHash& KeyHash::add(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      add_byte(static_cast<unsigned char>(static_cast<std::uint32_t>(token) >> shift));
    }
  }
  return add("");
}

std::string KeyHash::hex() const { return fmt::format("{:016x}", state_); }

}  // namespace rift::eval
