// SPDX-License-Identifier: Apache-2.0
#include "transport/node_process.h"

#include "common/arguments.h"
#include "common/cpu_list.h"
#include "common/log.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

namespace rift::transport {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;

std::string read_secret(const std::string& path) {
  if (path.empty()) {
    return {};
  }
  std::ifstream file(path);
  std::string secret;
  if (!std::getline(file, secret) || secret.empty()) {
    throw fail(Errc::kNotFound, "secret file {}: cannot be read or is empty", path);
  }
  return secret;
}

/// `parent` is who started this process. The kernel signals only the deaths to come: a parent that
/// is gone already has been replaced by another one.
void die_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) {
    throw fail(Errc::kCancelled, "the process that started this node has ended");
  }
}

/// Nothing where fd < 0.
void write_line(int fd, std::string line) {
  line += '\n';
  for (std::size_t done = 0; fd >= 0 && done < line.size();) {
    const ssize_t n = ::write(fd, line.data() + done, line.size() - done);
    if (n < 0 && errno != EINTR) {
      throw fail(Errc::kIo, "descriptor {} for the starting process: {}", fd, std::strerror(errno));
    }
    done += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
}

}  // namespace

void add_node_options(CLI::App& app, NodeProcessOptions& o, const std::string& node_id) {
  o.node_id = node_id;
  app.add_option("--threads", o.threads, "CPU threads; default: one for each CPU of --cpus")
      ->check(CLI::Range(1, 1024));
  add_cpus_option(app, "--cpus", o.cpus, "CPUs that this node runs on, e.g. 0-3,8; default: all");
  app.parse_complete_callback([&o] { o.threads = thread_count(o.threads, o.cpus); });
  app.add_option("--node-id", o.node_id, "name in logs and to peers")->capture_default_str();
  app.add_option("--secret-file", o.secret_file, "shared secret; without one: loopback only");
  app.add_option("--require-transport", o.require_transport, "refuse links without this transport");
  app.add_option("--pre", o.pre, "pre-tokenizer, where the file's is unknown");
  app.add_option("--trace", o.trace, "write trace events to this file");
  app.add_option(
      "--log-level", o.log_level, "trace, debug, info, warn, error, off (default: RIFT_LOG, info)");
  app.add_flag("--exact", o.exact, "f32 arithmetic instead of 8-bit activations");
  app.add_flag("--no-repack", o.no_repack, "compute from the weights as they lie in the file");
  app.add_flag("--die-with-parent", o.die_with_parent, "end when the starting process ends");
  app.set_version_flag("--version", RIFT_VERSION);
}

void add_cpus_option(CLI::App& app,
                     const std::string& name,
                     std::vector<int>& cpus,
                     const std::string& about) {
  app.add_option_function<std::string>(
      name,
      [name, &cpus](const std::string& text) {
        try {
          cpus = parse_cpu_list(text);
        } catch (const Error& error) {
          throw CLI::ValidationError(name, error.message());
        }
      },
      about);
}

void add_listen_options(CLI::App& app, NodeProcessOptions& o, const std::string& listen) {
  o.listen = listen;
  app.add_option("--listen", o.listen, "HOST:PORT for peers; port 0: any")->capture_default_str();
  app.add_option("--ready-fd",
                 o.ready_fd,
                 "write lines about loading there, then {\"port\":N,\"pid\":N,...} when ready");
}

int run_node(CLI::App& app,
             int argc,
             const char* const* argv,
             const NodeProcessOptions& options,
             const std::function<int()>& serve) {
  const pid_t parent = ::getppid();
  std::signal(SIGPIPE, SIG_IGN);
  try {
    app.parse(command_line(argc, argv));
    init_logging(options.node_id, options.log_level);
    if (options.die_with_parent) {
      die_with(parent);
    }
    if (!options.cpus.empty()) {
      run_this_thread_on(options.cpus);
    }
    return serve();
  } catch (const CLI::ParseError& error) {
    const bool shown = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return shown ? 0 : kExitUsage;
  } catch (const std::exception& error) {
    log().error("{}", error.what());
    return kExitFailed;
  }
}

TransportOptions link_options(const NodeProcessOptions& options, NodeInfo node) {
  TransportOptions link;
  link.node = std::move(node);
  link.secret = read_secret(options.secret_file);
  link.require_transport = options.require_transport;
  return link;
}

std::shared_ptr<Trace> open_trace(const NodeProcessOptions& options, Role role) {
  return options.trace.empty() ? nullptr : std::make_shared<Trace>(options.trace, to_string(role));
}

void LoadReport::operator()(std::uint64_t done, std::uint64_t total) {
  if (const TimePoint now = Clock::now(); now >= next_) {
    next_ = now + std::chrono::milliseconds(100);
    write_line(fd_, fmt::format(R"({{"event":"load","done":{},"total":{}}})", done, total));
  }
}

std::string to_json(const LoadSeconds& load) {
  return fmt::format(
      R"({{"open":{:.6f},"prefault":{:.6f},"pack":{:.6f}}})", load.open, load.prefault, load.pack);
}

void report_ready(const NodeProcessOptions& options, std::uint16_t port, const LoadSeconds& load) {
  write_line(options.ready_fd,
             fmt::format(R"({{"port":{},"pid":{},"load":{}}})", port, ::getpid(), to_json(load)));
  if (options.ready_fd >= 0) {
    ::close(options.ready_fd);
  }
}

StopSignals::StopSignals(boost::asio::io_context& io) : signals_(io, SIGINT, SIGTERM) {
  signals_.async_wait([this, &io](const boost::system::error_code& error, int number) {
    if (!error) {
      log().info("stopping on {}", ::strsignal(number));
      exit_code_ = number == SIGINT ? kExitInterrupted : 0;
      io.stop();
    }
  });
}

}  // namespace rift::transport
