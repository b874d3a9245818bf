// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output_file.h"
#include "cli/policy_options.h"
#include "cli/report.h"
#include "cli/run_options.h"
#include "cli/status_line.h"
#include "common/clock.h"
#include "common/error.h"
#include "common/log.h"
#include "model/chat.h"

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace rift::cli {
namespace {

struct Options {
  RunOptions run;
  std::string prompt;
  std::string prompt_file;
  std::string tokens_file;
  std::string system;
  std::string chat_format;
  std::string json_file;
  bool raw = false;
  bool quiet = false;
};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path)) {
    throw fail(Errc::kNotFound, "cannot read {}", path);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<TokenId> read_tokens(const std::string& path) {
  try {
    std::vector<TokenId> out;
    const boost::json::value parsed = boost::json::parse(read_file(path));
    for (const boost::json::value& id : parsed.as_array()) {
      out.push_back(id.to_number<TokenId>());
    }
    return out;
  } catch (const boost::system::system_error& error) {
    throw fail(Errc::kInvalidArgument,
               "{}: not a JSON array of token ids: {}",
               path,
               error.code().message());
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw fail(Errc::kInvalidArgument, "{}: not a JSON array of token ids: {}", path, error.what());
  }
}

std::vector<TokenId> prompt_tokens(const Options& o, const model::Tokenizer& tokenizer) {
  if (!o.tokens_file.empty()) {
    return read_tokens(o.tokens_file);
  }
  const std::string text = o.prompt_file.empty() ? o.prompt : read_file(o.prompt_file);
  if (text.empty()) {
    throw fail(Errc::kInvalidArgument, "the prompt is empty");
  }
  if (o.raw) {
    std::vector<TokenId> out = tokenizer.encode(text, false);
    if (tokenizer.adds_bos() && tokenizer.bos()) {
      out.insert(out.begin(), *tokenizer.bos());
    }
    return out;
  }
  const model::ChatFormat format = o.chat_format.empty()
                                       ? model::detect_chat_format(tokenizer.chat_template())
                                       : *model::parse_chat_format(o.chat_format);
  std::vector<model::ChatMessage> messages;
  if (!o.system.empty()) {
    messages.push_back({"system", o.system});
  }
  messages.push_back({"user", text});
  return model::render_chat(tokenizer, format, messages, true);
}

/// Bytes of `text` before a UTF-8 sequence that its end may have cut.
std::size_t complete_prefix(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) {
      break;
    }
    if (byte >= 0xC0) {
      const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
      return length > back ? text.size() - back : text.size();
    }
  }
  return text.size();
}

