// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/sharding.h"

#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/run_event.h"

namespace castor {
namespace {

constexpr StateKind kAll[] = {StateKind::kParam, StateKind::kGrad,
                              StateKind::kMaster, StateKind::kExpAvg,
                              StateKind::kExpAvgSq};

// One chunk of `world` quanta that holds one parameter.
ChunkLayout OneChunk(int world) {
  const Elements size = ChunkQuantum(world);
  ChunkInfo chunk;
  chunk.size = chunk.used = chunk.payload = size;
  chunk.params = {ParamId(0)};
  GroupInfo group;
  group.chunk_size = size;
  group.chunks = {ChunkId(0)};
  return ChunkLayout(world, Elements(64), {{ChunkId(0), Elements(0), size}},
                     {chunk}, {group});
}

TEST(ShardingTest, StagesShardOneMoreKindOfStateEach) {
  // Reduced gradients follow the optimizer states: stages 1 and 2 keep alike.
  const struct {
    int stage;
    bool params, rest;
  } rows[] = {
      {0, true, true}, {1, true, false}, {2, true, false}, {3, false, false}};
  for (const auto& row : rows) {
    const Sharding sharding{row.stage, 4, 0};
    for (StateKind state : kAll) {
      EXPECT_EQ(sharding.replicated(state),
                state == StateKind::kParam ? row.params : row.rest)
          << "stage " << row.stage << " " << StateKindName(state);
    }
  }
}

TEST(ShardingTest, ASingleRankKeepsEverythingWhole) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Sharding sharding{stage, 1, 0};
    for (StateKind state : kAll) EXPECT_TRUE(sharding.replicated(state));
    EXPECT_FALSE(sharding.refreshes());
  }
}

TEST(ShardingTest, OnlyReplicatedParametersUpdatedInPartAreRefreshed) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Sharding sharding{stage, 2, 0};
    EXPECT_EQ(sharding.refreshes(),
              sharding.replicated(StateKind::kParam) &&
                  !sharding.replicated(StateKind::kExpAvg))
        << "stage " << stage;
  }
}

TEST(ShardingTest, MastersExistBelowFullPrecisionAndFrozenOnesHaveParamsOnly) {
  const Sharding sharding;
  GroupInfo group;
  group.dtype = DType::kF32;
  EXPECT_FALSE(sharding.exists(StateKind::kMaster, group));
  EXPECT_TRUE(sharding.exists(StateKind::kGrad, group));
  group.dtype = DType::kBF16;
  for (StateKind state : kAll) EXPECT_TRUE(sharding.exists(state, group));
  group.trainable = false;
  for (StateKind state : kAll) {
    EXPECT_EQ(sharding.exists(state, group), state == StateKind::kParam);
  }
}

TEST(ShardingTest, MomentsExistAsTheOptimizerHasThem) {
  Sharding sharding;
  GroupInfo group;
  group.dtype = DType::kBF16;
  for (int moments : {0, 1, 2}) {
    sharding.moments = moments;
    EXPECT_EQ(sharding.exists(StateKind::kExpAvg, group), moments >= 1);
    EXPECT_EQ(sharding.exists(StateKind::kExpAvgSq, group), moments >= 2);
    EXPECT_TRUE(sharding.exists(StateKind::kMaster, group));
  }
}

TEST(ShardingTest, OptimizerStatesAreFp32GradientsLikeTheParameters) {
  const Sharding sharding;
  GroupInfo group;
  group.dtype = DType::kBF16;
  for (StateKind state : kAll) {
    const bool low = state == StateKind::kParam || state == StateKind::kGrad;
    EXPECT_EQ(sharding.dtype(state, group), low ? DType::kBF16 : DType::kF32);
  }
  Sharding low_moments;
  low_moments.moment_dtype = DType::kBF16;
  EXPECT_EQ(low_moments.dtype(StateKind::kExpAvgSq, group), DType::kBF16);
  EXPECT_EQ(low_moments.dtype(StateKind::kMaster, group), DType::kF32);
}

TEST(ShardingTest, RanksUpdateAndCountEveryElementAsOftenAsTheyShould) {
  for (int world : {1, 2, 3, 8}) {
    const ChunkLayout layout = OneChunk(world);
    const ChunkId chunk(0);
    const auto size = static_cast<size_t>(layout.chunk(chunk).size.count());
    for (int stage = 0; stage <= 3; ++stage) {
      std::vector<int> updated(size, 0);
      std::vector<int> counted(size, 0);
      for (int rank = 0; rank < world; ++rank) {
        const Sharding sharding{stage, world, rank};
        const auto mark = [](std::vector<int>& marks, ShardRange range) {
          for (int64_t i = range.begin.count(); i < range.end.count(); ++i) {
            ++marks[static_cast<size_t>(i)];
          }
        };
        mark(updated, sharding.updated(layout, chunk));
        mark(counted, sharding.counted(layout, chunk));
        for (StateKind state : kAll) {
          const ShardRange kept = sharding.kept(state, layout, chunk);
          EXPECT_EQ(kept.end - kept.begin,
                    sharding.replicated(state)
                        ? layout.chunk(chunk).size
                        : layout.chunk(chunk).size / world);
          // What is updated and counted is there.
          for (const ShardRange range : {sharding.updated(layout, chunk),
                                         sharding.counted(layout, chunk)}) {
            EXPECT_TRUE(kept.begin <= range.begin && range.end <= kept.end);
          }
        }
      }
      EXPECT_THAT(counted, testing::Each(1));
      EXPECT_THAT(updated, testing::Each(stage == 0 ? world : 1));
    }
  }
}

}  // namespace
}  // namespace castor
