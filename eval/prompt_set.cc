// SPDX-License-Identifier: Apache-2.0
#include "eval/prompt_set.h"

#include "common/error.h"
#include "model/json_file.h"
#include "model/mapped_file.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <unordered_map>
#include <utility>

namespace rift::eval {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

// SPEED-Bench writes this where the text's licence lets nobody else publish it.
constexpr std::string_view kPlaceholder = "FULL BENCHMARK DATA SHOULD BE FETCHED";
constexpr std::string_view kBlank = " \t\r\n";

std::string_view text_of(const model::MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

void check_size(std::size_t bytes, std::size_t most, std::string_view what) {
  if (bytes > most) {
    throw fail(Errc::kOutOfRange, "{} has {} bytes; the most it may have is {}", what, bytes, most);
  }
}

std::string key_of(const json::value& id) {
  if (id.is_string()) {
    return std::string(id.get_string());
  }
  // Tables export whole numbers as 81.0.
  if (id.is_double() && std::trunc(id.get_double()) == id.get_double()) {
    return fmt::format("{:.0f}", id.get_double());
  }
  return id.is_number() ? json::serialize(id) : "";
}

// The text under `key`; empty where there is none.
std::string text_or_empty(const json::object& object, std::string_view key, std::string_view at) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) {
    return "";
  }
  if (!value->is_string()) {
    throw fail(Errc::kCorrupt, "{}: {} is not a text", at, key);
  }
  return std::string(value->get_string());
}

// at: "file:line".
Prompt prompt_of(const json::value& value, std::string_view at) {
  const json::object* row = value.if_object();
  if (row == nullptr) {
    throw fail(Errc::kCorrupt, "{}: not a JSON object", at);
  }
  Prompt prompt;
  if (const json::value* id = row->if_contains("question_id")) {
    prompt.id = key_of(*id);
  }
  if (prompt.id.empty()) {
    throw fail(Errc::kCorrupt, "{}: no question_id that is a text or a number", at);
  }
  prompt.category = text_or_empty(*row, "category", at);
  const json::value* turns = row->if_contains("turns");
  const json::array* list = turns == nullptr ? nullptr : turns->if_array();
  if (list == nullptr || list->empty() || !list->front().is_string()) {
    throw fail(Errc::kCorrupt,
               "{}: row {} has no turns, a list of texts whose first is the prompt",
               at,
               prompt.id);
  }
  prompt.text = list->front().get_string();
  if (prompt.text.find_first_not_of(kBlank) == std::string::npos) {
    throw fail(Errc::kInvalidArgument, "{}: row {} has an empty prompt", at, prompt.id);
  }
  if (prompt.text.find(kPlaceholder) != std::string::npos) {
    throw fail(Errc::kInvalidArgument,
               "{}: row {} holds a placeholder, not a prompt: \"{} ...\". Fetch the texts with the "
               "data set's own script (for SPEED-Bench: prepare_data.py of specdec_bench) and "
               "export them again, or leave the row out",
               at,
               prompt.id,
               kPlaceholder);
  }
  return prompt;
}

