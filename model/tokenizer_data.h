// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

class GgufFile;

enum class TokenKind : std::uint8_t {
  kText,         // learned; text in the byte alphabet of GPT-2
  kControl,      // has a meaning of its own; never comes from plain text
  kUserDefined,  // added as it stands; recognised in any text
  kUnused,       // fills the table up
};

struct TokenEntry {
  std::string text;
  TokenKind kind = TokenKind::kUnused;
};

/// What a file says about its tokenizer, before anything is built from it.
struct TokenizerData {
  std::string source;  // file name, for messages
  std::vector<TokenEntry> tokens;
  std::vector<std::string> merges;  // "left right", in order of learning
  std::vector<std::string> patterns;
  bool ignore_merges = false;
  std::optional<TokenId> bos;
  bool adds_bos = false;
  std::vector<TokenId> end_of_generation;
  std::string chat_template;
};

/// Errors (thrown): kCorrupt, kUnsupported.
[[nodiscard]] TokenizerData read_tokenizer(const GgufFile& file,
                                           const std::optional<std::string>& pre);
/// The text of a tokenizer.json alone; `name` is used in messages. Errors (thrown): kCorrupt,
/// kUnsupported.
[[nodiscard]] TokenizerData parse_tokenizer_json(std::string_view text,
                                                 const std::string& name,
                                                 const std::optional<std::string>& pre);
/// A tokenizer.json, with what tokenizer_config.json and generation_config.json beside it add.
/// Errors (thrown): kNotFound, kIo, kCorrupt, kUnsupported.
[[nodiscard]] TokenizerData read_tokenizer_json(const std::filesystem::path& path,
                                                const std::optional<std::string>& pre);

/// Takes the patterns of a named pre-tokenizer. Errors (thrown): kUnsupported, listing the names.
void use_pretokenizer(TokenizerData& data, const std::string& name);

}  // namespace rift::model
