// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretokenizer.h"

#include "common/error.h"
#include "model/utf8.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rift::model {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

// Steps that one match may take: the known patterns stay below a few per byte of the text; those of
// a hostile file end in well under a second.
constexpr std::size_t kMatchSteps = 10'000'000;
constexpr std::size_t kMatchStepsPerByte = 8;
constexpr std::size_t kMaxPatternBytes = 16 * 1024;
constexpr std::size_t kJitStackMin = 32 * 1024;
constexpr std::size_t kJitStackMax = 8 * 1024 * 1024;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return std::string(reinterpret_cast<const char*>(buffer.data()));
}

// PCRE2's \s also takes U+180E, which Unicode and the tokenizers do not count as a space.
std::string with_unicode_spaces(std::string_view pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      out.push_back(pattern[i]);
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's' || escaped == 'S') {
      out += escaped == 's' ? "\\p{White_Space}" : "\\P{White_Space}";
    } else {
      out.push_back('\\');
      out.push_back(escaped);
    }
  }
  return out;
}

Code compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    throw fail(Errc::kUnsupported,
               "pre-tokenizer pattern of {} bytes is longer than {}; name one with --pre",
               pattern.size(),
               kMaxPatternBytes);
  }
  const std::string text = with_unicode_spaces(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()),
                          text.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                          &error,
                          &offset,
                          nullptr));
  if (code == nullptr) {
    throw fail(Errc::kUnsupported,
               "pre-tokenizer pattern '{}' does not compile: {} at byte {}; name one with --pre",
               text,
               error_text(error),
               offset);
  }
  // Without JIT on this machine the same patterns are interpreted.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

// What one call of split() needs besides the patterns.
class Matcher {
 public:
  Matcher(const pcre2_code* code, std::size_t text_bytes)
      : data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr)) {
    const std::size_t steps = kMatchSteps + kMatchStepsPerByte * text_bytes;
    pcre2_set_match_limit(context_.get(),
                          static_cast<std::uint32_t>(std::min<std::size_t>(steps, UINT32_MAX)));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  // First non-empty match in text at or after `from`: [begin, end), or both text.size().
  std::pair<std::size_t, std::size_t> next(const pcre2_code* code,
                                           std::string_view text,
                                           std::size_t from) {
    const int count = pcre2_match(code,
                                  reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(),
                                  from,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                                  data_.get(),
                                  context_.get());
    if (count == PCRE2_ERROR_NOMATCH) {
      return {text.size(), text.size()};
    }
    if (count < 0) {
      throw fail(Errc::kResourceExhausted,
                 "pre-tokenizer gave up at byte {} of {}: {}",
                 from,
                 text.size(),
                 error_text(count));
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
    return {bounds[0], bounds[1]};
  }

 private:
  std::unique_ptr<pcre2_match_data, FreeMatch> data_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
  std::unique_ptr<pcre2_jit_stack, FreeStack> stack_;
};

void cut(const pcre2_code* code,
         Matcher& matcher,
         std::string_view text,
         std::vector<std::string_view>& out) {
  std::size_t done = 0;
  while (done < text.size()) {
    const auto [begin, end] = matcher.next(code, text, done);
    if (end <= begin) {  // none left, or \K moved the start past the end
      out.push_back(text.substr(done));
      return;
    }
    if (begin > done) {
      out.push_back(text.substr(done, begin - done));
    }
    out.push_back(text.substr(begin, end - begin));
    done = end;
  }
}

// Stretches of `text` that are UTF-8, and the bytes between them.
template <typename TextSink, typename ByteSink>
void for_each_stretch(std::string_view text, const TextSink& text_sink, const ByteSink& byte_sink) {
  while (!text.empty()) {
    const std::size_t good = first_invalid_utf8(text);
    if (good > 0) {
      text_sink(text.substr(0, good));
      text.remove_prefix(good);
    }
    std::size_t bad = 0;
    while (bad < text.size() && first_invalid_utf8(text.substr(bad, 4)) == 0) {
      ++bad;
    }
    if (bad > 0) {
      byte_sink(text.substr(0, bad));
      text.remove_prefix(bad);
    }
  }
}

// Published patterns of the models' tokenizers.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";

const std::vector<NamedPreTokenizer>& table() {
  static const std::vector<NamedPreTokenizer> names = [] {
    const std::vector<std::string> gpt2{std::string(kGpt2)};
    const std::vector<std::string> digits_gpt2{std::string(kDigit), std::string(kGpt2)};
    const std::vector<std::string> llama3{std::string(kLlama3)};
    const std::vector<std::string> qwen2{std::string(kQwen2)};
    const std::vector<std::string> deepseek_coder{R"([\r\n])",
                                                  R"(\s?\p{L}+)",
                                                  R"(\s?\p{P}+)",
                                                  R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00})"
                                                  R"(\x{AC00}-\x{D7FF}]+)",
                                                  std::string(kDigit)};
    return std::vector<NamedPreTokenizer>{{"codeshell", digits_gpt2},
                                          {"deepseek-coder", deepseek_coder},
                                          {"deepseek-r1-qwen", qwen2},
                                          {"default", gpt2},
                                          {"gpt-2", gpt2},
                                          {"llama-bpe", llama3, true},
                                          {"llama-v3", llama3, true},
                                          {"llama3", llama3, true},
                                          {"qwen2", qwen2},
                                          {"refact", digits_gpt2},
                                          {"smollm", digits_gpt2},
                                          {"stablelm2", qwen2},
                                          {"starcoder", digits_gpt2}};
  }();
  return names;
}

}  // namespace

struct PreTokenizer::Steps {
  std::vector<Code> codes;
};

PreTokenizer::PreTokenizer(const std::vector<std::string>& patterns) {
  auto steps = std::make_unique<Steps>();
  for (const std::string& pattern : patterns) {
    steps->codes.push_back(compile(pattern));
  }
  steps_ = std::move(steps);
}

PreTokenizer::~PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  std::vector<Matcher> matchers;
  for (const Code& code : steps_->codes) {
    matchers.emplace_back(code.get(), text.size());
  }
  const auto cut_text = [&](std::string_view stretch) {
    std::vector<std::string_view> parts{stretch};
    for (std::size_t i = 0; i < matchers.size(); ++i) {
      std::vector<std::string_view> finer;
      for (const std::string_view part : parts) {
        cut(steps_->codes[i].get(), matchers[i], part, finer);
      }
      parts = std::move(finer);
    }
    pieces.insert(pieces.end(), parts.begin(), parts.end());
  };
  for_each_stretch(text, cut_text, [&](std::string_view bytes) { pieces.push_back(bytes); });
  return pieces;
}

const NamedPreTokenizer* find_pretokenizer(std::string_view name) {
  for (const NamedPreTokenizer& known : table()) {
    if (known.name == name) {
      return &known;
    }
  }
  return nullptr;
}

std::string known_pretokenizers() {
  std::string out;
  for (const NamedPreTokenizer& known : table()) {
    out += (out.empty() ? "" : ", ") + std::string(known.name);
  }
  return out;
}

std::string_view gpt2_pattern() { return kGpt2; }

}  // namespace rift::model
