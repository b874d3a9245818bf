// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "common/error.h"
#include "common/policy_spec.h"
#include "common/working_set_layout.h"

#include <cstdint>
#include <map>
#include <string>

namespace rift::draft_node {

/// How device.memory_bytes is divided at start. Value type.
struct ArenaBudget {
  std::uint64_t capacity = 0;  // device.memory_bytes
  std::uint64_t weights = 0;   // tensors that a forward pass reads
  std::uint64_t scratch = 0;   // activations, logits, attention descriptors

  bool operator==(const ArenaBudget&) const = default;

  /// What is left for sessions, whole pages; this much memory is registered.
  /// Errors (thrown): kResourceExhausted when weights and scratch alone do not fit.
  [[nodiscard]] std::uint64_t session_bytes() const;
};

/// What a session asks of the arena; the policy is there to name the budget that would fit.
struct ArenaRequest {
  PolicySpec policy;
  WorkingSetLayout layout;
  std::int32_t max_context = 0;
  std::int32_t max_draft_len = 0;
};

/// Ranges of the registered region, given out first fit in whole pages. Pure accounting: it owns no
/// memory. Fixed at construction, never grows. Thread: the core's owner.
class Arena {
 public:
  static constexpr std::uint64_t kPageBytes = 4096;

  explicit Arena(const ArenaBudget& budget);

  /// Offset of a free range that holds request.layout. Errors: kResourceExhausted with the whole
  /// arithmetic and the largest budget that would fit now.
  [[nodiscard]] Result<std::uint64_t> reserve(const ArenaRequest& request);
  /// Gives back the range that starts at `offset`.
  void release(std::uint64_t offset);

  [[nodiscard]] const ArenaBudget& budget() const { return budget_; }
  [[nodiscard]] std::uint64_t region_bytes() const { return region_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_; }
  [[nodiscard]] std::uint64_t free_bytes() const { return region_bytes_ - used_; }
  [[nodiscard]] std::uint64_t largest_free_range() const;
  /// One line for the log: how the capacity is divided.
  [[nodiscard]] std::string describe() const;

 private:
  [[nodiscard]] Error refusal(const ArenaRequest& request) const;

  ArenaBudget budget_;
  std::uint64_t region_bytes_;
  std::uint64_t used_ = 0;
  std::map<std::uint64_t, std::uint64_t> ranges_;  // offset -> bytes in use
};

/// Largest budget B <= request.policy.budget whose working set fits `bytes`; 0: none.
/// Cost: O(log B) layouts.
[[nodiscard]] std::int32_t largest_budget(const ArenaRequest& request, std::uint64_t bytes);

}  // namespace rift::draft_node
