// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "common/error.h"
#include "model/json_file.h"
#include "model/tokenizer.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rift::cli {
namespace {

using model::Tokenizer;

struct Arguments {
  std::string model;
  std::optional<std::string> pre;
  std::optional<std::string> text;
  std::string file;
  bool special = false;
  bool bos = false;
};

// The text after -p, or all bytes of the file after -f.
std::string input_of(const Arguments& arguments) {
  if (arguments.text) {
    return *arguments.text;
  }
  std::ifstream file;
  if (arguments.file != "-") {
    file.open(arguments.file, std::ios::binary);
    if (!file) {
      throw fail(Errc::kNotFound, "cannot open {}", arguments.file);
    }
  }
  std::istream& in = arguments.file == "-" ? std::cin : file;
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (in.bad()) {
    throw fail(Errc::kIo, "cannot read {}", arguments.file);
  }
  return bytes;
}

std::shared_ptr<const Tokenizer> open_tokenizer(const Arguments& arguments) {
  return Tokenizer::open(arguments.model, {.pre = arguments.pre});
}

void tokenize(const Arguments& arguments) {
  const std::string text = input_of(arguments);
  const auto tokenizer = open_tokenizer(arguments);
  std::vector<TokenId> ids;
  if (arguments.bos) {
    if (!tokenizer->bos()) {
      throw fail(Errc::kInvalidArgument, "--bos: {} has no start token", arguments.model);
    }
    ids.push_back(*tokenizer->bos());
  }
  const auto encoded = tokenizer->encode(text, arguments.special);
  ids.insert(ids.end(), encoded.begin(), encoded.end());
  fmt::print("[{}]\n", fmt::join(ids, ", "));
}

std::vector<TokenId> parse_ids(std::string_view text, std::int32_t count) {
  const boost::json::value value = model::parse_json(text, "token ids");
  if (!value.is_array()) {
    throw fail(Errc::kInvalidArgument, "token ids are not a JSON array, like [9707, 11]");
  }
  std::vector<TokenId> ids;
  for (const boost::json::value& id : value.get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= count) {
      throw fail(Errc::kOutOfRange,
                 "entry {} of the token ids is {}: not an id of this tokenizer, 0 to {}",
                 ids.size(),
                 boost::json::serialize(id),
                 count - 1);
    }
    ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return ids;
}

void detokenize(const Arguments& arguments) {
  const std::string input = input_of(arguments);
  const auto tokenizer = open_tokenizer(arguments);
  std::string text;
  for (const TokenId id : parse_ids(input, tokenizer->size())) {
    text += tokenizer->piece(id);
    if (arguments.special) {
      text += tokenizer->control_name(id);
    }
  }
  // The bytes alone, so that they can be compared and piped; a newline would be one more token.
  std::fwrite(text.data(), 1, text.size(), stdout);
}

CLI::App* add_command(CLI::App& app,
                      const char* name,
                      const char* description,
                      const char* input,
                      const std::shared_ptr<Arguments>& arguments) {
  CLI::App* command = app.add_subcommand(name, description);
  command
      ->add_option("-m,--model", arguments->model, "GGUF file, tokenizer.json or checkpoint folder")
      ->required();
  auto* source = command->add_option_group("input")->require_option(1);
  source->add_option("-p,--prompt", arguments->text, input);
  source->add_option("-f,--file", arguments->file, "file that holds it; - for stdin");
  command->add_option("--pre", arguments->pre, "pre-tokenizer, in place of the file's own");
  return command;
}

}  // namespace

void add_tokenizer_commands(CLI::App& app, int& /*exit_code*/) {
  auto to_ids = std::make_shared<Arguments>();
  CLI::App* command = add_command(app, "tokenize", "text to token ids", "the text", to_ids);
  command->add_flag("--special", to_ids->special, "recognise control tokens in the text");
  command->add_flag("--bos", to_ids->bos, "put the start token first");
  command->footer(
      "Prints a JSON array of ids.\n"
      "Examples:\n"
      "  rift tokenize -m model.gguf -p 'Hello, world!'\n"
      "  rift tokenize -m model.gguf --special -f prompt.txt > ids.json");
  command->callback([to_ids] { tokenize(*to_ids); });

  auto to_text = std::make_shared<Arguments>();
  command = add_command(app, "detokenize", "token ids to text", "the ids, a JSON array", to_text);
  command->add_flag("--special", to_text->special, "write control tokens by their names");
  command->footer(
      "Prints the bytes of the tokens and nothing else.\n"
      "Examples:\n"
      "  rift detokenize -m model.gguf -p '[9707, 11, 1879, 0]'\n"
      "  rift tokenize -m model.gguf -f a.txt | rift detokenize -m model.gguf -f - | cmp - a.txt");
  command->callback([to_text] { detokenize(*to_text); });
}

}  // namespace rift::cli
