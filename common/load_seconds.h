// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rift {

/// What a node's start-up spent on its weights, by stage.
struct LoadSeconds {
  double open = 0.0;      // map the file, read its headers, fingerprint
  double prefault = 0.0;  // bring its pages into memory
  double pack = 0.0;      // put them into the order that the kernels read

  [[nodiscard]] double total() const { return open + prefault + pack; }
};

}  // namespace rift
