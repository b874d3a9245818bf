// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/clock.h"
#include "common/load_seconds.h"
#include "common/trace.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
}

/// What the three node programs have in common: their options, signals, exit codes and the way they
/// tell the process that started them that they are ready.
namespace rift::transport {

struct NodeProcessOptions {
  std::string node_id;
  std::string secret_file;
  std::string require_transport;
  std::string pre;  // pre-tokenizer override; empty: the model file's
  std::string log_level;
  std::string trace;
  int threads = 0;        // 0 until it is parsed: as many as there are CPUs
  std::vector<int> cpus;  // that the process and its computing threads run on; empty: any
  std::string listen;     // nodes that listen: host:port
  int ready_fd = -1;      // nodes that listen; -1: none
  bool exact = false;
  bool no_repack = false;
  bool die_with_parent = false;
};

/// Adds the options above to a program; `node_id` is the default name.
void add_node_options(CLI::App& app, NodeProcessOptions& options, const std::string& node_id);

/// Adds an option for a list of CPUs (common/cpu_list.h); one that the process does not have is
/// wrong usage.
void add_cpus_option(CLI::App& app,
                     const std::string& name,
                     std::vector<int>& cpus,
                     const std::string& about);

/// Adds --listen, `listen` by default, and --ready-fd.
void add_listen_options(CLI::App& app, NodeProcessOptions& options, const std::string& listen);

/// A node program's main(): parses, sets logging and signals up, and runs `serve`. Returns the exit
/// code: that of `serve`, 1 after an error (logged), 2 after wrong usage.
[[nodiscard]] int run_node(CLI::App& app,
                           int argc,
                           const char* const* argv,
                           const NodeProcessOptions& options,
                           const std::function<int()>& serve);

/// The options of the node's transport. Errors (thrown): kNotFound (secret file).
[[nodiscard]] TransportOptions link_options(const NodeProcessOptions& options, NodeInfo node);

/// The node's trace; null without --trace. Errors (thrown): kIo.
[[nodiscard]] std::shared_ptr<Trace> open_trace(const NodeProcessOptions& options, Role role);

/// Tells the starting process how many bytes of the model are ready: lines
/// {"event":"load","done":N,"total":N} on a descriptor (-1: none), ten a second at most.
/// Errors (thrown): kIo.
class LoadReport {
 public:
  explicit LoadReport(int fd) : fd_(fd) {}
  void operator()(std::uint64_t done, std::uint64_t total);

 private:
  int fd_;
  TimePoint next_;
};

/// Tells the starting process where this node listens and what its start-up took: one line
/// {"port":N,"pid":N,"load":{...}} on --ready-fd, which is closed. Errors (thrown): kIo.
void report_ready(const NodeProcessOptions& options, std::uint16_t port, const LoadSeconds& load);

/// {"open":S,"prefault":S,"pack":S}
[[nodiscard]] std::string to_json(const LoadSeconds& load);

/// Stops the loop on SIGINT or SIGTERM. Thread: loop.
class StopSignals {
 public:
  explicit StopSignals(boost::asio::io_context& io);
  /// 0, or 130 after SIGINT.
  [[nodiscard]] int exit_code() const { return exit_code_; }

 private:
  boost::asio::signal_set signals_;
  int exit_code_ = 0;
};

}  // namespace rift::transport
