// SPDX-License-Identifier: Apache-2.0
// Prompt sets and recorded answers: any bytes give rows or an Error.
#include "common/error.h"
#include "eval/prompt_set.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const auto& prompt : rift::eval::parse_prompt_set(text, "set")) {
      (void)rift::eval::parse_prompt_set(rift::eval::to_json_line(prompt), "again");
    }
  } catch (const rift::Error&) {
    // expected of most inputs
  }
  try {
    (void)rift::eval::parse_replay(text, "replay.json", 1000);
  } catch (const rift::Error&) {
    // expected of most inputs
  }
  return 0;
}