// Ids of one list; kOutOfRange for one outside 0..vocabulary-1.
std::vector<TokenId> ids_of(const json::object& object,
                            std::string_view key,
                            std::string_view at,
                            std::int32_t vocabulary) {
  const json::value* value = object.if_contains(key);
  const json::array* list = value == nullptr ? nullptr : value->if_array();
  if (list == nullptr || list->empty()) {
    throw fail(Errc::kCorrupt, "{}: no {}, a list of token ids", at, key);
  }
  std::vector<TokenId> ids;
  ids.reserve(list->size());
  for (const json::value& id : *list) {
    if (!id.is_int64()) {
      throw fail(Errc::kCorrupt,
                 "{}: entry {} of {} is {}, not a token id",
                 at,
                 ids.size(),
                 key,
                 json::serialize(id).substr(0, 40));
    }
    if (id.get_int64() < 0 || id.get_int64() >= vocabulary) {
      throw fail(Errc::kOutOfRange,
                 "{}: entry {} of {} is {}; the model's ids are 0 to {}. Was it recorded with "
                 "another model family?",
                 at,
                 ids.size(),
                 key,
                 id.get_int64(),
                 vocabulary - 1);
    }
    ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return ids;
}

std::vector<fs::path> replay_files(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    return {path};
  }
  std::vector<fs::path> files;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.ends_with(".json") && !name.ends_with(".recipe.json")) {
      files.push_back(it->path());
    }
  }
  if (error) {
    throw fail(Errc::kIo, "cannot list {}: {}", path.string(), error.message());
  }
  if (files.empty()) {
    throw fail(Errc::kNotFound, "{} holds no replay (*.json)", path.string());
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::vector<Prompt> parse_prompt_set(std::string_view text, std::string_view name) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  std::vector<Prompt> prompts;
  std::unordered_map<std::string, std::size_t> lines;  // by id
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.find_first_not_of(kBlank) == std::string_view::npos) {
      continue;
    }
    const std::string at = fmt::format("{}:{}", name, number);
    check_size(line.size(), kMaxPromptLineBytes, at);
    Prompt prompt = prompt_of(model::parse_json(line, at), at);
    const auto [first, added] = lines.try_emplace(prompt.id, number);
    if (!added) {
      throw fail(Errc::kMismatch,
                 "{}: question_id {} is that of line {} already",
                 at,
                 prompt.id,
                 first->second);
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    throw fail(Errc::kInvalidArgument, "{}: no prompt in it", name);
  }
  return prompts;
}

std::vector<Prompt> read_prompt_set(const fs::path& path) {
  const model::MappedFile file(path);
  check_size(file.bytes().size(), kMaxPromptSetBytes, path.string());
  return parse_prompt_set(text_of(file), path.string());
}

std::string to_json_line(const Prompt& prompt) {
  const json::object row{{"question_id", prompt.id},
                         {"category", prompt.category},
                         {"turns", json::array{json::string(prompt.text)}}};
  return json::serialize(row) + '\n';
}

Sequence parse_replay(std::string_view text, const fs::path& name, std::int32_t vocabulary) {
  const std::string at = name.string();
  const json::value value = model::parse_json(text, at);
  const json::object* object = value.if_object();
  if (object == nullptr) {
    throw fail(Errc::kCorrupt, "{}: not a JSON object", at);
  }
  Sequence sequence;
  sequence.name = text_or_empty(*object, "name", at);
  if (sequence.name.empty()) {
    sequence.name = name.stem().string();
  }
  sequence.category = text_or_empty(*object, "category", at);
  sequence.prompt = ids_of(*object, "prompt", at, vocabulary);
  sequence.response = ids_of(*object, "response", at, vocabulary);
  return sequence;
}

std::vector<Sequence> read_replays(std::span<const fs::path> paths, std::int32_t vocabulary) {
  std::vector<Sequence> sequences;
  std::unordered_map<std::string, fs::path> files;  // by name
  for (const fs::path& path : paths) {
    for (const fs::path& file : replay_files(path)) {
      const model::MappedFile mapped(file);
      check_size(mapped.bytes().size(), kMaxReplayBytes, file.string());
      Sequence sequence = parse_replay(text_of(mapped), file, vocabulary);
      const auto [first, added] = files.try_emplace(sequence.name, file);
      if (!added) {
        throw fail(Errc::kMismatch,
                   "{}: its name, {}, is that of {} already",
                   file.string(),
                   sequence.name,
                   first->second.string());
      }
      sequences.push_back(std::move(sequence));
    }
  }
  return sequences;
}

void write_replay(const fs::path& path, const Sequence& sequence) {
  json::object out{{"name", sequence.name}};
  if (!sequence.category.empty()) {
    out["category"] = sequence.category;
  }
  out["prompt"] = json::array(sequence.prompt.begin(), sequence.prompt.end());
  out["response"] = json::array(sequence.response.begin(), sequence.response.end());
  std::ofstream file(path, std::ios::binary);
  file << json::serialize(out) << '\n';
  file.close();
  if (!file) {
    throw fail(Errc::kIo, "cannot write {}", path.string());
  }
}

}  // namespace rift::eval
