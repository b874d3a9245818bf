// SPDX-License-Identifier: Apache-2.0
#include "score_node/core/refresh_plan.h"

#include "score_node/core/transfer_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace rift::score_node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using transport::TableUpdate;

// One layer, one head, D = 8 in f32: 32 bytes a vector.
WorkingSetLayout layout_of(std::int32_t block,
                           std::int32_t slots,
                           std::int32_t staging,
                           std::int32_t ring) {
  return {{1, 1, 8, DType::kF32}, block, slots, staging, ring};
}

HeadSelection selection_of(std::vector<std::int32_t> ranked, std::vector<float> scores) {
  return {std::move(ranked), std::move(scores)};
}

// A mirror whose entries 0.. hold these blocks in slots 0..
BlockMirror mirror_with(const WorkingSetLayout& layout, std::vector<std::uint32_t> blocks) {
  BlockMirror mirror(layout);
  std::vector<TableUpdate> updates;
  for (std::uint32_t i = 0; i < blocks.size(); ++i) {
    updates.push_back({0, 0, i, i, blocks[i], static_cast<std::uint16_t>(layout.block)});
  }
  mirror.reserve(updates);
  mirror.install(updates);
  return mirror;
}

TEST(RefreshPlan, SendsOnlyWhatTheDraftLacks) {
  const WorkingSetLayout layout = layout_of(4, 3, 3, 8);
  const BlockMirror mirror = mirror_with(layout, {0, 1, 2});
  const std::vector<HeadSelection> selection{
      selection_of({4, 1, 0}, {0.3F, 0.4F, 0.1F, 0.2F, 0.9F})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 20);
  ASSERT_EQ(plan.placements.size(), 1U);
  EXPECT_THAT(plan.clears, IsEmpty());
  const std::vector<TableUpdate> wave = next_wave(plan, mirror.free_slots());
  EXPECT_THAT(wave, ElementsAre(TableUpdate{0, 0, 2, 3, 4, 4}));
  EXPECT_TRUE(plan.empty());
}

TEST(RefreshPlan, MostValuableBlocksGoFirstAndPushOutTheLeastValuable) {
  const WorkingSetLayout layout = layout_of(4, 3, 1, 8);
  const BlockMirror mirror = mirror_with(layout, {0, 1, 2});
  const std::vector<HeadSelection> selection{
      selection_of({5, 4, 3}, {0.3F, 0.1F, 0.2F, 0.7F, 0.8F, 0.9F})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 24);
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{3}),
              ElementsAre(TableUpdate{0, 0, 1, 3, 5, 4}));
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{1}),
              ElementsAre(TableUpdate{0, 0, 2, 1, 4, 4}));
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{2}),
              ElementsAre(TableUpdate{0, 0, 0, 2, 3, 4}));
  EXPECT_TRUE(plan.empty());
}

TEST(RefreshPlan, AShortBlockThatGrewReplacesItself) {
  const WorkingSetLayout layout = layout_of(4, 2, 1, 8);
  BlockMirror mirror(layout);
  const std::vector<TableUpdate> short_block{{0, 0, 1, 2, 3, 1}};  // block 3, one position
  mirror.reserve(short_block);
  mirror.install(short_block);
  const std::vector<HeadSelection> selection{selection_of({3, 0}, {0.5F, 0.1F, 0.1F, 0.9F})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 15);
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{0, 1}),
              ElementsAre(TableUpdate{0, 0, 0, 0, 0, 4}, TableUpdate{0, 0, 1, 1, 3, 3}));
}

TEST(RefreshPlan, WhatAHeadGainsGoesWithWhatAnotherOneGivesUp) {
  WorkingSetLayout layout{{1, 2, 8, DType::kF32}, 4, 2, 1, 8};
  layout.extra_entries = 2;
  BlockMirror mirror(layout);
  const std::vector<TableUpdate> held{
      {0, 0, 0, 0, 0, 4}, {0, 0, 1, 1, 1, 4}, {0, 1, 0, 2, 0, 4}, {0, 1, 1, 3, 1, 4}};
  mirror.reserve(held);
  mirror.install(held);
  // Head 0 takes over both blocks of head 1, whose block 1 is worth less.
  const std::vector<HeadSelection> selection{selection_of({3, 2, 1, 0}, {0.5F, 0.6F, 0.7F, 0.8F}),
                                             selection_of({}, {0.2F, 0.1F, 0.0F, 0.0F})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 16);
  EXPECT_THAT(plan.clears, IsEmpty());
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{4}),
              ElementsAre(TableUpdate{0, 0, 2, 4, 3, 4}, TableUpdate{0, 1, 1, 3, 1, 0}));
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{3}),
              ElementsAre(TableUpdate{0, 0, 3, 3, 2, 4}, TableUpdate{0, 1, 0, 2, 0, 0}));
  EXPECT_TRUE(plan.empty());
}

TEST(RefreshPlan, AHeadWithRoomForMoreStillReplacesItsOwnFirst) {
  WorkingSetLayout layout{{1, 2, 8, DType::kF32}, 4, 2, 1, 8};
  layout.extra_entries = 2;
  BlockMirror mirror(layout);
  const std::vector<TableUpdate> held{{0, 0, 0, 0, 0, 4}, {0, 0, 1, 1, 1, 4}};
  mirror.reserve(held);
  mirror.install(held);
  const std::vector<HeadSelection> selection{selection_of({2, 0, 3}, {0.5F, 0.1F, 0.7F, 0.3F}),
                                             selection_of({}, {})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 16);
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{2, 3}),
              ElementsAre(TableUpdate{0, 0, 1, 2, 2, 4}, TableUpdate{0, 0, 2, 3, 3, 4}));
  EXPECT_TRUE(plan.empty());
}

