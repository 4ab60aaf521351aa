// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Which chunks a step makes whole, and how many slots it holds at most, counted
// where nothing takes time.

#include "placement/simulation/gathered_copies.h"

#include <cstdint>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/simulation/simulated_engine.h"
#include "placement/simulation/simulation_result.h"
#include "placement/simulation/simulator.h"
#include "placement/simulation/step_traffic.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

constexpr Bytes kChunk{100};

Access Do(AccessKind kind, int chunk) { return {kind, ChunkId(chunk)}; }

// Three chunks in slots of 100 bytes; the last of them is frozen.
SimulatedEngine Engine(int64_t slots) {
  SimulatedEngine engine;
  engine.problem.param_class = {0, 0, 0};
  engine.problem.grad_class = {0, 0, 0};
  engine.problem.fetch_cost = {1, 1, 1};
  engine.problem.survives_step = {false, false, true};
  engine.problem.slots = {slots};
  engine.slot_bytes = {kChunk};
  for (int c = 0; c < 3; ++c) {
    SimulatedChunk chunk;
    chunk.gathered = kChunk;
    chunk.states[0] = {kChunk, kChunk, Tier::kHost, Bytes(0)};
    if (c < 2) {
      chunk.gathered_grad = kChunk;
      chunk.states[1] = {kChunk, kChunk, Tier::kHost, Bytes(0)};
    }
    engine.chunks.push_back(chunk);
  }
  return engine;
}

// Uses of the chunks, one after the other.
StepTrace Uses(const std::vector<int>& chunks) {
  StepTrace step;
  for (const int chunk : chunks) {
    step.accesses.push_back(Do(AccessKind::kUse, chunk));
    step.accesses.push_back(Do(AccessKind::kUseEnd, chunk));
  }
  return step;
}

// Of the last step, by chunk.
std::vector<int64_t> GathersOf(const SimulationResult& run) {
  std::vector<int64_t> gathers;
  int64_t sum = 0;
  for (const StepTraffic& traffic : run.by_chunk) {
    sum += gathers.emplace_back(traffic.gathers);
  }
  EXPECT_EQ(run.steady().traffic.gathers, sum);
  return gathers;
}

SimulationResult Count(const std::vector<StepTrace>& steps,
                       const SimulatedEngine& engine,
                       const Plan* plan = nullptr) {
  std::vector<const StepTrace*> all;
  for (const StepTrace& step : steps) all.push_back(&step);
  const Result<SimulationResult> run = CountSteps(all, engine, plan);
  EXPECT_THAT(run, IsOk());
  return run.value();
}

TEST(GatheredCopiesTest, ServesAFirstStepOnDemand) {
  // On the way up the chunk farthest behind goes, on the way down the one
  // farthest ahead.
  const StepTrace uses = Uses({0, 1, 2, 1, 0});
  Plan plan;  // of the next step, which asks for nothing ahead
  plan.first_move.assign(2 * uses.accesses.size() + 1, 0);
  const StepTrace* const once[] = {&uses};
  const Result<SimulationResult> run = CountSteps(once, Engine(2), &plan);
  ASSERT_THAT(run, IsOk());
  EXPECT_THAT(GathersOf(*run), ElementsAre(2, 1, 1));
  EXPECT_EQ(run->peak[0], 2 * kChunk);
}

TEST(GatheredCopiesTest, AFrozenChunkThatIsThereIsNotFetchedAgain) {
  // Each step is another one, so none follows a plan; but each has made one,
  // which keeps the frozen chunk for the next step.
  const StepTrace first = Uses({0, 2});
  const StepTrace second = Uses({2, 0});
  const SimulationResult step = Count({first, second}, Engine(3));
  EXPECT_THAT(GathersOf(step), ElementsAre(1, 0, 0));
  EXPECT_EQ(step.steady().divergences, 1);
}

TEST(GatheredCopiesTest, GradientsTakeSlotsToo) {
  StepTrace step;
  step.accesses = {Do(AccessKind::kUse, 0), Do(AccessKind::kGradOpen, 0),
                   Do(AccessKind::kGradClose, 0), Do(AccessKind::kUseEnd, 0)};
  EXPECT_EQ(Count({step}, Engine(3)).peak[0], 2 * kChunk);
  step.accesses.insert(
      step.accesses.begin() + 2,
      {Do(AccessKind::kGradOpen, 1), Do(AccessKind::kGradClose, 1)});
  const SimulationResult both = Count({step}, Engine(3));
  EXPECT_EQ(both.peak[0], 3 * kChunk);
  EXPECT_THAT(GathersOf(both), ElementsAre(1, 0, 0));
}

TEST(GatheredCopiesTest, FollowsAPlanAndItsBeginning) {
  const StepTrace step = Uses({0, 1, 0});
  Plan plan;
  plan.initial = {ChunkId(0)};
  plan.moves = {{MoveKind::kGather, RunCause::kPrefetch, ChunkId(1)},
                {MoveKind::kRelease, RunCause::kRoom, ChunkId(1)}};
  // The gather after moment 0, the release after moment 3.
  plan.first_move = {0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2};
  // At its end a step begins the next one: so does the first, on demand.
  EXPECT_THAT(GathersOf(Count({step}, Engine(2), &plan)), ElementsAre(2, 1, 0));
  const StepTrace* const thrice[] = {&step, &step, &step};
  const Result<SimulationResult> run = CountSteps(thrice, Engine(2), &plan);
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->by_chunk[0].gathers, 1);
  EXPECT_EQ(run->by_chunk[1].gathers, 1);
  EXPECT_EQ(run->steady().prefetched_gathers, 2);
  EXPECT_EQ(run->peak[0], 2 * kChunk);
}

TEST(GatheredCopiesTest, ChunksAtHomeOnTheDeviceTakeNoSlot) {
  SimulatedEngine engine = Engine(1);
  engine.problem.param_class = {kNoSlotClass, kNoSlotClass, 0};
  const SimulationResult step = Count({Uses({0, 1, 0, 1})}, engine);
  EXPECT_THAT(GathersOf(step), ElementsAre(0, 0, 0));
  EXPECT_EQ(step.peak[0], Bytes(0));
}

}  // namespace
}  // namespace castor
