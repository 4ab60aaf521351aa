// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/simulation/copy_replay.h"

#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "placement/trace.h"

namespace castor {
namespace {

using testing::ElementsAre;

Access Do(AccessKind kind, int chunk) { return {kind, ChunkId(chunk)}; }

constexpr Bytes kSlotBytes[] = {Bytes(100)};

// Three chunks in slots of 100 bytes; the last of them is frozen.
PlanProblem Problem(int64_t slots) {
  PlanProblem problem;
  problem.param_class = {0, 0, 0};
  problem.grad_class = {0, 0, 0};
  problem.fetch_cost = {1, 1, 1};
  problem.survives_step = {false, false, true};
  problem.slots = {slots};
  return problem;
}

// Uses of the chunks, one after the other.
Trace Uses(const std::vector<int>& chunks) {
  Trace trace;
  for (const int chunk : chunks) {
    trace.push_back(Do(AccessKind::kUse, chunk));
    trace.push_back(Do(AccessKind::kUseEnd, chunk));
  }
  return trace;
}

TEST(CopyReplayTest, ServesAFirstStepOnDemand) {
  const PlanProblem problem = Problem(2);
  CopyReplay replay(problem, kSlotBytes);
  // On the way up the chunk farthest behind goes, on the way down the one
  // farthest ahead.
  replay.Step(Uses({0, 1, 2, 1, 0}), {});
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(2, 1, 1));
  EXPECT_EQ(replay.peak_bytes(), Bytes(200));
  // The frozen chunk's copy gave way to chunk 0, and chunk 1's is stale.
  replay.Step(Uses({1, 2}), {});
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(0, 1, 1));
  // What was frozen and there is not fetched again.
  replay.Step(Uses({2}), {});
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(0, 0, 0));
}

TEST(CopyReplayTest, GradientsAndRefreshesTakeSlotsToo) {
  const PlanProblem problem = Problem(3);
  CopyReplay replay(problem, kSlotBytes);
  Trace trace = {Do(AccessKind::kUse, 0), Do(AccessKind::kGradOpen, 0),
                 Do(AccessKind::kGradClose, 0), Do(AccessKind::kUseEnd, 0)};
  replay.Step(trace, {});
  EXPECT_EQ(replay.peak_bytes(), Bytes(200));
  trace.insert(trace.begin() + 2,
               {Do(AccessKind::kGradOpen, 1), Do(AccessKind::kGradClose, 1)});
  replay.Step(trace, std::vector<ChunkId>{ChunkId(0), ChunkId(1)});
  EXPECT_EQ(replay.peak_bytes(), Bytes(300));
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(2, 0, 0));
}

TEST(CopyReplayTest, FollowsAPlanAndItsBeginning) {
  const PlanProblem problem = Problem(2);
  const Trace trace = Uses({0, 1, 0});
  Plan plan;
  plan.initial = {ChunkId(0)};
  plan.moves = {{MoveKind::kGather, RunCause::kPrefetch, ChunkId(1)},
                {MoveKind::kRelease, RunCause::kRoom, ChunkId(1)}};
  // The gather after moment 0, the release after moment 3.
  plan.first_move = {0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2};
  CopyReplay replay(problem, kSlotBytes);
  replay.Adopt(trace, plan);
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(1, 0, 0));
  // At its end it begins the next one.
  replay.Step(trace, {});
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(1, 1, 0));
  EXPECT_EQ(replay.peak_bytes(), Bytes(200));
}

TEST(CopyReplayTest, ChunksAtHomeOnTheDeviceTakeNoSlot) {
  PlanProblem problem = Problem(1);
  problem.param_class = {kNoSlotClass, kNoSlotClass, 0};
  CopyReplay replay(problem, kSlotBytes);
  replay.Step(Uses({0, 1, 0, 1}), {});
  EXPECT_THAT(replay.TakeCounts().gathers, ElementsAre(0, 0, 0));
  EXPECT_EQ(replay.peak_bytes(), Bytes(0));
}

}  // namespace
}  // namespace castor
