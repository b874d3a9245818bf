// SPDX-License-Identifier: Apache-2.0
#include "target_node/json.h"

#include <boost/json.hpp>

#include <cmath>
#include <limits>

namespace rift::target_node {
namespace {

namespace json = boost::json;

// Every struct is written once, as a list of (key, member); both directions walk it.
template <typename Visitor>
void fields(Visitor& v, SamplingParams& s) {
  v("temperature", s.temperature);
  v("top_k", s.top_k);
  v("top_p", s.top_p);
  v("min_p", s.min_p);
  v("repeat_penalty", s.repeat_penalty);
  v("presence_penalty", s.presence_penalty);
  v("frequency_penalty", s.frequency_penalty);
  v("penalty_window", s.penalty_window);
  v("seed", s.seed);
  v("logit_bias", s.logit_bias);
}

template <typename Visitor>
void fields(Visitor& v, PolicySpec& p) {
  v("name", p.policy);
  v("budget", p.budget);
  v("block", p.block);
  v("rho", p.rho);
  v("delta", p.delta);
  v("window", p.window);
  v("staging_percent", p.staging_percent);
}

template <typename Visitor>
void fields(Visitor& v, Request& r) {
  v("prompt", r.prompt);
  v("max_tokens", r.max_tokens);
  v("stop_tokens", r.stop_tokens);
  v("sampling", r.sampling);
  v("use_draft", r.use_draft);
  v("policy", r.policy);
  v("draft_len", r.draft_len);
  v("auto_draft_len", r.auto_draft_len);
  v("top_n", r.top_n);
  v("ignore_stop", r.ignore_stop);
}

template <typename Visitor>
void fields(Visitor& v, Progress& p) {
  v("steps", p.steps);
  v("drafted_tokens", p.drafted_tokens);
  v("accepted_tokens", p.accepted_tokens);
  v("refreshes", p.refreshes);
  v("refresh_bytes", p.refresh_bytes);
  v("drafting", p.drafting);
}

template <typename Visitor>
void fields(Visitor& v, transport::ArenaUse& a) {
  v("capacity", a.capacity);
  v("weights", a.weights);
  v("working_set", a.working_set);
  v("staging", a.staging);
  v("state", a.state);
  v("scratch", a.scratch);
}

template <typename Visitor>
void fields(Visitor& v, transport::SessionReady& r) {
  v("arena", r.arena);
  v("score_history_bytes", r.score_history_bytes);
  v("score_prefill_ns", r.score_prefill_ns);
  v("score_attached", r.score_attached);
  v("score_link", r.score_link);
}

template <typename Visitor>
void fields(Visitor& v, transport::RefreshRecord& r) {
  v("epoch", r.epoch);
  v("covered_tokens", r.covered_tokens);
  v("stale_tokens", r.stale_tokens);
  v("waves", r.waves);
  v("blocks", r.blocks);
  v("bytes", r.bytes);
  v("ingest_ns", r.ingest_ns);
  v("score_ns", r.score_ns);
  v("select_ns", r.select_ns);
  v("pack_ns", r.pack_ns);
  v("write_ns", r.write_ns);
  v("install_ns", r.install_ns);
  v("total_ns", r.total_ns);
  v("stall_ns", r.stall_ns);
  v("requested_at_ns", r.requested_at_ns);
}

template <typename Visitor>
void fields(Visitor& v, transport::SessionClosed& c) {
  v("refreshes", c.refreshes);
  v("draft_steps", c.draft_steps);
  v("draft_step_ns", c.draft_step_ns);
  v("arena", c.arena);
  v("score_history_bytes", c.score_history_bytes);
  v("score_lost", c.score_lost);
}

template <typename Visitor>
void fields(Visitor& v, transport::LinkInfo& l) {
  v("name", l.name);
  v("lanes", l.lanes);
  v("emulated", l.emulated);
}

template <typename Visitor>
void fields(Visitor& v, Outcome& o) {
  v("tokens", o.tokens);
  v("finish_reason", o.finish);
  v("progress", o.progress);
  v("accepted_per_position", o.accepted_per_position);
  v("drafted_per_position", o.drafted_per_position);
  v("committed_by_steps", o.committed_by_steps);
  v("prompt_tokens_reused", o.prompt_tokens_reused);
  v("prefill_seconds", o.prefill_seconds);
  v("decode_seconds", o.decode_seconds);
  v("draft_wait_seconds", o.draft_wait_seconds);
  v("verify_seconds", o.verify_seconds);
  v("draft_lost", o.draft_lost);
  v("draft_error", o.draft_error);
  v("draft_ready", o.draft_ready);
  v("draft_closed", o.draft_closed);
  v("draft_link", o.draft_link);
}

json::value write(const Policy& policy) { return json::string(to_string(policy)); }
json::value write(const FinishReason& reason) { return json::string(to_string(reason)); }
json::value write(const Epoch& epoch) { return static_cast<std::uint32_t>(epoch); }
json::value write(const std::string& text) { return json::string(text); }
template <typename T>
requires std::is_arithmetic_v<T> json::value write(const T& number) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(number)) {  // JSON has no number for it
      return json::string(std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
    }
  }
  return number;
}
template <typename A, typename B>
json::value write(const std::pair<A, B>& pair) {
  return json::array{write(pair.first), write(pair.second)};
}
template <typename T>
requires(std::is_class_v<T>) json::value write(const T& object);
template <typename T>
json::value write(const std::vector<T>& list) {
  json::array out;
  out.reserve(list.size());
  for (const T& item : list) {
    out.push_back(write(item));
  }
  return out;
}

