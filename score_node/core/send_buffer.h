// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "score_node/core/transfer_plan.h"
#include "score_node/core/types.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace rift::score_node {

/// Chunks of the registered send buffer and the batches that wait for one, first come first served
/// over all sessions. A chunk is packed, then written, then free again; it stays taken until its
/// last operation ended, whatever became of its session.
///
/// A peer whose session was dropped in mid-write gets nothing new until those writes ended: the
/// draft node may use the same memory again.
class SendBuffer {
 public:
  explicit SendBuffer(std::uint32_t chunks) : chunks_(chunks) {}

  /// A batch on its way through a chunk.
  struct Load {
    SessionRef session{};
    PeerId peer{};
    std::uint32_t region = 0;
    Batch batch;
    bool writing = false;
    bool orphaned = false;  // its session is gone
  };

  void enqueue(Load load) { waiting_.push_back(std::move(load)); }
  /// Gives a free chunk to the first batch that may go.
  [[nodiscard]] std::optional<std::uint32_t> start_next();

  /// The load of a chunk in use; null for a chunk that is free.
  [[nodiscard]] Load* load(std::uint32_t chunk);
  void release(std::uint32_t chunk);
  /// Waiting batches go; those in chunks end on their own. Returns how many are being written.
  std::uint32_t drop(SessionRef session);

  [[nodiscard]] bool idle() const;

 private:
  std::vector<std::optional<Load>> chunks_;
  std::deque<Load> waiting_;
  std::map<PeerId, std::uint32_t> orphans_;  // writes under way without a session
};

}  // namespace rift::score_node
