// SPDX-License-Identifier: Apache-2.0
#include "cli/eval_options.h"

#include "cli/run_options.h"
#include "common/error.h"
#include "eval/prompt_set.h"
#include "model/chat.h"
#include "model/load_model.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

namespace rift::cli {
namespace {

std::vector<eval::Sequence> read_prompts(const EvalInput& input,
                                         const model::Tokenizer& tokenizer) {
  const model::ChatFormat format = input.chat_format.empty()
                                       ? model::detect_chat_format(tokenizer.chat_template())
                                       : *model::parse_chat_format(input.chat_format);
  std::vector<eval::Sequence> out;
  for (const std::string& path : input.prompts) {
    for (const eval::Prompt& prompt : eval::read_prompt_set(path)) {
      eval::Sequence& sequence = out.emplace_back();
      sequence.name = prompt.id;
      sequence.category = prompt.category;
      const std::vector<model::ChatMessage> messages = {{"user", prompt.text}};
      sequence.prompt = model::render_chat(tokenizer, format, messages, true);
    }
  }
  return out;
}

void check_names(const std::vector<eval::Sequence>& sequences) {
  if (sequences.empty()) {
    throw fail(Errc::kInvalidArgument, "no prompts");
  }
  std::set<std::string> names;
  for (const eval::Sequence& sequence : sequences) {
    if (!names.insert(sequence.name).second) {
      throw fail(Errc::kInvalidArgument, "two prompts are named '{}'", sequence.name);
    }
  }
}

}  // namespace

void add_eval_input(CLI::App& command, EvalInput& o) {
  command.add_option("--md,--draft-model", o.draft_model, "draft model (also: -md)")->required();
  auto* target = command.add_option("-m,--model", o.target_model, "target model; without: replay");
  auto* replay = command.add_option(
      "--replay", o.replay, "recorded answers: JSON files or folders of them (docs/eval.md)");
  auto* prompts =
      command.add_option("--prompts", o.prompts, "prompt sets (JSONL), answered by the target");
  replay->excludes(target)->excludes(prompts);
  prompts->needs(target);
  target->needs(prompts);
  command.add_option("--chat-format", o.chat_format, "chatml or llama3")
      ->check(CLI::IsMember({"chatml", "llama3"}));
  command.add_option("-n,--predict", o.max_tokens, "longest answer, tokens")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command.add_option("--limit", o.limit, "the first so many prompts only")
      ->check(CLI::Range(1, 1 << 20));
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  o.threads = cores;
  o.jobs = cores;
  command.add_option("--threads", o.threads, "CPU threads, of all jobs together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--jobs", o.jobs, "prompts worked on side by side")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--exact", o.exact, "f32 arithmetic instead of 8-bit activations");
}

EvalSetup open_eval(const EvalInput& input) {
  if (input.replay.empty() && input.prompts.empty()) {
    throw fail(Errc::kInvalidArgument,
               "no prompts: give --replay FILE|DIR, or -m TARGET --prompts FILE.jsonl");
  }
  EvalSetup out;
  model::LoadOptions load;
  load.threads = input.threads;
  const auto draft = model::load_model(input.draft_model, load).weights;
  out.draft_fingerprint = draft->fingerprint;
  out.options.nodes.draft = draft;
  if (input.target_model.empty()) {
    const std::vector<std::filesystem::path> paths(input.replay.begin(), input.replay.end());
    out.sequences = eval::read_replays(paths, draft->config.vocab);
  } else {
    RunOptions pair;
    pair.target_model = input.target_model;
    pair.draft_model = input.draft_model;
    const ModelPair models = open_models(pair);
    out.target_fingerprint = models.target->fingerprint;
    out.options.stop_tokens = stop_tokens(*models.tokenizer);
    out.sequences = read_prompts(input, *models.tokenizer);
    out.options.nodes.target = model::load_model(input.target_model, load).weights;
  }
  if (input.limit > 0 && std::ssize(out.sequences) > input.limit) {
    out.sequences.resize(static_cast<std::size_t>(input.limit));
  }
  check_names(out.sequences);
  out.options.jobs = std::min({input.jobs, input.threads, static_cast<int>(out.sequences.size())});
  out.options.nodes.threads = std::max(1, input.threads / out.options.jobs);
  out.options.nodes.mode =
      input.exact ? kernels::MatmulMode::kExact : kernels::MatmulMode::kQuantized;
  out.options.max_tokens = input.max_tokens;
  return out;
}

}  // namespace rift::cli
