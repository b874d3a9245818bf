// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "common/error.h"
#include "eval/prompt_builder.h"
#include "model/chat.h"
#include "model/sha256.h"
#include "model/tokenizer.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Arguments {
  std::string model;
  std::string chat_format;
  std::string output;
  std::vector<std::string> sources;
  eval::BuildOptions build;
};

// What a prompt's length depends on.
struct PromptModel {
  std::shared_ptr<const model::Tokenizer> tokenizer;
  model::ChatFormat format = model::ChatFormat::kChatMl;

  [[nodiscard]] std::int32_t count(std::string_view text) const {
    const std::vector<model::ChatMessage> messages{{"user", std::string(text)}};
    return static_cast<std::int32_t>(model::render_chat(*tokenizer, format, messages, true).size());
  }
};

PromptModel open_model(const Arguments& arguments) {
  PromptModel out;
  out.tokenizer = model::Tokenizer::open(arguments.model, {});
  out.format = arguments.chat_format.empty()
                   ? model::detect_chat_format(out.tokenizer->chat_template())
                   : *model::parse_chat_format(arguments.chat_format);
  return out;
}

std::vector<eval::SourceText> open_sources(const Arguments& arguments) {
  std::vector<fs::path> folders(arguments.sources.begin(), arguments.sources.end());
  if (folders.empty()) {
    folders = eval::default_source_folders();
  }
  auto sources = eval::find_sources(folders);
  if (sources.empty()) {
    throw fail(Errc::kNotFound,
               "no source texts in {}; install Debian's libpython3-stdlib, or name folders with "
               "*.py, *.txt, *.rst or *.md files: --sources DIR",
               folders.empty() ? "/usr/lib/python3.* and /usr/share/common-licenses"
                               : fmt::format("{}", fmt::join(arguments.sources, ", ")));
  }
  return sources;
}

std::string sha256_of(std::string_view text) {
  model::Sha256 hash;
  hash.update(text);
  return hash.hex();
}

json::array quotations_json(const eval::BuiltPrompt& built,
                            const std::vector<eval::SourceText>& sources) {
  json::array out;
  for (const eval::Quotation& q : built.quotations) {
    const eval::SourceText& source = sources[q.source];
    out.push_back(json::object{{"file", source.file},
                               {"path", source.path.string()},
                               {"sha256", source.sha256},
                               {"first_line", q.lines.first + 1},
                               {"lines_used", q.lines.end - q.lines.first},
                               {"cut_bytes", q.cut_bytes},
                               {"lines", source.lines.size()}});
  }
  return out;
}

json::object recipe_json(const Arguments& arguments,
                         const PromptModel& prompt_model,
                         const std::vector<eval::SourceText>& sources,
                         const std::vector<eval::BuiltPrompt>& prompts,
                         std::string_view set) {
  const model::Tokenizer& tokenizer = *prompt_model.tokenizer;
  json::array rows;
  for (const eval::BuiltPrompt& built : prompts) {
    rows.push_back(json::object{{"question_id", built.prompt.id},
                                {"tokens", built.tokens},
                                {"sources", quotations_json(built, sources)}});
  }
  return {{"command", "rift prompts build"},
          {"version", RIFT_VERSION},
          {"tokens", json::array(arguments.build.tokens.begin(), arguments.build.tokens.end())},
          {"count", arguments.build.count},
          {"seed", arguments.build.seed},
          {"folders", json::array(arguments.sources.begin(), arguments.sources.end())},
          {"model",
           {{"file", fs::path(arguments.model).filename().string()},
            {"tokenizer_sha256", tokenizer.hash()},
            {"chat_format", model::to_string(prompt_model.format)},
            {"chat_template_sha256", sha256_of(tokenizer.chat_template())}}},
          {"set_sha256", sha256_of(set)},
          {"prompts", rows}};
}

void write_file(const fs::path& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out) {
    throw fail(Errc::kIo, "cannot write {}", path.string());
  }
}

void build(const Arguments& arguments) {
  const PromptModel prompt_model = open_model(arguments);
  const auto sources = open_sources(arguments);
  const auto prompts =
      eval::build_prompts(sources, arguments.build, [&prompt_model](std::string_view text) {
        return prompt_model.count(text);
      });
  std::string set;
  for (const eval::BuiltPrompt& built : prompts) {
    set += eval::to_json_line(built.prompt);
  }
  const fs::path recipe = fs::path(arguments.output).replace_extension(".recipe.json");
  write_file(arguments.output, set);
  write_file(recipe,
             json::serialize(recipe_json(arguments, prompt_model, sources, prompts, set)) + '\n');
  for (const eval::BuiltPrompt& built : prompts) {
    fmt::print("{:<32} {:>7} tokens, {} sources\n",
               built.prompt.id,
               built.tokens,
               built.quotations.size());
  }
  fmt::print("{} prompts in {}, how they were made in {}\n",
             prompts.size(),
             arguments.output,
             recipe.string());
}

}  // namespace

void add_prompts_commands(CLI::App& app, int& /*exit_code*/) {
  CLI::App* prompts = app.add_subcommand("prompts", "Make prompt sets");
  prompts->require_subcommand(1);
  prompts->footer(
      "Examples:\n"
      "  rift prompts build -m model.gguf --tokens 4000,8000 --count 5 -o long.jsonl\n"
      "  rift prompts build --help");
  CLI::App* command = prompts->add_subcommand(
      "build", "Long-context prompts of a stated length in the model's own tokens");
  auto arguments = std::make_shared<Arguments>();
  command
      ->add_option("-m,--model", arguments->model, "GGUF file, tokenizer.json or checkpoint folder")
      ->required();
  command
      ->add_option("--tokens",
                   arguments->build.tokens,
                   "Lengths, chat template included, with commas between")
      ->delimiter(',')
      ->check(CLI::Range(eval::kLeastPromptTokens, eval::kMostPromptTokens))
      ->required();
  command->add_option("--count", arguments->build.count, "Prompts of each length")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--seed", arguments->build.seed, "Chooses questions and sources")
      ->capture_default_str();
  command->add_option("-o,--output", arguments->output, "The set, JSON lines")->required();
  command->add_option("--sources",
                      arguments->sources,
                      "Folders of *.py, *.txt, *.rst and *.md files to quote (default: the Python "
                      "standard library and the licences of this machine)");
  command->add_option("--chat-format", arguments->chat_format, "chatml or llama3")
      ->check(CLI::IsMember({"chatml", "llama3"}));
  command->footer(
      "Each prompt begins with what it asks about and goes on with other sources: rewrite a "
      "class,\n"
      "explain a module, quote a function, quote a section. None is longer than stated. The same\n"
      "sources, model and options give the same bytes; FILE.recipe.json lists what was quoted.\n\n"
      "Examples:\n"
      "  rift prompts build -m model.gguf --tokens 4000,8000 --count 5 -o long.jsonl\n"
      "  rift prompts build -m model.gguf --tokens 32000 --seed 7 --sources src docs -o own.jsonl");
  command->callback([arguments] { build(*arguments); });
}

}  // namespace rift::cli
