// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "model/config.h"
#include "model/gguf.h"
#include "model/tensor_table.h"

#include <cstddef>
#include <cstdint>
#include <span>

// Any bytes either parse or end in rift::Error; what parsed can be read to its last element.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rift::model;
  const auto bytes = std::as_bytes(std::span<const std::uint8_t>(data, size));
  try {
    const auto file = GgufFile::parse(bytes, "fuzz");
    std::size_t sum = 0;
    for (const auto& [key, value] : file->metadata()) {
      for (std::uint64_t i = 0; i < value.size(); ++i) {
        sum += value.number(i).has_value() ? 1U : value.string(i).value_or("").size();
      }
    }
    TensorTable table(*file);
    sum += table.fingerprint("fuzz").size();
    const auto config = config_from_gguf(*file);
    sum += canonical_text(config).size();
    (void)table.vector("output_norm.weight", config.hidden);
    (void)sum;
  } catch (const rift::Error&) {
    return 0;  // the expected end of almost all inputs
  }
  return 0;
}
