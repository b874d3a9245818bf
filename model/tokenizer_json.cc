// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "model/json_file.h"
#include "model/mapped_file.h"
#include "model/pretokenizer.h"
#include "model/tokenizer_data.h"

#include <boost/json.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

namespace rift::model {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxBytes = 256 << 20;

// Member of an object; nullptr where absent, null, or `value` is no object.
const json::value* member(const json::value* value, std::string_view key) {
  if (value == nullptr || !value->is_object()) {
    return nullptr;
  }
  const json::value* found = value->get_object().if_contains(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string_view text_of(const json::value* value) {
  return value != nullptr && value->is_string() ? std::string_view(value->get_string())
                                                : std::string_view();
}

bool flag_of(const json::value* value, bool otherwise) {
  return value != nullptr && value->is_bool() ? value->get_bool() : otherwise;
}

std::span<const json::value> elements(const json::value* value) {
  return value != nullptr && value->is_array()
             ? std::span(value->get_array().data(), value->get_array().size())
             : std::span<const json::value>();
}

// Reads one tokenizer.json.
class Reader {
 public:
  Reader(const json::value& root, TokenizerData& data) : root_(&root), data_(data) {}

  void read(const std::optional<std::string>& pre) {
    const json::value* model = member(root_, "model");
    // Files from before the field existed are recognised by their merges.
    const std::string_view type = text_of(member(model, "type"));
    if (type != "BPE" && !(type.empty() && member(model, "merges") != nullptr)) {
      throw fail(Errc::kUnsupported,
                 "{}: tokenizer model '{}' is not supported, only byte-level BPE is",
                 data_.source,
                 type);
    }
    data_.ignore_merges = flag_of(member(model, "ignore_merges"), false);
    if (pre) {
      use_pretokenizer(data_, *pre);
    } else {
      bool byte_level = false;
      read_pretokenizer(member(root_, "pre_tokenizer"), byte_level);
      if (!byte_level) {
        throw unsupported("a pre-tokenizer without ByteLevel");
      }
    }
    read_tokens(member(model, "vocab"));
    read_merges(member(model, "merges"));
  }

 private:
  [[nodiscard]] Error unsupported(std::string_view what) const {
    return fail(Errc::kUnsupported,
                "{}: {} is not supported; choose one of {} with --pre where it fits",
                data_.source,
                what,
                known_pretokenizers());
  }
  [[nodiscard]] Error corrupt(std::string_view what) const {
    return fail(Errc::kCorrupt, "{}: {}", data_.source, what);
  }

  void read_pretokenizer(const json::value* step, bool& byte_level) {
    const std::string_view type = text_of(member(step, "type"));
    if (type == "Sequence") {
      for (const json::value& inner : elements(member(step, "pretokenizers"))) {
        read_pretokenizer(&inner, byte_level);
      }
    } else if (type == "Split") {
      const std::string_view regex = text_of(member(member(step, "pattern"), "Regex"));
      if (regex.empty() || text_of(member(step, "behavior")) != "Isolated" ||
          flag_of(member(step, "invert"), false)) {
        throw unsupported("a Split that is not an isolating regular expression");
      }
      data_.patterns.emplace_back(regex);
    } else if (type == "Digits") {
      const bool single = flag_of(member(step, "individual_digits"), false);
      data_.patterns.emplace_back(single ? R"(\p{N})" : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      byte_level = true;
      if (flag_of(member(step, "add_prefix_space"), false)) {
        throw unsupported("ByteLevel with add_prefix_space");
      }
      if (flag_of(member(step, "use_regex"), true)) {
        data_.patterns.emplace_back(gpt2_pattern());
      }
    } else {
      throw unsupported(fmt::format("pre-tokenizer '{}'", type));
    }
  }

  void put(std::int64_t id, std::string_view text, TokenKind kind, std::size_t limit) {
    // A table much longer than its entries is no tokenizer but an attempt to take memory.
    if (id < 0 || static_cast<std::uint64_t>(id) >= limit) {
      throw corrupt(fmt::format("token '{}' has the id {}", text.substr(0, 80), id));
    }
    const auto at = static_cast<std::size_t>(id);
    if (at >= data_.tokens.size()) {
      data_.tokens.resize(at + 1);
    }
    TokenEntry& entry = data_.tokens[at];
    if (kind == TokenKind::kText && entry.kind != TokenKind::kUnused) {
      throw corrupt(fmt::format("two tokens have the id {}", id));
    }
    entry = {std::string(text), kind};
  }

  void read_tokens(const json::value* vocab) {
    if (vocab == nullptr || !vocab->is_object()) {
      throw corrupt("model.vocab is not an object");
    }
    const auto added = elements(member(root_, "added_tokens"));
    const std::size_t limit = 2 * (vocab->get_object().size() + added.size()) + 4096;
    for (const auto& [text, id] : vocab->get_object()) {
      put(id.is_int64() ? id.get_int64() : -1, text, TokenKind::kText, limit);
    }
    for (const json::value& token : added) {
      const json::value* id = member(&token, "id");
      const bool special = flag_of(member(&token, "special"), false);
      put(id != nullptr && id->is_int64() ? id->get_int64() : -1,
          text_of(member(&token, "content")),
          special ? TokenKind::kControl : TokenKind::kUserDefined,
          limit);
    }
  }

  void read_merges(const json::value* merges) {
    for (const json::value& merge : elements(merges)) {
      const auto pair = elements(&merge);
      if (merge.is_string()) {
        data_.merges.emplace_back(merge.get_string());
      } else if (pair.size() == 2 && pair[0].is_string() && pair[1].is_string()) {
        data_.merges.push_back(fmt::format("{} {}", text_of(&pair[0]), text_of(&pair[1])));
      } else {
        throw corrupt(fmt::format("merge {} is not a pair of strings", data_.merges.size()));
      }
    }
  }

  const json::value* root_;
  TokenizerData& data_;
};

std::optional<TokenId> id_of(const TokenizerData& data, std::string_view text) {
  const auto it = std::find_if(data.tokens.begin(), data.tokens.end(), [&](const auto& token) {
    return token.kind == TokenKind::kControl && token.text == text;
  });
  return it == data.tokens.end() ? std::nullopt
                                 : std::optional(static_cast<TokenId>(it - data.tokens.begin()));
}

// A special token is given by its text, or by an object that holds it.
std::optional<TokenId> special_token(const TokenizerData& data,
                                     const json::value& config,
                                     std::string_view key) {
  const json::value* value = member(&config, key);
  const json::value* content = member(value, "content");
  const std::string_view text = text_of(content != nullptr ? content : value);
  return text.empty() ? std::nullopt : id_of(data, text);
}

// One template, or several with names of which "default" is the plain one.
std::string chat_template_of(const json::value& config) {
  const json::value* value = member(&config, "chat_template");
  for (const json::value& named : elements(value)) {
    if (text_of(member(&named, "name")) == "default") {
      return std::string(text_of(member(&named, "template")));
    }
  }
  return std::string(text_of(value));
}

// True where the post-processor puts the start token before a text.
bool template_starts_with(const json::value* processor, std::string_view bos) {
  for (const json::value& inner : elements(member(processor, "processors"))) {
    if (template_starts_with(&inner, bos)) {
      return true;
    }
  }
  const auto single = elements(member(processor, "single"));
  return !single.empty() && !bos.empty() &&
         text_of(member(member(&single[0], "SpecialToken"), "id")) == bos;
}

void read_neighbours(TokenizerData& data,
                     const json::value& root,
                     const std::filesystem::path& folder) {
  if (const auto path = folder / "tokenizer_config.json"; std::filesystem::exists(path)) {
    const json::value config = read_json(path, kMaxBytes);
    data.bos = special_token(data, config, "bos_token");
    const std::string_view bos =
        data.bos ? data.tokens[static_cast<std::size_t>(*data.bos)].text : std::string_view();
    data.adds_bos = data.bos && flag_of(member(&config, "add_bos_token"),
                                        template_starts_with(member(&root, "post_processor"), bos));
    if (const auto eos = special_token(data, config, "eos_token")) {
      data.end_of_generation.push_back(*eos);
    }
    data.chat_template = chat_template_of(config);
  }
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path)) {
    const MappedFile file(path);
    const auto bytes = file.bytes();
    data.chat_template.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (const auto path = folder / "generation_config.json"; std::filesystem::exists(path)) {
    const json::value config = read_json(path, kMaxBytes);
    const json::value* eos = member(&config, "eos_token_id");
    const auto add = [&](const json::value& id) {
      if (id.is_int64() && id.get_int64() >= 0 &&
          static_cast<std::uint64_t>(id.get_int64()) < data.tokens.size()) {
        data.end_of_generation.push_back(static_cast<TokenId>(id.get_int64()));
      }
    };
    if (eos != nullptr) {
      add(*eos);
      std::ranges::for_each(elements(eos), add);
    }
  }
}

}  // namespace

TokenizerData parse_tokenizer_json(std::string_view text,
                                   const std::string& name,
                                   const std::optional<std::string>& pre) {
  const json::value root = parse_json(text, name);
  TokenizerData data;
  data.source = name;
  Reader(root, data).read(pre);
  return data;
}

TokenizerData read_tokenizer_json(const std::filesystem::path& path,
                                  const std::optional<std::string>& pre) {
  const json::value root = read_json(path, kMaxBytes);
  TokenizerData data;
  data.source = path.string();
  Reader(root, data).read(pre);
  read_neighbours(data, root, path.parent_path());
  return data;
}

}  // namespace rift::model
