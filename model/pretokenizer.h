// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rift::model {

/// Cuts text into the pieces that byte pairs are merged in. Each step is a regular expression whose
/// matches become pieces of their own, as does what lies between them; the next step cuts those
/// pieces further. Immutable. Thread: any.
class PreTokenizer {
 public:
  /// Steps as patterns of Perl syntax; \s is Unicode's White_Space.
  /// Errors (thrown): kUnsupported for a pattern that does not compile.
  explicit PreTokenizer(const std::vector<std::string>& patterns);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  /// Pieces of `text` in order; together they are `text`. A stretch of bytes that is not UTF-8 is a
  /// piece of its own. Errors (thrown): kResourceExhausted where a pattern from a file needs too
  /// many steps on this text.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Steps;
  std::unique_ptr<const Steps> steps_;
};

/// A pre-tokenizer by its name in tokenizer.ggml.pre.
struct NamedPreTokenizer {
  std::string_view name;
  std::vector<std::string> patterns;
  bool ignore_merges = false;  // a piece that is a token is taken whole, whatever the merges say
};

/// nullptr where the name is unknown.
[[nodiscard]] const NamedPreTokenizer* find_pretokenizer(std::string_view name);
/// "deepseek-coder, default, gpt-2, ...": for messages.
[[nodiscard]] std::string known_pretokenizers();
/// GPT-2's pattern, which tokenizer.json leaves implicit.
[[nodiscard]] std::string_view gpt2_pattern();

}  // namespace rift::model
