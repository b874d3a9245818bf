// SPDX-License-Identifier: Apache-2.0
#include "model/tokenizer.h"

#include "common/error.h"
#include "model/bpe_tokenizer.h"
#include "model/gguf.h"
#include "model/tokenizer_data.h"
#include "model/utf8.h"

#include <algorithm>
#include <cstddef>

namespace rift::model {
namespace {

// A token as messages show it.
std::string describe(const Tokenizer& tokenizer, TokenId id) {
  if (const auto name = tokenizer.control_name(id); !name.empty()) {
    return fmt::format("the control token '{}'", name);
  }
  const std::string_view piece = tokenizer.piece(id);
  if (piece.empty()) {
    return "unused";
  }
  if (is_utf8(piece) && std::none_of(piece.begin(), piece.end(), [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
      })) {
    return fmt::format("'{}'", piece);
  }
  std::string hex;
  for (const char c : piece) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return fmt::format("bytes {}", hex);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::open(const std::filesystem::path& path,
                                                 const Options& options) {
  if (path.extension() == ".gguf") {
    const auto file = GgufFile::open(path);
    return std::make_shared<BpeTokenizer>(read_tokenizer(*file, options.pre));
  }
  const auto json = std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
  return std::make_shared<BpeTokenizer>(read_tokenizer_json(json, options.pre));
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) {
    text += piece(id);
  }
  return text;
}

std::optional<std::string> first_difference(const Tokenizer& a, const Tokenizer& b) {
  const std::int32_t count = std::max(a.size(), b.size());
  for (TokenId id = 0; id < count; ++id) {
    if (a.piece(id) != b.piece(id) || a.control_name(id) != b.control_name(id)) {
      return fmt::format(
          "token {} is {} in one and {} in the other", id, describe(a, id), describe(b, id));
    }
  }
  return std::nullopt;
}

}  // namespace rift::model
