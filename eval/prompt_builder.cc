// SPDX-License-Identifier: Apache-2.0
#include "eval/prompt_builder.h"

#include "common/error.h"
#include "eval/draws.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

namespace rift::eval {
namespace {

constexpr std::size_t kBytesPerToken = 4;  // of most text; a guess that only saves work
// What is asked about fills at most half of the prompt.
constexpr std::size_t kMostTargetBytesPerToken = kBytesPerToken / 2;
constexpr std::size_t kLeastTargetBytes = 300;
constexpr std::size_t kMostTargetBytes = 8000;  // about 2,000 tokens of answer

/// A question about the beginning of a prompt.
struct Question {
  std::string category;
  std::size_t source = 0;
  std::size_t first = 0;       // line of the source that the prompt begins with
  std::size_t target_end = 0;  // all lines before this one are needed
  std::string text;
};

bool answer_fits(std::size_t bytes) {
  return bytes >= kLeastTargetBytes && bytes <= kMostTargetBytes;
}

void add_rewrites(const SourceText& s, std::size_t index, std::vector<Question>& out) {
  for (const Definition& d : definitions(s)) {
    const auto methods =
        std::count_if(s.lines.begin() + static_cast<std::ptrdiff_t>(d.lines.first),
                      s.lines.begin() + static_cast<std::ptrdiff_t>(d.lines.end),
                      [](const std::string& line) { return line.starts_with("    def "); });
    if (d.is_class && methods >= 2 && answer_fits(byte_count(s, d.lines))) {
      out.push_back(
          {"rewrite-class",
           index,
           d.lines.first,
           d.lines.end,
           fmt::format("Rewrite the whole class {} from {} with type hints on the parameters and "
                       "the return value of every method. Keep all docstrings, comments and method "
                       "bodies. Answer with one Python code block.\n",
                       d.name,
                       s.file)});
    }
  }
}

void add_explanation(const SourceText& s, std::size_t index, std::vector<Question>& out) {
  const auto found = definitions(s);
  if (found.size() >= 3) {
    out.push_back({"explain-functions",
                   index,
                   0,
                   found.back().lines.end,
                   fmt::format("Explain, in the order of the source, each class and function of "
                               "{} and each method, quoting the signature of every one.\n",
                               s.file)});
  }
}

void add_definitions(const SourceText& s, std::size_t index, std::vector<Question>& out) {
  const auto found = definitions(s);
  std::size_t before = 0;  // where the definition before begins
  for (const Definition& d : found) {
    if (!d.is_class && answer_fits(byte_count(s, d.lines))) {
      out.push_back({"find-definition",
                     index,
                     before,
                     d.lines.end,
                     fmt::format("Find the definition of the function {} in {}. Quote it in full "
                                 "and unchanged in one Python code block, then explain it line by "
                                 "line, quoting each line.\n",
                                 d.name,
                                 s.file)});
    }
    before = d.lines.first;
  }
}

void add_sections(const SourceText& s, std::size_t index, std::vector<Question>& out) {
  constexpr std::size_t kQuoted = 3;
  constexpr std::size_t kNamedBytes = 60;
  const auto found = paragraphs(s);
  for (std::size_t i = 1; i + kQuoted <= found.size(); i += kQuoted) {
    const LineRange range{found[i].first, found[i + kQuoted - 1].end};
    std::string beginning = s.lines[range.first];
    beginning.erase(0, beginning.find_first_not_of(" \t\f"));
    if (beginning.size() < 10 || !answer_fits(byte_count(s, range))) {
      continue;
    }
    if (beginning.size() > kNamedBytes) {
      const std::size_t space = beginning.rfind(' ', kNamedBytes);
      if (space == std::string::npos) {
        continue;  // no sentence
      }
      beginning.erase(space);
    }
    out.push_back(
        {"quote-section",
         index,
         found[i - 1].first,
         range.end,
         fmt::format("Quote word for word the paragraph of {} that begins with \"{}\" and "
                     "the {} paragraphs after it. Then say of each what it means, quoting "
                     "its most important sentence again.\n",
                     s.file,
                     beginning,
                     kQuoted - 1)});
  }
}

// A line of a prompt: of a source, or cut short.
struct LineAt {
  std::size_t source = 0;
  std::size_t line = 0;
};

std::string heading(const SourceText& source, std::size_t first_line) {
  return fmt::format("### {}{}\n```{}\n",
                     source.file,
                     first_line == 0 ? "" : fmt::format(", from line {}", first_line + 1),
                     source.python ? "python" : "");
}

class Builder {
 public:
  Builder(std::span<const SourceText> sources,
          const BuildOptions& options,
          const CountTokens& count_tokens)
      : sources_(sources), options_(options), count_tokens_(count_tokens), draws_(options.seed) {
    std::array<std::vector<Question>, 4> kinds;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].python) {
        add_rewrites(sources[i], i, kinds[0]);
        add_explanation(sources[i], i, kinds[1]);
        add_definitions(sources[i], i, kinds[2]);
      } else {
        add_sections(sources[i], i, kinds[3]);
      }
    }
    for (auto& kind : kinds) {
      draws_.shuffle(kind);
      if (!kind.empty()) {
        kinds_.push_back(std::move(kind));
      }
    }
  }

  std::vector<BuiltPrompt> build() {
    std::vector<BuiltPrompt> out;
    for (const std::int32_t tokens : options_.tokens) {
      for (std::int32_t i = 0; i < options_.count; ++i) {
        BuiltPrompt built = next(tokens, static_cast<std::size_t>(i));
        built.prompt.id = fmt::format("{}-{}-{}", built.prompt.category, tokens, i + 1);
        out.push_back(std::move(built));
      }
    }
    return out;
  }

 private:
  // The kinds take turns; one that has no question left for this length is passed over.
  BuiltPrompt next(std::int32_t tokens, std::size_t turn) {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      auto& questions = kinds_[(turn + i) % kinds_.size()];
      for (auto it = questions.begin(); it != questions.end();) {
        const LineRange needed{it->first, it->target_end};
        if (byte_count(sources_[it->source], needed) >
            kMostTargetBytesPerToken * static_cast<std::size_t>(tokens)) {
          ++it;
          continue;
        }
        const Question question = std::move(*it);
        it = questions.erase(it);
        if (auto built = fit(question, tokens)) {
          return *std::move(built);
        }
      }
    }
    throw fail(Errc::kResourceExhausted,
               "the {} source files hold no further question for a prompt of {} tokens; ask for "
               "fewer prompts (--count) or name folders with more text (--sources)",
               sources_.size(),
               tokens);
  }

  // Sources of a prompt: the question's, then the others in random order, those of its kind first.
  std::vector<std::size_t> order_for(const Question& question) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      if (i != question.source) {
        order.push_back(i);
      }
    }
    draws_.shuffle(order);
    std::stable_partition(order.begin(), order.end(), [&](std::size_t i) {
      return sources_[i].python == sources_[question.source].python;
    });
    order.insert(order.begin(), question.source);
    return order;
  }

  // Their lines, up to about `most_bytes`.
  [[nodiscard]] std::vector<LineAt> lines_of(const std::vector<std::size_t>& order,
                                             std::size_t first_line,
                                             std::size_t most_bytes) const {
    std::vector<LineAt> lines;
    std::size_t bytes = 0;
    for (const std::size_t source : order) {
      const std::size_t first = source == order.front() ? first_line : 0;
      for (std::size_t line = first; line < sources_[source].lines.size(); ++line) {
        if (bytes > most_bytes) {
          return lines;
        }
        bytes += sources_[source].lines[line].size() + 1;
        lines.push_back({source, line});
      }
    }
    return lines;
  }

  // The first `count` lines, `cut` bytes of the next one, and the question.
  [[nodiscard]] std::string text(const Question& question,
                                 const std::vector<LineAt>& lines,
                                 std::size_t count,
                                 std::size_t cut) const {
    std::string out = sources_[question.source].python
                          ? "Here are source files of a Python project.\n"
                          : "Here are documents.\n";
    const std::size_t last = count + (cut > 0 ? 1 : 0);
    for (std::size_t i = 0; i < last; ++i) {
      const SourceText& source = sources_[lines[i].source];
      if (i == 0 || lines[i].source != lines[i - 1].source) {
        out += i == 0 ? "\n" : "```\n\n";
        out += heading(source, lines[i].line);
      }
      out += i < count ? source.lines[lines[i].line] : source.lines[lines[i].line].substr(0, cut);
      out += '\n';
    }
    out += "```\n\n";
    return out + question.text;
  }

  // The largest value in 0..most that `fits`, where 0 does and `most` does not; tried first near
  // `guess`.
  template <typename Fits>
  static std::size_t largest(std::size_t most, std::size_t guess, Fits fits) {
    std::size_t low = 0;
    std::size_t high = most;
    std::size_t step = 1;
    std::size_t at = std::clamp<std::size_t>(guess, 1, most);
    while (high - low > 1) {
      at = std::clamp(at, low + 1, high - 1);
      const bool fit = fits(at);
      (fit ? low : high) = at;
      step *= 4;
      const bool bracketed = low > 0 && high < most;
      if (bracketed) {
        at = low + (high - low) / 2;
      } else {
        at = fit ? low + step : (high > step ? high - step : 0);
      }
    }
    return low;
  }

  // Where a line may be cut: behind 0 bytes, behind words, and within words that are long.
  static std::vector<std::size_t> cuts(const std::string& line) {
    constexpr std::size_t kLongWord = 12;
    const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; };
    const auto in_word = [](char c) {
      const auto byte = static_cast<unsigned char>(c);
      return byte >= 0x80 || c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
             (c >= 'A' && c <= 'Z');
    };
    std::vector<std::size_t> out{0};
    for (std::size_t i = 1; i < line.size(); ++i) {
      const bool inside = in_word(line[i - 1]) && in_word(line[i]);
      const bool behind_word = !inside && line[i - 1] != ' ';
      const bool in_long_word = i - out.back() >= kLongWord && !continues(line[i]);
      if (behind_word || in_long_word) {
        out.push_back(i);
      }
    }
    return out;
  }

  // Nothing where what is asked about does not fit.
  std::optional<BuiltPrompt> fit(const Question& question, std::int32_t tokens) {
    const auto order = order_for(question);
    // Twice what most text needs, more where that is still too short.
    std::size_t bytes = 2 * kBytesPerToken * static_cast<std::size_t>(tokens);
    std::vector<LineAt> lines = lines_of(order, question.first, bytes);
    std::int32_t all = count_tokens_(text(question, lines, lines.size(), 0));
    for (std::size_t before = 0; all <= tokens && lines.size() > before; bytes *= 2) {
      before = lines.size();
      lines = lines_of(order, question.first, 2 * bytes);
      all = count_tokens_(text(question, lines, lines.size(), 0));
    }
    const auto fits = [&](std::size_t count, std::size_t cut) {
      return count_tokens_(text(question, lines, count, cut)) <= tokens;
    };
    if (all <= tokens) {
      throw fail(
          Errc::kResourceExhausted,
          "the {} source files give {} tokens at most, fewer than {}; name folders with more "
          "text (--sources) or ask for shorter prompts (--tokens)",
          sources_.size(),
          all,
          tokens);
    }
    const double share = static_cast<double>(tokens) / static_cast<double>(all);
    const std::size_t count =
        largest(lines.size(),
                static_cast<std::size_t>(share * static_cast<double>(lines.size())),
                [&](std::size_t n) { return fits(n, 0); });
    const std::size_t needed = question.target_end - question.first;
    if (count < needed) {
      return std::nullopt;
    }
    // The rest of the length, to the end of a word.
    const auto ends = cuts(sources_[lines[count].source].lines[lines[count].line]);
    const std::size_t cut = ends[largest(
        ends.size(), ends.size() / 2, [&](std::size_t n) { return fits(count, ends[n]); })];
    BuiltPrompt built;
    built.prompt.category = question.category;
    built.prompt.text = text(question, lines, count, cut);
    built.tokens = count_tokens_(built.prompt.text);
    built.quotations = quotations(lines, count, cut);
    return built;
  }

  static std::vector<Quotation> quotations(const std::vector<LineAt>& lines,
                                           std::size_t count,
                                           std::size_t cut) {
    std::vector<Quotation> out;
    for (std::size_t i = 0; i < count + (cut > 0 ? 1 : 0); ++i) {
      if (out.empty() || out.back().source != lines[i].source) {
        out.push_back({lines[i].source, {lines[i].line, lines[i].line}, 0});
      }
      if (i < count) {
        out.back().lines.end = lines[i].line + 1;
      } else {
        out.back().cut_bytes = cut;
      }
    }
    return out;
  }

  std::span<const SourceText> sources_;
  const BuildOptions& options_;
  const CountTokens& count_tokens_;
  Draws draws_;
  std::vector<std::vector<Question>> kinds_;
};

}  // namespace

std::vector<BuiltPrompt> build_prompts(std::span<const SourceText> sources,
                                       const BuildOptions& options,
                                       const CountTokens& count_tokens) {
  std::set<std::int32_t> lengths;
  for (const std::int32_t tokens : options.tokens) {
    if (tokens < kLeastPromptTokens || tokens > kMostPromptTokens) {
      throw fail(Errc::kInvalidArgument,
                 "prompts of {} tokens: {} to {} can be built",
                 tokens,
                 kLeastPromptTokens,
                 kMostPromptTokens);
    }
    if (!lengths.insert(tokens).second) {
      throw fail(Errc::kInvalidArgument, "the length {} is asked for twice", tokens);
    }
  }
  return Builder(sources, options, count_tokens).build();
}

}  // namespace rift::eval
