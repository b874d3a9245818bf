// SPDX-License-Identifier: Apache-2.0
#include "cli/models/inspect.h"

#include "model/utf8.h"
#include "policy/budget.h"

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace rift::cli {
namespace {

namespace json = boost::json;

constexpr std::size_t kLineBytes = 72;
constexpr std::size_t kReasonBytes = 400;

// Serialising escapes control characters, so that a file cannot steer the terminal.
std::string one_line(const json::value& value, std::size_t limit = kLineBytes) {
  std::string text = json::serialize(value);
  std::erase(text, '\x7f');
  if (text.size() <= limit) {
    return text;
  }
  text.resize(limit);
  text.resize(model::first_invalid_utf8(text));
  return text + "...";
}

std::string escaped(const std::string& text, std::size_t limit = kLineBytes) {
  const std::string quoted = one_line(json::value(text), limit);
  return quoted.ends_with('"') ? quoted.substr(1, quoted.size() - 2) : quoted.substr(1);
}

std::string budget_text(const KvGeometry& geometry, const PolicySpec& spec, std::int32_t len) {
  const BudgetCost cost = budget_cost(geometry, spec, len);
  const WorkingSetLayout& layout = cost.layout;
  const auto line = [](std::string_view name, std::uint64_t bytes) {
    return fmt::format("  {:<14}{:>15} bytes\n", name, bytes);
  };
  return fmt::format(
             "budget        B = {}, P = {}: {} recent and {} selected positions ({} slots per "
             "head), "
             "{} unused\n",
             spec.budget,
             layout.block,
             cost.recent,
             layout.slots_per_head * layout.block,
             layout.slots_per_head,
             cost.unused) +
         line("ring", layout.ring_bytes()) +
         line("slots", layout.working_set_bytes() - layout.ring_bytes()) +
         line("staging", layout.staging_bytes()) + line("in all", layout.total_bytes());
}

std::string kv_text(const ModelSummary& summary, const PolicySpec& spec, std::int32_t len) {
  if (!summary.geometry) {
    return "KV cache      not the same in all layers, or not stated\n";
  }
  const KvGeometry& g = *summary.geometry;
  std::string text = fmt::format(
      "KV cache      {} bytes per token in f16 ({} layers x {} KV heads x {} dimensions x 2 x 2 "
      "bytes)\n",
      g.bytes_per_position(),
      g.layers,
      g.kv_heads,
      g.head_dim);
  if (summary.context_train > 0) {
    text += fmt::format("context       {} tokens in training; their full history takes {} bytes\n",
                        summary.context_train,
                        g.bytes_per_position() * static_cast<std::uint64_t>(summary.context_train));
  }
  if (summary.sliding_window > 0) {
    text += fmt::format("window        {} tokens in some layers; counted as full history here\n",
                        summary.sliding_window);
  }
  return text + budget_text(g, spec, len);
}

}  // namespace

BudgetCost budget_cost(const KvGeometry& geometry, const PolicySpec& spec, std::int32_t len) {
  // Only the policy `full` would look at the context's length.
  const std::int32_t context = spec.budget;
  const policy::BudgetPlan plan = policy::plan_budget(spec, std::max(context, 1));
  return {policy::plan_layout(spec, geometry, context, len), plan.recent, plan.unused};
}

std::string inspect_text(const ModelSummary& s, const PolicySpec& spec, std::int32_t len) {
  std::string text = fmt::format("file          {}\nformat        {}, {} bytes, {} tensors\n",
                                 s.file,
                                 s.format,
                                 s.file_bytes,
                                 s.tensors.size());
  text += fmt::format("architecture  {}{}\nparameters    {}\n",
                      s.architecture.empty() ? "not stated" : escaped(s.architecture),
                      s.cannot_run.empty() ? "" : " (cannot be run)",
                      s.parameters);
  if (!s.cannot_run.empty()) {
    text += fmt::format("reason        {}\n", escaped(s.cannot_run, kReasonBytes));
  }
  text += kv_text(s, spec, len) + fmt::format("\nmetadata ({} keys)\n", s.metadata.size());
  std::size_t width = 0;
  for (const MetadataLine& line : s.metadata) {
    width = std::max(width, std::min<std::size_t>(line.key.size(), 48));
  }
  for (const MetadataLine& line : s.metadata) {
    text += fmt::format("  {:<{}}  {:<22} {}{}\n",
                        escaped(line.key),
                        width,
                        line.type,
                        one_line(line.value),
                        line.shortened ? " (first of them)" : "");
  }
  text += fmt::format("\ntensors ({})\n", s.tensors.size());
  for (const TensorLine& line : s.tensors) {
    text += fmt::format("  {:<32} {:<8} {:<18} {:>13}\n",
                        escaped(line.name),
                        line.type,
                        fmt::format("[{}]", fmt::join(line.shape, ", ")),
                        line.bytes);
  }
  return text;
}

json::value inspect_json(const ModelSummary& s, const PolicySpec& spec, std::int32_t len) {
  json::object root{{"file", s.file},
                    {"format", s.format},
                    {"architecture", s.architecture},
                    {"can_run", s.cannot_run.empty()},
                    {"file_bytes", s.file_bytes},
                    {"parameters", s.parameters},
                    {"context_train", s.context_train},
                    {"sliding_window", s.sliding_window}};
  if (!s.cannot_run.empty()) {
    root["cannot_run"] = s.cannot_run;
  }
  if (s.geometry) {
    const BudgetCost cost = budget_cost(*s.geometry, spec, len);
    root["kv_bytes_per_token"] = s.geometry->bytes_per_position();
    root["budget"] = json::object{{"budget", spec.budget},
                                  {"block", cost.layout.block},
                                  {"recent", cost.recent},
                                  {"slots_per_head", cost.layout.slots_per_head},
                                  {"unused", cost.unused},
                                  {"ring_bytes", cost.layout.ring_bytes()},
                                  {"working_set_bytes", cost.layout.working_set_bytes()},
                                  {"staging_bytes", cost.layout.staging_bytes()},
                                  {"total_bytes", cost.layout.total_bytes()}};
  }
  json::object metadata;
  for (const MetadataLine& line : s.metadata) {
    metadata[line.key] =
        json::object{{"type", line.type}, {"value", line.value}, {"shortened", line.shortened}};
  }
  root["metadata"] = std::move(metadata);
  json::array tensors;
  for (const TensorLine& line : s.tensors) {
    tensors.push_back(json::object{{"name", line.name},
                                   {"type", line.type},
                                   {"shape", json::value_from(line.shape)},
                                   {"bytes", line.bytes}});
  }
  root["tensors"] = std::move(tensors);
  return root;
}

}  // namespace rift::cli
