// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "target_node/types.h"

#include <boost/json/value.hpp>

#include <string_view>

namespace rift::target_node {

// The line protocol of `target_node`: one JSON object a line.
//   in   {"op": "generate", "request": {...}}  {"op": "cancel"}
//   out  {"event": "ready", "draft": true, "message": ""}
//        {"event": "prefill", "done": 512, "total": 4001}
//        {"event": "tokens", "ids": [...], "progress": {...}}
//        {"event": "done", "outcome": {...}}
//        {"event": "error", "code": "out of range", "message": "..."}
// One answer at a time. Numbers that JSON does not have are "inf", "-inf" and "nan".

[[nodiscard]] boost::json::value to_json(const Request& request);
/// Errors (thrown): kInvalidArgument naming the key.
[[nodiscard]] Request request_from_json(const boost::json::value& value);

[[nodiscard]] boost::json::value to_json(const Progress& progress);
[[nodiscard]] Progress progress_from_json(const boost::json::value& value);

[[nodiscard]] boost::json::value to_json(const Outcome& outcome);
[[nodiscard]] Outcome outcome_from_json(const boost::json::value& value);

}  // namespace rift::target_node
