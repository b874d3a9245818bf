// SPDX-License-Identifier: Apache-2.0
#include "draft_node/core/block_table.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace rift::draft_node {
namespace {

using transport::TableUpdate;

constexpr std::int32_t kLimit = 100;

WorkingSetLayout layout() {
  WorkingSetLayout l;
  l.geometry = {2, 2, 16, DType::kF16};
  l.block = 16;
  l.slots_per_head = 3;
  l.staging_slots = 4;
  l.ring_capacity = 9;
  return l;
}

TableUpdate update(std::uint16_t layer,
                   std::uint16_t head,
                   std::uint32_t entry,
                   std::uint32_t slot,
                   std::uint32_t block,
                   std::uint16_t count = 16) {
  return {layer, head, entry, slot, block, count};
}

/// Layer 0, head 1: blocks 4 and 2 in slots 5 and 6.
BlockTable table_with_two_blocks() {
  BlockTable table(layout());
  const std::vector<TableUpdate> first = {update(0, 1, 0, 5, 4), update(0, 1, 2, 6, 2)};
  EXPECT_TRUE(table.apply(first, kLimit).ok());
  return table;
}

TEST(BlockTable, StartsEmpty) {
  const BlockTable table(layout());
  EXPECT_EQ(table.active_entries(), 0U);
  EXPECT_EQ(table.head(1, 1).size(), 3U);
}

TEST(BlockTable, PutsUpdatesAtTheirEntries) {
  const BlockTable table = table_with_two_blocks();
  EXPECT_EQ(table.head(0, 1)[0], (TableEntry{5, 4, 16}));
  EXPECT_EQ(table.head(0, 1)[1], (TableEntry{}));
  EXPECT_EQ(table.head(0, 1)[2], (TableEntry{6, 2, 16}));
  EXPECT_EQ(table.active_entries(), 2U);
}

TEST(BlockTable, AHeadMayHoldMoreThanItsShareButNotTheLayer) {
  WorkingSetLayout shared = layout();
  shared.extra_entries = 2;
  BlockTable table(shared);
  EXPECT_EQ(table.head(0, 0).size(), 5U);
  std::vector<TableUpdate> wave;
  for (std::uint32_t i = 0; i < 5; ++i) {
    wave.push_back(update(0, 0, i, i, i));
  }
  wave.push_back(update(0, 1, 0, 5, 0));
  ASSERT_TRUE(table.apply(wave, kLimit).ok());
  const std::vector<TableUpdate> seventh = {update(0, 1, 1, 6, 1)};
  EXPECT_FALSE(table.apply(seventh, kLimit).ok());
  EXPECT_EQ(table.active_entries(), 6U);
  EXPECT_TRUE(table.apply(std::vector{update(1, 1, 1, 6, 1)}, kLimit).ok());
  const std::vector<TableUpdate> exchange = {update(0, 1, 1, 7, 1), update(0, 0, 3, 0, 0, 0)};
  EXPECT_TRUE(table.apply(exchange, kLimit).ok());
}

TEST(BlockTable, LayersHaveTheirOwnBudgets) {
  WorkingSetLayout pyramid = layout();
  pyramid.extra_entries = 1;
  pyramid.layer_slots = {4, 2};
  BlockTable table(pyramid);
  std::vector<TableUpdate> wave;
  for (std::uint32_t i = 0; i < 4; ++i) {
    wave.push_back(update(0, 0, i, i, i));
  }
  EXPECT_TRUE(table.apply(wave, kLimit).ok());
  wave = {update(1, 0, 0, 4, 0), update(1, 0, 1, 5, 1)};
  EXPECT_TRUE(table.apply(wave, kLimit).ok());
  EXPECT_FALSE(table.apply(std::vector{update(1, 0, 2, 6, 2)}, kLimit).ok());
}

TEST(BlockTable, TakesAShortLastBlockUpToTheCandidatesEnd) {
  BlockTable table(layout());
  EXPECT_TRUE(table.apply(std::vector{update(0, 0, 0, 0, 6, 4)}, kLimit).ok());
  EXPECT_FALSE(table.apply(std::vector{update(0, 0, 1, 1, 6, 5)}, kLimit).ok());
}

TEST(BlockTable, ReplacesABlockByItsLongerVersionInAnotherSlot) {
  BlockTable table(layout());
  ASSERT_TRUE(table.apply(std::vector{update(0, 0, 0, 0, 6, 4)}, kLimit).ok());
  ASSERT_TRUE(table.apply(std::vector{update(0, 0, 0, 1, 6, 16)}, 200).ok());
  EXPECT_EQ(table.head(0, 0)[0], (TableEntry{1, 6, 16}));
}

TEST(BlockTable, EmptiesAnEntryAndFreesItsSlot) {
  BlockTable table = table_with_two_blocks();
  ASSERT_TRUE(table.apply(std::vector{update(0, 1, 0, 0, 0, 0)}, kLimit).ok());
  EXPECT_EQ(table.active_entries(), 1U);
  EXPECT_TRUE(table.apply(std::vector{update(1, 0, 0, 5, 0)}, kLimit).ok());
}

TEST(BlockTable, MovesABlockBetweenEntriesWithinOneWave) {
  BlockTable table = table_with_two_blocks();
  const std::vector<TableUpdate> wave = {update(0, 1, 0, 9, 2), update(0, 1, 2, 8, 4)};
  EXPECT_TRUE(table.apply(wave, kLimit).ok());
}

struct Hostile {
  const char* name;
  std::vector<TableUpdate> wave;
};

class HostileUpdate : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileUpdate, IsRefusedAndLeavesTheTableAsItWas) {
  BlockTable table = table_with_two_blocks();
  std::vector<TableUpdate> wave = GetParam().wave;
  wave.insert(wave.begin(), update(1, 1, 1, 10, 1));  // a good one first
  EXPECT_FALSE(table.apply(wave, kLimit).ok());
  EXPECT_EQ(table.active_entries(), 2U);
  EXPECT_EQ(table.head(1, 1)[1], (TableEntry{}));
}