TEST(RefreshPlan, StaleBlocksAreSentAgainAndBlocksWithoutSuccessorCleared) {
  const WorkingSetLayout layout = layout_of(4, 3, 3, 8);
  BlockMirror mirror = mirror_with(layout, {0, 1, 2});
  mirror.mark_stale(6);  // in block 1
  const std::vector<HeadSelection> selection{selection_of({1, 0}, {0.5F, 0.9F})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 8);
  EXPECT_THAT(next_wave(plan, mirror.free_slots()),
              ElementsAre(TableUpdate{0, 0, 1, 3, 1, 4}, TableUpdate{0, 0, 2, 2, 2, 0}));
}

TEST(RefreshPlan, NanScoresDoNotUpsetTheOrder) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const WorkingSetLayout layout = layout_of(1, 2, 2, 4);
  const BlockMirror mirror = mirror_with(layout, {0, 1});
  const std::vector<HeadSelection> selection{selection_of({3, 2}, {0.1F, nan, nan, 0.5F})};
  RefreshPlan plan = plan_refresh(layout, mirror, selection, 4);
  EXPECT_THAT(next_wave(plan, std::vector<std::uint32_t>{2}),
              ElementsAre(TableUpdate{0, 0, 1, 2, 3, 1}));
}

TEST(BlockMirror, ASlotIsFreeOnlyWhenNeitherTableNorWaveNamesIt) {
  const WorkingSetLayout layout = layout_of(4, 2, 1, 8);
  BlockMirror mirror = mirror_with(layout, {0, 1});
  EXPECT_THAT(mirror.free_slots(), ElementsAre(2));
  const std::vector<TableUpdate> wave{{0, 0, 0, 2, 5, 4}};
  mirror.reserve(wave);
  EXPECT_THAT(mirror.free_slots(), IsEmpty());
  mirror.install(wave);
  EXPECT_THAT(mirror.free_slots(), ElementsAre(0));
}

TEST(TransferPlan, NeighbouringSlotsBecomeOneWrite) {
  const WorkingSetLayout layout = layout_of(2, 4, 2, 8);
  const std::vector<TableUpdate> updates{
      {0, 0, 0, 3, 7, 2}, {0, 0, 1, 1, 5, 1}, {0, 0, 2, 2, 6, 2}, {0, 0, 3, 5, 9, 2}};
  const std::vector<Batch> batches = plan_transfer(layout, 1000, updates, {}, 1 << 20);
  ASSERT_EQ(batches.size(), 1U);
  const std::uint64_t slots = 1000 + layout.ring_bytes();
  ASSERT_EQ(batches[0].ops.size(), 2U);
  EXPECT_EQ(batches[0].ops[0].remote_offset, slots + 128);
  EXPECT_EQ(batches[0].ops[0].bytes, 3 * 128U);
  EXPECT_EQ(batches[0].ops[1].local_offset, 3 * 128U);
  EXPECT_EQ(batches[0].ops[1].remote_offset, slots + 5 * 128);
  EXPECT_EQ(batches[0].bytes, 4 * 128U);
  // Slot 1 first: block 5 with one real position, K then V.
  EXPECT_EQ(batches[0].copies[0], (Copy{0, 0, false, 10, 1, 2, 0}));
  EXPECT_EQ(batches[0].copies[1], (Copy{0, 0, true, 10, 1, 2, 64}));
}

TEST(TransferPlan, TheRingIsCutWhereItWraps) {
  const WorkingSetLayout layout = layout_of(2, 0, 0, 8);
  const std::vector<Batch> batches = plan_transfer(layout, 0, {}, {6, 12}, 1 << 20);
  ASSERT_EQ(batches.size(), 1U);
  // Positions 6, 7 at the ring's end, 8 to 11 at its start; K, then V 8 vectors further.
  ASSERT_EQ(batches[0].copies.size(), 4U);
  EXPECT_EQ(batches[0].copies[0], (Copy{0, 0, false, 6, 2, 2, 0}));
  EXPECT_EQ(batches[0].copies[1], (Copy{0, 0, false, 8, 4, 4, 64}));
  EXPECT_EQ(batches[0].ops[0].remote_offset, 6 * 32U);
  EXPECT_EQ(batches[0].ops[1].remote_offset, 0U);
  EXPECT_EQ(batches[0].ops[2].remote_offset, (8 + 6) * 32U);
}

TEST(TransferPlan, BatchesFillChunksWithoutExceedingThem) {
  const WorkingSetLayout layout = layout_of(2, 16, 0, 64);
  std::vector<TableUpdate> updates;
  for (std::uint32_t i = 0; i < 10; ++i) {
    updates.push_back({0, 0, i, i, i, 2});
  }
  std::uint64_t total = 0;
  for (const Batch& batch : plan_transfer(layout, 0, updates, {3, 60}, 300)) {
    EXPECT_LE(batch.bytes, 300U);
    std::uint64_t ops = 0;
    for (const transport::PutOp& op : batch.ops) {
      ops += op.bytes;
    }
    EXPECT_EQ(ops, batch.bytes);
    total += batch.bytes;
  }
  EXPECT_EQ(total, 10 * 128U + 2 * 57 * 32U);
}

}  // namespace
}  // namespace rift::score_node
