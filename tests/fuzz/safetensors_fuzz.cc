// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"
#include "model/config.h"
#include "model/json_file.h"
#include "model/safetensors.h"
#include "model/tensor_table.h"

#include <boost/json/value.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// The first byte chooses the reader: a safetensors file, or a config.json.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rift::model;
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span<const std::uint8_t>(data + 1, size - 1));
  try {
    if (data[0] == 'c') {
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      (void)canonical_text(config_from_json(parse_json(text, "fuzz"), "fuzz"));
      return 0;
    }
    const auto file = Safetensors::parse(bytes, "fuzz");
    TensorTable table(*file);
    (void)table.fingerprint("fuzz");
    (void)table.vector("model.norm.weight", 4);
  } catch (const rift::Error&) {
    return 0;  // the expected end of almost all inputs
  }
  return 0;
}