/// Prints the answer as it comes, whole UTF-8 sequences at a time.
class TextStream {
 public:
  explicit TextStream(const model::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void push(std::span<const TokenId> tokens) {
    for (const TokenId token : tokens) {
      pending_ += tokenizer_.piece(token);
    }
    print(complete_prefix(pending_));
  }
  void finish() { print(pending_.size()); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void print(std::size_t bytes) {
    std::fwrite(pending_.data(), 1, bytes, stdout);
    std::fflush(stdout);
    text_.append(pending_, 0, bytes);
    pending_.erase(0, bytes);
  }

  const model::Tokenizer& tokenizer_;
  std::string pending_;
  std::string text_;
};

std::string status_text(const target_node::Progress& p, std::size_t tokens, TimePoint first) {
  const double seconds = seconds_between(first, Clock::now());
  const double al = p.steps == 0 ? 0.0
                                 : static_cast<double>(p.steps + p.accepted_tokens) /
                                       static_cast<double>(p.steps);
  return fmt::format(" {} tokens  {:.1f} tok/s  AL {:.2f}  {} refreshes  {} streamed{}",
                     tokens,
                     seconds > 0 ? static_cast<double>(tokens - 1) / seconds : 0.0,
                     al,
                     p.refreshes,
                     human_bytes(static_cast<double>(p.refresh_bytes)),
                     p.drafting ? "" : "  (plain decoding)");
}

/// What `answer` saw besides the outcome.
struct Answer {
  target_node::Outcome outcome;
  TimePoint first_token;
};

Answer answer(Backend& backend,
              const target_node::Request& request,
              TextStream& stream,
              StatusLine& status) {
  std::size_t tokens = 0;
  TimePoint first;
  AnswerEvents events;
  events.on_prefill = [&](std::int32_t done, std::int32_t total) {
    status.show(fmt::format(" reading the prompt: {} of {} tokens", done, total));
  };
  events.on_tokens = [&](std::span<const TokenId> ids, const target_node::Progress& progress) {
    first = tokens == 0 ? Clock::now() : first;
    tokens += ids.size();
    status.text_begins();
    stream.push(ids);
    status.show(status_text(progress, tokens, first));
  };
  target_node::Outcome outcome = backend.generate(request, events);
  stream.finish();
  status.close();
  return {std::move(outcome), first};
}

int run(Options& o) {
  const TimePoint start = Clock::now();
  check_writable(o.json_file);
  const ModelPair models = open_models(o.run);
  target_node::Request& request = o.run.request;
  request.prompt = prompt_tokens(o, *models.tokenizer);
  request.stop_tokens = stop_tokens(*models.tokenizer);
  request.policy.policy = *parse_policy(o.run.policy);
  if (request.policy.policy == Policy::kRiftAda && models.draft) {
    load_ada(o.run.policy_file, models.draft->fingerprint, request.policy.ada);
  }
  request.use_draft = !o.run.no_draft;
  const auto needed = static_cast<std::int32_t>(request.prompt.size()) + request.max_tokens;
  const std::int32_t context = o.run.context != 0 ? o.run.context : needed;
  if (context > models.target->config.context_train && models.target->config.context_train > 0) {
    log().warn("a context of {} tokens exceeds the {} that the target was trained for",
               context,
               models.target->config.context_train);
  }
  if (needed > context) {
    throw fail(Errc::kResourceExhausted,
               "a prompt of {} tokens and {} new ones do not fit --ctx {}; shorten the prompt, ask "
               "for fewer tokens (-n) or raise --ctx to {}",
               request.prompt.size(),
               request.max_tokens,
               context,
               needed);
  }

  catch_interrupts();
  StatusLine status(!o.quiet);
  o.run.cluster.on_load = [&](std::string_view node, std::uint64_t done, std::uint64_t total) {
    status.show(fmt::format(" loading {}: {} of {}",
                            node,
                            human_bytes(static_cast<double>(done)),
                            human_bytes(static_cast<double>(total))));
  };
  const auto backend = start_backend(o.run, context);
  RunReport report;
  report.load_seconds = seconds_between(start, Clock::now());
  TextStream stream(*models.tokenizer);
  report.start_up = backend->start_up();
  Answer answered = answer(*backend, request, stream, status);
  report.outcome = std::move(answered.outcome);
  report.first_token_seconds = seconds_between(start, answered.first_token);
  backend->stop();

  report.transport = o.run.transport;
  report.request = request;
  report.text = stream.text();
  report.target_file = o.run.target_model;
  report.target_architecture = to_string(models.target->config.architecture);
  report.target_fingerprint = models.target->fingerprint;
  if (models.draft) {
    report.draft_file = o.run.draft_model;
    report.draft_architecture = to_string(models.draft->config.architecture);
    report.draft_fingerprint = models.draft->fingerprint;
  }
  fmt::print("\n");
  if (!o.quiet) {
    fmt::print("\n{}", to_table(report));
  }
  if (!o.json_file.empty()) {
    write_file(o.json_file, boost::json::serialize(to_json(report)));
  }
  return kExitOk;
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<Options>();  // shared: lives as long as the callbacks
  CLI::App& command = *app.add_subcommand("run", "one answer, verified from budgeted drafts");
  add_run_options(command, options->run);
  auto* prompt = command.add_option("-p,--prompt", options->prompt, "the user's message");
  auto* file = command.add_option("-f,--file", options->prompt_file, "the same, from a file");
  auto* tokens =
      command.add_option("--tokens", options->tokens_file, "prompt ids: a JSON array in a file");
  prompt->excludes(file)->excludes(tokens);
  file->excludes(tokens);
  command.add_option("--system", options->system, "system message");
  command.add_option("--chat-format", options->chat_format, "chatml or llama3")
      ->check(CLI::IsMember({"chatml", "llama3"}));
  command.add_flag("--raw", options->raw, "the prompt as it is, without a chat template");
  command.add_flag("--ignore-eos", options->run.request.ignore_stop, "go on past the end token");
  command.add_option("--json", options->json_file, "write the figures to this file (-: stdout)");
  command.add_flag("-q,--quiet", options->quiet, "the answer's text only");
  command.footer(
      "Examples:\n"
      "  rift run -m target.gguf -md draft.gguf -p 'Write a haiku about caches.'\n"
      "  rift run -m target.gguf -md draft.gguf -f question.txt --policy rift-dyn --budget 1024 "
      "\\\n"
      "           --block 16 --delta 32 --json run.json --trace run.trace.json");
  command.callback([options, prompt, file, tokens, &exit_code] {
    if (prompt->count() + file->count() + tokens->count() == 0) {
      throw CLI::RequiredError("a prompt: -p TEXT, -f FILE or --tokens FILE");
    }
    exit_code = run(*options);
  });
}

}  // namespace rift::cli
