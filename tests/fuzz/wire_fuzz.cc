// SPDX-License-Identifier: Apache-2.0
// First byte: which decoder. A frame that decodes must also survive its way back.
#include "transport/bootstrap/frames.h"
#include "transport/wire/codec.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rift::transport;
  if (size == 0) {
    return 0;
  }
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  if (data[0] % 2 == 0) {
    const auto message = decode(bytes);
    if (message.ok() && !(decode(encode(message.value())).value() == message.value())) {
      std::abort();
    }
  } else if (const auto frame = bootstrap::decode_frame(bytes); frame.ok()) {
    if (!bootstrap::decode_frame(bootstrap::encode_frame(frame.value())).ok()) {
      std::abort();
    }
  }
  return 0;
}