struct Writer {
  json::object out;
  template <typename T>
  void operator()(std::string_view key, T& member) {
    out.emplace(key, write(member));
  }
};

template <typename T>
requires(std::is_class_v<T>) json::value write(const T& object) {
  Writer writer;
  T copy = object;
  fields(writer, copy);
  return std::move(writer.out);
}

void read(const json::value& value, Policy& out) {
  const auto policy = parse_policy(std::string_view(value.as_string()));
  if (!policy) {
    throw fail(Errc::kInvalidArgument, "unknown policy '{}'", std::string_view(value.as_string()));
  }
  out = *policy;
}
void read(const json::value& value, FinishReason& out) {
  for (const auto reason : {FinishReason::kStop, FinishReason::kLength, FinishReason::kCancelled}) {
    if (to_string(reason) == std::string_view(value.as_string())) {
      out = reason;
    }
  }
}
void read(const json::value& value, Epoch& out) { out = Epoch{value.to_number<std::uint32_t>()}; }
void read(const json::value& value, std::string& out) { out = std::string(value.as_string()); }
void read(const json::value& value, bool& out) { out = value.as_bool(); }
template <typename T>
requires std::is_arithmetic_v<T>
void read(const json::value& value, T& out) {
  if constexpr (std::is_floating_point_v<T>) {
    const json::string* name = value.if_string();
    if (name != nullptr && (*name == "inf" || *name == "-inf")) {
      const T infinity = std::numeric_limits<T>::infinity();
      out = name->starts_with('-') ? -infinity : infinity;
      return;
    }
    if (name != nullptr && *name == "nan") {
      out = std::numeric_limits<T>::quiet_NaN();
      return;
    }
  }
  out = value.to_number<T>();
}
template <typename A, typename B>
void read(const json::value& value, std::pair<A, B>& out) {
  read(value.as_array().at(0), out.first);
  read(value.as_array().at(1), out.second);
}
template <typename T>
requires(std::is_class_v<T>) void read(const json::value& value, T& out);
template <typename T>
void read(const json::value& value, std::vector<T>& out) {
  out.clear();
  for (const json::value& item : value.as_array()) {
    read(item, out.emplace_back());
  }
}

struct Reader {
  const json::object& in;
  template <typename T>
  void operator()(std::string_view key, T& member) {
    const json::value* value = in.if_contains(key);
    if (value == nullptr) {
      return;
    }
    try {
      read(*value, member);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw fail(Errc::kInvalidArgument, "key '{}': {}", key, error.what());
    }
  }
};

template <typename T>
requires(std::is_class_v<T>) void read(const json::value& value, T& out) {
  Reader reader{value.as_object()};
  fields(reader, out);
}

template <typename T>
T parse(const json::value& value) {
  T out;
  try {
    read(value, out);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw fail(Errc::kInvalidArgument, "not the expected JSON object: {}", error.what());
  }
  return out;
}

}  // namespace

json::value to_json(const Request& request) { return write(request); }
Request request_from_json(const json::value& value) { return parse<Request>(value); }
json::value to_json(const Progress& progress) { return write(progress); }
Progress progress_from_json(const json::value& value) { return parse<Progress>(value); }
json::value to_json(const Outcome& outcome) { return write(outcome); }
Outcome outcome_from_json(const json::value& value) { return parse<Outcome>(value); }

}  // namespace rift::target_node