constexpr std::uint32_t kHuge = std::numeric_limits<std::uint32_t>::max();

INSTANTIATE_TEST_SUITE_P(
    BlockTable,
    HostileUpdate,
    ::testing::Values(Hostile{"LayerTooLarge", {update(2, 0, 0, 0, 0)}},
                      Hostile{"HeadTooLarge", {update(0, 2, 0, 0, 0)}},
                      Hostile{"EntryTooLarge", {update(0, 0, 3, 0, 0)}},
                      Hostile{"EntryHuge", {update(0, 0, kHuge, 0, 0)}},
                      Hostile{"SlotTooLarge", {update(0, 0, 0, 16, 0)}},
                      Hostile{"SlotHuge", {update(0, 0, 0, kHuge, 0)}},
                      Hostile{"CountTooLarge", {update(0, 0, 0, 0, 0, 17)}},
                      Hostile{"BlockPastTheCandidates", {update(0, 0, 0, 0, 6, 16)}},
                      Hostile{"BlockWhosePositionOverflows", {update(0, 0, 0, 0, kHuge)}},
                      Hostile{"SlotReadByAnotherEntry", {update(0, 0, 0, 5, 0)}},
                      Hostile{"SlotReadUntilThisVeryWave",
                              {update(0, 1, 0, 7, 3), update(0, 0, 0, 5, 0)}},
                      Hostile{"SlotTwice", {update(0, 0, 0, 7, 0), update(0, 0, 1, 7, 1)}},
                      Hostile{"EntryTwice", {update(0, 0, 0, 7, 0), update(0, 0, 0, 8, 1)}},
                      Hostile{"BlockAlreadyAttended", {update(0, 1, 1, 7, 4)}},
                      Hostile{"BlockTwice", {update(0, 0, 0, 7, 0), update(0, 0, 1, 8, 0)}}),
    [](const auto& hostile) { return hostile.param.name; });

TEST(BlockTable, KeepsItsInvariantsUnderRandomWaves) {
  std::mt19937 random(3);
  BlockTable table(layout());
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<TableUpdate> wave(1 + random() % 3);
    for (TableUpdate& u : wave) {
      u = update(static_cast<std::uint16_t>(random() % 3),
                 static_cast<std::uint16_t>(random() % 2),
                 static_cast<std::uint32_t>(random() % 3),
                 static_cast<std::uint32_t>(random() % 17),
                 static_cast<std::uint32_t>(random() % 8),
                 static_cast<std::uint16_t>(random() % 17));
    }
    accepted += table.apply(wave, kLimit).ok() ? 1 : 0;
    std::vector<int> slot_readers(layout().slot_count());
    for (int layer = 0; layer < 2; ++layer) {
      for (int head = 0; head < 2; ++head) {
        std::vector<int> blocks(8);
        for (const TableEntry& e : table.head(layer, head)) {
          if (e.count == 0) {
            continue;
          }
          ASSERT_LE(e.block * 16 + static_cast<std::uint32_t>(e.count), 100U);
          ASSERT_EQ(++slot_readers.at(e.slot), 1);
          ASSERT_EQ(++blocks.at(e.block), 1);
        }
      }
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace rift::draft_node
