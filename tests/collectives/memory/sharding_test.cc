// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/memory/sharding.h"

#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "chunk/chunk_layout.h"
#include "collectives/rank_scope.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/memory_passes.h"
#include "placement/run_event.h"

namespace castor {
namespace {

constexpr StateKind kAll[] = {StateKind::kParam, StateKind::kGrad,
                              StateKind::kMaster, OptimizerState(0),
                              OptimizerState(1)};

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
          << "stage " << row.stage << " " << StateNames().of(state);
    }
  }
}

TEST(ShardingTest, AnUpdateWorksOnTheStatesThatTheGroupHas) {
  Sharding sharding;
  GroupInfo group;
  group.dtype = DType::kBF16;
  UpdatePass pass = sharding.update_pass(group);
  EXPECT_EQ(pass.grad, DType::kBF16);
  EXPECT_EQ(pass.param, DType::kBF16);
  EXPECT_EQ(pass.state, DType::kF32);
  EXPECT_EQ(pass.states, sharding.states.optimizer_states());
  group.states = 1;
  sharding.fp32_grads = true;
  sharding.moment_dtype = DType::kBF16;
  pass = sharding.update_pass(group);
  EXPECT_EQ(pass.grad, DType::kF32);
  EXPECT_EQ(pass.state, DType::kBF16);
  EXPECT_EQ(pass.states, 1);
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
    EXPECT_EQ(sharding.refreshes(), sharding.replicated(StateKind::kParam) &&
                                        !sharding.replicated(OptimizerState(0)))
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
    std::vector<std::string> names = {"a", "b"};
    names.resize(static_cast<size_t>(moments));
    sharding.states = StateNames(names);
    EXPECT_EQ(sharding.exists(OptimizerState(0), group), moments >= 1);
    EXPECT_EQ(sharding.exists(OptimizerState(1), group), moments >= 2);
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
  EXPECT_EQ(low_moments.dtype(OptimizerState(1), group), DType::kBF16);
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

// Every world of up to eight ranks, cut in every way.
template <typename Check>
void ForEverySharding(const Check& check) {
  for (int world = 1; world <= 8; ++world) {
    for (int group = 0; group <= world; ++group) {
      if (group > 0 && world % group != 0) continue;
      for (int stage = 0; stage <= 3; ++stage) {
        for (const bool spans : {false, true}) {
          if (spans && stage == 0) continue;
          std::vector<Sharding> ranks;
          for (int rank = 0; rank < world; ++rank) {
            Sharding sharding{stage, world, rank};
            sharding.shard_group = group;
            sharding.spans_world = spans;
            ranks.push_back(sharding);
          }
          SCOPED_TRACE(testing::Message()
                       << "world " << world << ", group " << group << ", stage "
                       << stage << (spans ? ", spans the world" : ""));
          check(ranks);
        }
      }
    }
  }
}

TEST(ShardingTest, GroupsCutInsideAndReplicateAcross) {
  Sharding sharding{3, 8, 5};
  sharding.shard_group = 4;
  EXPECT_EQ(sharding.pieces(StateKind::kParam), 4);
  EXPECT_EQ(sharding.pieces(OptimizerState(0)), 4);
  EXPECT_EQ(sharding.joined_ranks(), 2);
  EXPECT_FALSE(sharding.refreshes());
  sharding.spans_world = true;
  EXPECT_EQ(sharding.pieces(StateKind::kParam), 4);
  EXPECT_EQ(sharding.pieces(StateKind::kGrad), 8);
  EXPECT_EQ(sharding.pieces(StateKind::kMaster), 8);
  EXPECT_EQ(sharding.joined_ranks(), 1);
  EXPECT_EQ(sharding.refreshed_ranks(), 2);
  EXPECT_EQ(sharding.refresh_scope(), (RankScope{Among::kReplicas, 4}));
  const ChunkLayout layout = OneChunk(8);
  const Elements slice = layout.chunk(ChunkId(0)).size / 8;
  // Ranks 1 and 5 keep the second quarter; 5 updates the latter half of it.
  EXPECT_EQ(sharding.kept(StateKind::kParam, layout, ChunkId(0)).begin,
            slice * 2);
  EXPECT_EQ(sharding.kept(StateKind::kParam, layout, ChunkId(0)).end,
            slice * 4);
  EXPECT_EQ(sharding.updated(layout, ChunkId(0)).begin, slice * 3);
  sharding.stage = 1;
  EXPECT_EQ(sharding.refreshed_ranks(), 8);
  sharding.spans_world = false;
  EXPECT_EQ(sharding.refreshed_ranks(), 4);
  EXPECT_EQ(sharding.refresh_scope(), (RankScope{Among::kGroup, 4}));
}

// Stages 0 to 2 are what stage 3 is with groups of one rank.
TEST(ShardingTest, GroupsOfOneRankAreTheOtherStages) {
  const ChunkLayout layout = OneChunk(6);
  for (int rank = 0; rank < 6; ++rank) {
    Sharding alone{3, 6, rank};
    alone.shard_group = 1;
    for (const int stage : {0, 2}) {
      alone.spans_world = stage == 2;
      const Sharding plain{stage, 6, rank};
      for (const StateKind state : kAll) {
        EXPECT_EQ(alone.kept(state, layout, ChunkId(0)).begin,
                  plain.kept(state, layout, ChunkId(0)).begin);
        EXPECT_EQ(alone.pieces(state), plain.pieces(state));
      }
      EXPECT_EQ(alone.refreshes(), plain.refreshes());
      EXPECT_EQ(alone.joined_ranks(), plain.joined_ranks());
      if (plain.refreshes()) {
        EXPECT_EQ(alone.refresh_scope(), plain.refresh_scope());
      }
      EXPECT_EQ(alone.reduce_scope(), RankScope());
    }
  }
}

TEST(ShardingTest, GroupsCountEveryElementOnceAndKeepWhatTheyUpdate) {
  const ChunkId chunk(0);
  ForEverySharding([&](const std::vector<Sharding>& ranks) {
    const auto world = static_cast<int>(ranks.size());
    const ChunkLayout layout = OneChunk(world);
    const Elements size = layout.chunk(chunk).size;
    const Elements slice = size / world;
    std::vector<int> counted(ranks.size(), 0);
    std::vector<int> updated(ranks.size(), 0);
    const auto mark = [&](std::vector<int>& marks, ShardRange range) {
      EXPECT_EQ(range.begin % slice, Elements(0));
      for (Elements at = range.begin; at < range.end; at += slice) {
        ++marks[static_cast<size_t>(at / slice)];
      }
    };
    for (const Sharding& sharding : ranks) {
      mark(counted, sharding.counted(layout, chunk));
      mark(updated, sharding.updated(layout, chunk));
      for (const StateKind state : kAll) {
        const ShardRange kept = sharding.kept(state, layout, chunk);
        EXPECT_EQ((kept.end - kept.begin) * sharding.pieces(state), size);
        for (const ShardRange range : {sharding.counted(layout, chunk),
                                       sharding.updated(layout, chunk)}) {
          // Parameters are updated where they are kept, and gathered around.
          EXPECT_TRUE(kept.begin <= range.begin && range.end <= kept.end);
        }
      }
    }
    EXPECT_THAT(counted, testing::Each(1));
    EXPECT_THAT(updated,
                testing::Each(world / ranks[0].pieces(OptimizerState(0))));
  });
}

// The pieces that ranks bring to a gather, in order of places, are the whole.
TEST(ShardingTest, GathersPutPiecesTogether) {
  const ChunkId chunk(0);
  ForEverySharding([&](const std::vector<Sharding>& ranks) {
    const auto world = static_cast<int>(ranks.size());
    const ChunkLayout layout = OneChunk(world);
    const auto expect = [&](const Sharding& rank, const RankScope& scope,
                            int among, const ShardRange& whole,
                            const auto& piece) {
      ASSERT_EQ(scope.size(world), among);
      const Elements size = (whole.end - whole.begin) / among;
      for (int i = 0; i < among; ++i) {
        const int other = scope.member(i, rank.rank, world);
        const ShardRange brought = piece(ranks[static_cast<size_t>(other)]);
        EXPECT_EQ(brought.begin,
                  whole.begin + size * scope.place(other, world));
        EXPECT_EQ(brought.end - brought.begin, size);
      }
    };
    for (const Sharding& rank : ranks) {
      const auto params = [&](const Sharding& other) {
        return other.kept(StateKind::kParam, layout, chunk);
      };
      const auto reduced = [&](const Sharding& other) {
        return other.counted(layout, chunk);
      };
      const ShardRange all{Elements(0), layout.chunk(chunk).size};
      if (rank.pieces(StateKind::kParam) > 1) {
        expect(rank, rank.param_scope(), rank.pieces(StateKind::kParam), all,
               params);
      }
      expect(rank, rank.reduce_scope(), world, all, reduced);
      if (rank.joined_ranks() > 1) {
        expect(rank, rank.join_scope(), rank.joined_ranks(),
               rank.kept(StateKind::kGrad, layout, chunk), reduced);
      }
      if (rank.refreshes()) {
        expect(rank, rank.refresh_scope(), rank.refreshed_ranks(), params(rank),
               [&](const Sharding& other) {
                 return other.updated(layout, chunk);
               });
      }
    }
  });
}

}  // namespace
}  // namespace castor
