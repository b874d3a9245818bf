// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace rift::cli {

// Exit codes of `rift` and of the nodes.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitCheckFailed = 3;
inline constexpr int kExitInterrupted = 130;

/// Each adds its subcommands to `app`; a subcommand's callback runs it and stores its exit code in
/// `exit_code` (kExitOk unless changed). Errors leave as rift::Error and end as kExitFailed.
void add_models_commands(CLI::App& app, int& exit_code);
void add_tokenizer_commands(CLI::App& app, int& exit_code);
void add_prompts_commands(CLI::App& app, int& exit_code);
void add_run_command(CLI::App& app, int& exit_code);
void add_verify_command(CLI::App& app, int& exit_code);
void add_eval_command(CLI::App& app, int& exit_code);
void add_calibrate_command(CLI::App& app, int& exit_code);

}  // namespace rift::cli
