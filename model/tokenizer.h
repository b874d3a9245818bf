// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/types.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

/// GPT-2 style byte-level BPE, from GGUF metadata or tokenizer.json. Immutable.
/// Thread: any, after construction.
class Tokenizer {
 public:
  struct Options {
    std::optional<std::string> pre;  // overrides tokenizer.ggml.pre, e.g. "qwen2"
  };
  /// path: a .gguf file, a tokenizer.json or a checkpoint folder.
  /// Errors (thrown): kNotFound, kCorrupt, kUnsupported (unknown pre-tokenizer or model; the
  /// message lists the known ones and the override).
  [[nodiscard]] static std::shared_ptr<const Tokenizer> open(const std::filesystem::path& path,
                                                             const Options& options);
  virtual ~Tokenizer() = default;

  /// parse_special: control tokens written in `text` become their ids; otherwise they are plain
  /// text. No start token is added. Any bytes are accepted.
  [[nodiscard]] virtual std::vector<TokenId> encode(std::string_view text,
                                                    bool parse_special) const = 0;
  /// Bytes of one token, possibly part of a UTF-8 sequence; empty for control tokens.
  [[nodiscard]] virtual std::string_view piece(TokenId id) const = 0;
  /// Name of a control token, e.g. "<|im_end|>"; empty for others.
  [[nodiscard]] virtual std::string_view control_name(TokenId id) const = 0;
  /// Id of a control token by its text.
  [[nodiscard]] virtual std::optional<TokenId> control_id(std::string_view name) const = 0;

  [[nodiscard]] virtual std::int32_t size() const = 0;
  [[nodiscard]] virtual bool is_end_of_generation(TokenId id) const = 0;
  [[nodiscard]] virtual std::optional<TokenId> bos() const = 0;
  [[nodiscard]] virtual bool adds_bos() const = 0;
  /// Jinja template of the file; empty where it has none.
  [[nodiscard]] virtual std::string_view chat_template() const = 0;
  /// sha256 hex over all tokens with their kinds, padding tokens left out.
  [[nodiscard]] virtual std::string_view hash() const = 0;

  [[nodiscard]] std::string decode(std::span<const TokenId> ids) const;
};

/// Empty where `a` and `b` give every token the same id (padding at the end may differ); otherwise
/// names the first differing token.
[[nodiscard]] std::optional<std::string> first_difference(const Tokenizer& a, const Tokenizer& b);

}  // namespace rift::model
