// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/types.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rift::eval {

// Files of prompts. Their bytes are foreign: errors name file and line, sizes are bounded.
// Thread: any.

/// A question in text: the first user message. Value type.
struct Prompt {
  std::string id;        // unique within a set
  std::string category;  // may be empty
  std::string text;

  bool operator==(const Prompt&) const = default;
};

inline constexpr std::size_t kMaxPromptSetBytes = std::size_t{1} << 30;
inline constexpr std::size_t kMaxPromptLineBytes = std::size_t{1} << 26;
inline constexpr std::size_t kMaxReplayBytes = std::size_t{1} << 24;

/// Reads JSON lines with question_id (text or number), category and turns (texts; the first is the
/// prompt), as Spec-Bench's question.jsonl and exports of SPEED-Bench have them. Other keys and
/// empty lines are skipped. Errors (thrown): kNotFound, kIo; kOutOfRange (size); kCorrupt (line,
/// what); kMismatch (an id twice); kInvalidArgument (a row whose text is empty or a placeholder for
/// a text that must be fetched elsewhere; no row at all).
[[nodiscard]] std::vector<Prompt> read_prompt_set(const std::filesystem::path& path);
/// As read_prompt_set, from memory; `name` stands for the file in messages.
[[nodiscard]] std::vector<Prompt> parse_prompt_set(std::string_view text, std::string_view name);
/// One line of a set, with its newline.
[[nodiscard]] std::string to_json_line(const Prompt& prompt);

/// Reads recorded answers: {"name", "category", "prompt": [ids], "response": [ids]}, name and
/// category optional (the file's stem; empty). A path may be a folder: all its *.json but
/// *.recipe.json in the order of their names. vocabulary: ids must be below it.
/// Errors (thrown): as read_prompt_set; kOutOfRange (an id), kMismatch (a name twice).
[[nodiscard]] std::vector<Sequence> read_replays(std::span<const std::filesystem::path> paths,
                                                 std::int32_t vocabulary);
/// One file's text; `name` stands for the file in messages and, without directories and extension,
/// for a name that is not given.
[[nodiscard]] Sequence parse_replay(std::string_view text,
                                    const std::filesystem::path& name,
                                    std::int32_t vocabulary);
/// Writes what read_replays reads. Errors (thrown): kIo.
void write_replay(const std::filesystem::path& path, const Sequence& sequence);

}  // namespace rift::eval
