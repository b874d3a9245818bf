// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_command.h"
#include "cli/command.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/log.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string_view>

namespace {

bool has_command(const CLI::App& app, std::string_view name) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(commands.begin(), commands.end(), [name](const CLI::App* command) {
    return command->get_name() == name;
  });
}

int run(int argc, char** argv) {
  using namespace rift::cli;
  CLI::App app{"RIFT: speculative decoding with a budgeted, disaggregated draft", "rift"};
  app.set_version_flag("--version", RIFT_VERSION);
  app.require_subcommand(1);
  std::string log_level;
  app.add_option(
      "--log-level", log_level, "trace, debug, info, warn, error, off (default: RIFT_LOG, info)");
  app.parse_complete_callback([&] { rift::init_logging("rift", log_level); });
  int exit_code = kExitOk;
  add_models_commands(app, exit_code);
  add_run_command(app, exit_code);
  add_verify_command(app, exit_code);
  add_eval_command(app, exit_code);
  add_calibrate_command(app, exit_code);
  add_prompts_commands(app, exit_code);
  add_tokenizer_commands(app, exit_code);
  CLI::App& bench = *app.add_subcommand("bench", "measurements");
  bench.require_subcommand(1);
  rift::bench::add_model_bench(bench);
  rift::bench::add_kernels_bench(bench);
  // CLI11 would say only that a subcommand is missing.
  if (argc > 1 && argv[1][0] != '-' && !has_command(app, argv[1])) {
    fmt::print(stderr, "rift: unknown command '{}'; rift --help lists them\n", argv[1]);
    return kExitUsage;
  }
  try {
    app.parse(rift::command_line(argc, argv));
  } catch (const CLI::ParseError& error) {
    const bool shown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return shown ? kExitOk : kExitUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const rift::Error& error) {
    fmt::print(stderr, "rift: {}\n", error.message());
    return error.code() == rift::Errc::kCancelled ? rift::cli::kExitInterrupted
                                                  : rift::cli::kExitFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rift: {}\n", error.what());
    return rift::cli::kExitFailed;
  }
}
