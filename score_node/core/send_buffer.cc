// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/send_buffer.h"

#include "common/check.h"

#include <algorithm>

namespace rift::score_node {

std::optional<std::uint32_t> SendBuffer::start_next() {
  const auto chunk = std::find(chunks_.begin(), chunks_.end(), std::nullopt);
  if (chunk == chunks_.end()) {
    return std::nullopt;
  }
  const auto next = std::find_if(waiting_.begin(), waiting_.end(), [this](const Load& load) {
    return !orphans_.contains(load.peer);
  });
  if (next == waiting_.end()) {
    return std::nullopt;
  }
  *chunk = std::move(*next);
  waiting_.erase(next);
  return static_cast<std::uint32_t>(chunk - chunks_.begin());
}

SendBuffer::Load* SendBuffer::load(std::uint32_t chunk) {
  RIFT_CHECK(chunk < chunks_.size(), "chunk {} of {}", chunk, chunks_.size());
  return chunks_[chunk] ? &*chunks_[chunk] : nullptr;
}

void SendBuffer::release(std::uint32_t chunk) {
  const Load* old = load(chunk);
  RIFT_CHECK(old != nullptr, "chunk {} is free", chunk);
  if (old->orphaned && old->writing) {
    const auto found = orphans_.find(old->peer);
    if (--found->second == 0) {
      orphans_.erase(found);
    }
  }
  chunks_[chunk].reset();
}

std::uint32_t SendBuffer::drop(SessionRef session) {
  std::uint32_t writing = 0;
  std::erase_if(waiting_, [&](const Load& load) { return load.session == session; });
  for (std::optional<Load>& load : chunks_) {
    if (load && load->session == session && !load->orphaned) {
      load->orphaned = true;
      if (load->writing) {
        ++orphans_[load->peer];
        ++writing;
      }
    }
  }
  return writing;
}

bool SendBuffer::idle() const {
  return waiting_.empty() &&
         std::all_of(chunks_.begin(), chunks_.end(), [](const auto& load) { return !load; });
}

}  // namespace rift::score_node
