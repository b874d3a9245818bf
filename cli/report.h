// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/backend.h"
#include "target_node/types.h"

#include <boost/json/object.hpp>

#include <span>
#include <string>
#include <vector>

namespace rift::cli {

/// What `rift run` tells about one answer.
struct RunReport {
  std::string transport;  // "ucx" or "inproc"
  std::string target_file, target_architecture, target_fingerprint;
  std::string draft_file, draft_architecture, draft_fingerprint;  // empty without a draft
  target_node::Request request;
  target_node::Outcome outcome;
  std::string text;
  double load_seconds = 0.0;         // until the nodes were ready
  double first_token_seconds = 0.0;  // from the program's start
  StartUp start_up;
};

/// The object of CLI.md, `rift run --json`.
[[nodiscard]] boost::json::object to_json(const RunReport& report);

/// The summary table that ends `rift run`.
[[nodiscard]] std::string to_table(const RunReport& report);

/// 1234567 -> "1.23 MB".
[[nodiscard]] std::string human_bytes(double bytes);

}  // namespace rift::cli
