// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/prompt_set.h"
#include "eval/source_text.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::eval {

/// Tokens of a whole prompt whose user message is `text`, chat template included.
using CountTokens = std::function<std::int32_t(std::string_view text)>;

struct BuildOptions {
  std::vector<std::int32_t> tokens;  // lengths, each for `count` prompts; 1,000 to 100,000
  std::int32_t count = 1;
  std::uint64_t seed = 1;
};

/// Lines of a source that a prompt quotes. Value type.
struct Quotation {
  std::size_t source = 0;  // index
  LineRange lines;
  std::size_t cut_bytes = 0;  // of line lines.end, quoted behind them; 0: none
};

struct BuiltPrompt {
  Prompt prompt;
  std::int32_t tokens = 0;  // counted
  std::vector<Quotation> quotations;
};

inline constexpr std::int32_t kLeastPromptTokens = 1000;
inline constexpr std::int32_t kMostPromptTokens = 100'000;

/// Prompts that begin with what they ask about and go on with other sources up to a length: rewrite
/// a class, explain a module's functions, quote a definition, quote a section (the categories, in
/// turn). No prompt is longer than asked, and none more than a few tokens shorter: the last
/// line is cut behind a word. The same sources,
/// counts and options give the same prompts. Each question is asked once per set.
/// Errors (thrown): kInvalidArgument (options), kResourceExhausted (the sources hold too little
/// text or too few questions; says how much and what to do). Thread: any.
[[nodiscard]] std::vector<BuiltPrompt> build_prompts(std::span<const SourceText> sources,
                                                     const BuildOptions& options,
                                                     const CountTokens& count_tokens);

}  // namespace rift::eval
