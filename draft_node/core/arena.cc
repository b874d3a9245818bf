// SPDX-License-Identifier: Apache-2.0
#include "draft_node/core/arena.h"

#include "common/check.h"
#include "policy/budget.h"

#include <algorithm>

namespace rift::draft_node {
namespace {

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + Arena::kPageBytes - 1) / Arena::kPageBytes * Arena::kPageBytes;
}

}  // namespace

std::uint64_t ArenaBudget::session_bytes() const {
  if (capacity < weights || capacity - weights < scratch ||
      capacity - weights - scratch < Arena::kPageBytes) {
    throw fail(
        Errc::kResourceExhausted,
        "device memory of {} bytes does not hold the draft model: {} bytes of weights and {} "
        "bytes of scratch leave nothing for a working set; give it more memory or a smaller "
        "model",
        capacity,
        weights,
        scratch);
  }
  return (capacity - weights - scratch) / Arena::kPageBytes * Arena::kPageBytes;
}

Arena::Arena(const ArenaBudget& budget) : budget_(budget), region_bytes_(budget.session_bytes()) {}

Result<std::uint64_t> Arena::reserve(const ArenaRequest& request) {
  // An overflowing layout is refused like one that is too large.
  const std::uint64_t wanted = request.layout.total_bytes();
  if (wanted > region_bytes_) {
    return refusal(request);
  }
  const std::uint64_t bytes = std::max(whole_pages(wanted), kPageBytes);
  std::uint64_t begin = 0;
  for (const auto& [offset, length] : ranges_) {
    if (offset - begin >= bytes) {
      break;
    }
    begin = offset + length;
  }
  if (region_bytes_ - begin < bytes) {
    return refusal(request);
  }
  ranges_.emplace(begin, bytes);
  used_ += bytes;
  return begin;
}

void Arena::release(std::uint64_t offset) {
  const auto range = ranges_.find(offset);
  RIFT_CHECK(range != ranges_.end(), "no range at {}", offset);
  used_ -= range->second;
  ranges_.erase(range);
}

std::uint64_t Arena::largest_free_range() const {
  std::uint64_t largest = 0;
  std::uint64_t begin = 0;
  for (const auto& [offset, length] : ranges_) {
    largest = std::max(largest, offset - begin);
    begin = offset + length;
  }
  return std::max(largest, region_bytes_ - begin);
}

std::string Arena::describe() const {
  return fmt::format(
      "{} bytes = {} weights + {} scratch + {} for sessions ({} in use, {} unused rest of a page)",
      budget_.capacity,
      budget_.weights,
      budget_.scratch,
      region_bytes_,
      used_,
      budget_.capacity - budget_.weights - budget_.scratch - region_bytes_);
}

Error Arena::refusal(const ArenaRequest& request) const {
  const WorkingSetLayout& layout = request.layout;
  const std::uint64_t slots = layout.total_bytes() - layout.ring_bytes() - layout.staging_bytes();
  const std::uint64_t free = largest_free_range();
  const std::int32_t fits = largest_budget(request, free);
  std::string advice;
  if (request.policy.policy == Policy::kFull) {
    advice = fmt::format(
        "policy full keeps the whole context of {} tokens: shorten it or choose a "
        "budget",
        request.max_context);
  } else if (fits > 0) {
    advice = fmt::format("the largest budget that fits now is {}", fits);
  } else {
    advice = "no budget fits now: close a session or give the device more memory";
  }
  return fail(
      Errc::kResourceExhausted,
      "the working set does not fit: needed {} bytes = {} rings + {} slots + {} staging "
      "(policy {}, budget {}, block {}); free {} bytes, the largest range {}; capacity {} = "
      "{} weights + {} scratch + {} for sessions; {}",
      layout.total_bytes(),
      layout.ring_bytes(),
      slots,
      layout.staging_bytes(),
      to_string(request.policy.policy),
      request.policy.budget,
      request.policy.block,
      free_bytes(),
      free,
      budget_.capacity,
      budget_.weights,
      budget_.scratch,
      region_bytes_,
      advice);
}

std::int32_t largest_budget(const ArenaRequest& request, std::uint64_t bytes) {
  const auto fits = [&](std::int32_t budget) {
    PolicySpec spec = request.policy;
    spec.budget = budget;
    const WorkingSetLayout layout = policy::plan_layout(
        spec, request.layout.geometry, request.max_context, request.max_draft_len);
    return whole_pages(layout.total_bytes()) <= bytes;
  };
  // Ring and slots both grow with B, so the sizes are ascending.
  std::int32_t low = 0;
  std::int32_t high = request.policy.budget;
  while (low < high) {
    const std::int32_t middle = high - (high - low) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace rift::draft_node
