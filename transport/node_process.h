// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/trace.h"
#include "transport/transport.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

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
  int threads = 1;
  std::string listen;  // nodes that listen: host:port
  int ready_fd = -1;   // nodes that listen; -1: none
  bool exact = false;
  bool no_repack = false;
  bool die_with_parent = false;
};

/// Adds the options above to a program; `node_id` is the default name.
void add_node_options(CLI::App& app, NodeProcessOptions& options, const std::string& node_id);

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

/// Tells the starting process where this node listens: one line {"port":N,"pid":N} on --ready-fd,
/// which is closed. Errors (thrown): kIo.
void report_ready(const NodeProcessOptions& options, std::uint16_t port);

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
