// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/trace/reduction_turns.h"

#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "chunk/layout/chunk_packer.h"
#include "chunk/param_spec.h"
#include "gtest/gtest.h"

namespace castor {
namespace {

// Four chunks of one parameter each.
ChunkLayout FourChunks() {
  std::vector<ParamSpec> params;
  for (int p = 0; p < 4; ++p) {
    params.push_back({"p" + std::to_string(p), {128}, DType::kF32, true});
  }
  const Elements size[] = {Elements(128)};
  return PackChunks(params, size, PackOptions()).value();
}

std::vector<int32_t> Taken(ReductionTurns& turns) {
  std::vector<int32_t> taken;
  while (const auto chunk = turns.TakeNext()) taken.push_back(chunk->value());
  return taken;
}

std::vector<int32_t> Numbers(const std::vector<ChunkId>& order) {
  std::vector<int32_t> numbers;
  for (const ChunkId chunk : order) numbers.push_back(chunk.value());
  return numbers;
}

using Ids = std::vector<int32_t>;

TEST(ReductionTurnsTest, ABackwardPassReducesEachChunkAsItCompletes) {
  const ChunkLayout layout = FourChunks();
  ReductionTurns turns(layout, {});
  turns.BeginMicroBatch();
  for (int32_t c = 3; c >= 0; --c) {
    turns.Complete(ChunkId(c));
    EXPECT_EQ(Taken(turns), Ids{c});
  }
  EXPECT_FALSE(turns.Awaited().has_value());
  EXPECT_EQ(turns.Proposed(), turns.order());
}

TEST(ReductionTurnsTest, WhatIsBehindAMissingChunkWaitsForTheFlush) {
  const ChunkLayout layout = FourChunks();
  ReductionTurns turns(layout, {});
  turns.BeginMicroBatch();
  turns.Complete(ChunkId(3));
  EXPECT_EQ(Taken(turns), Ids{3});
  turns.Complete(ChunkId(1));
  turns.Complete(ChunkId(0));
  EXPECT_EQ(Taken(turns), Ids());
  EXPECT_EQ(turns.Awaited(), ChunkId(2));
  EXPECT_EQ(turns.TakeAwaited(), ChunkId(2));
  EXPECT_EQ(Taken(turns), (Ids{1, 0}));
  EXPECT_FALSE(turns.Awaited().has_value());
}

TEST(ReductionTurnsTest, TheNextStepHasTheOrderInWhichChunksWereComplete) {
  const ChunkLayout layout = FourChunks();
  ReductionTurns turns(layout, {});
  turns.BeginMicroBatch();
  for (const int32_t c : {2, 3, 0, 1}) turns.Complete(ChunkId(c));
  EXPECT_EQ(Taken(turns), (Ids{3, 2, 1, 0}));
  turns.Adopt(turns.Proposed());
  turns.BeginMicroBatch();
  turns.Complete(ChunkId(2));
  EXPECT_EQ(Taken(turns), Ids{2});
}

// It may have been chance once.
TEST(ReductionTurnsTest, AChunkThatIsMissingTwiceGoesToTheEnd) {
  const ChunkLayout layout = FourChunks();
  ReductionTurns turns(layout, {});
  for (const Ids& order : {Ids{3, 2, 1, 0}, Ids{3, 1, 0, 2}}) {
    turns.BeginMicroBatch();
    for (const int32_t c : {3, 1, 0}) turns.Complete(ChunkId(c));
    const std::vector<ChunkId> proposed = turns.Proposed();
    EXPECT_EQ(Numbers(proposed), order);
    turns.Adopt(proposed);
  }
  // And comes back to where it is complete.
  turns.BeginMicroBatch();
  for (const int32_t c : {3, 2, 1, 0}) turns.Complete(ChunkId(c));
  EXPECT_EQ(Numbers(turns.Proposed()), (Ids{3, 2, 1, 0}));
}

TEST(ReductionTurnsTest, ChunksThatNeverHaveAGradientComeLast) {
  const ChunkLayout layout = FourChunks();
  const ReductionTurns turns(layout, {true, true, false, true});
  EXPECT_EQ(Numbers(turns.order()), (Ids{3, 1, 0, 2}));
}

TEST(ReductionTurnsTest, WithoutSlotsWhatIsCompletePassesWhatItWaitsFor) {
  const ChunkLayout layout = FourChunks();
  ReductionTurns turns(layout, {});
  turns.BeginMicroBatch();
  EXPECT_FALSE(turns.LetPass());
  turns.Complete(ChunkId(1));
  EXPECT_TRUE(turns.LetPass());
  EXPECT_EQ(Taken(turns), Ids{1});
  EXPECT_FALSE(turns.LetPass());
  EXPECT_EQ(turns.Awaited(), ChunkId(3));
}

}  // namespace
}  // namespace castor
