// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rift::model {

/// Bytes of a token as GPT-2 style vocabularies write it: every byte is one printable code point
/// (printable Latin-1 bytes stand for themselves, the others for U+0100 and up, in order).
/// Nothing where `text` holds any other character. Pure.
/// Source: Radford et al., "Language models are unsupervised multitask learners", 2019, code.
[[nodiscard]] std::optional<std::string> bytes_of_token_text(std::string_view text);

}  // namespace rift::model
