// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Steps small enough to be reckoned by hand; those of engines are compared in
// tests/integration/simulator_test.cc.

#include "placement/simulation/simulator.h"

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
#include "placement/tier_model.h"
#include "placement/trace/step_trace.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;
constexpr Bytes kChunk{1'000'000};  // a millisecond on the link

SimulatedEngine TwoChunks(int64_t slots) {
  SimulatedEngine engine;
  engine.problem.slots = {slots};
  engine.problem.prefetch_depth = 2;
  engine.slot_bytes = {kChunk};
  for (int c = 0; c < 2; ++c) {
    SimulatedChunk chunk;
    chunk.gathered = kChunk;
    chunk.gathered_grad = kChunk;
    chunk.states[0] = {kChunk, kChunk, Tier::kHost, Bytes(0)};
    engine.chunks.push_back(chunk);
    engine.problem.param_class.push_back(0);
    engine.problem.grad_class.push_back(0);
    engine.problem.fetch_cost.push_back(1);
    engine.problem.survives_step.push_back(false);
  }
  engine.settled = {Bytes(0), 2 * kChunk, Bytes(0)};
  return engine;
}

// Each chunk is used for five milliseconds.
StepTrace UseBoth() {
  StepTrace trace;
  for (int c = 0; c < 2; ++c) {
    trace.accesses.push_back({AccessKind::kUse, ChunkId(c)});
    trace.accesses.push_back({AccessKind::kUseEnd, ChunkId(c)});
    trace.compute_ns.insert(trace.compute_ns.end(), {5 * kMs, 0});
  }
  return trace;
}

TierModel Link() {
  TierModel machine;
  machine.host_to_device = LinkModel{1'000'000'000, 0};
  return machine;
}

TEST(SimulatorTest, AThreadWaitsForTheFirstChunkOfEveryStep) {
  const Result<SimulationResult> result = Simulate(
      UseBoth(), TwoChunks(2), Link(), {.trainer = SimTrainer::kThread});
  ASSERT_THAT(result, IsOk());
  // On demand, one after the other; later the second comes meanwhile.
  EXPECT_EQ(result->steps[0].ns(), 12 * kMs);
  EXPECT_EQ(result->steady().ns(), 11 * kMs);
  const auto& stalls = result->steady().stalls;
  EXPECT_EQ(stalls[static_cast<size_t>(RunCause::kPrefetch)],
            (SimulatedStall{1, kMs}));
  EXPECT_EQ(result->steady().idle_ns(), 0);
  EXPECT_EQ(result->steady().critical(), SimResource::kCompute);
  EXPECT_EQ(result->steady().busy(SimResource::kToDevice), 2 * kMs);
  EXPECT_EQ(result->steady().traffic.on(Tier::kHost, Tier::kDevice).bytes,
            2 * kChunk);
  EXPECT_EQ(result->steady().traffic.gathers, 2);
  EXPECT_EQ(result->peak[0], 2 * kChunk);
  EXPECT_EQ(result->peak[1], 2 * kChunk);
}

TEST(SimulatorTest, AStreamHidesItBehindTheStepBefore) {
  const Result<SimulationResult> two =
      Simulate(UseBoth(), TwoChunks(2), Link());
  ASSERT_THAT(two, IsOk());
  EXPECT_EQ(two->steady().ns(), 10 * kMs);
  // With one slot nothing can come ahead.
  const Result<SimulationResult> one =
      Simulate(UseBoth(), TwoChunks(1), Link());
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one->steady().ns(), 12 * kMs);
  EXPECT_EQ(one->peak[0], kChunk);
}

// Two ranks, each with its shards at home on the device. A gather takes one
// millisecond, a reduction ten.
SimulatedEngine TwoRanks() {
  SimulatedEngine engine = TwoChunks(4);
  engine.world = engine.param_ranks = 2;
  for (SimulatedChunk& chunk : engine.chunks) {
    for (const StateKind kind : {StateKind::kParam, StateKind::kGrad}) {
      chunk.states[static_cast<size_t>(kind)] = {kChunk / 2, kChunk / 2,
                                                 Tier::kDevice, Bytes(0)};
    }
  }
  engine.settled = {2 * kChunk, Bytes(0), Bytes(0)};
  return engine;
}

TierModel BetweenRanks() {
  TierModel machine;
  machine.all_gather = RingModel{500'000'000, 0};
  machine.reduce_scatter = RingModel{50'000'000, 0};
  return machine;
}

// The first chunk's gradient is computed and reduced; then the second chunk is
// used.
StepTrace ReduceAndUse() {
  const ChunkId first(0);
  const ChunkId second(1);
  StepTrace trace;
  trace.accesses = {
      {AccessKind::kUse, first},    {AccessKind::kGradOpen, first},
      {AccessKind::kUseEnd, first}, {AccessKind::kGradClose, first},
      {AccessKind::kUse, second},   {AccessKind::kUseEnd, second}};
  trace.compute_ns = {5 * kMs, 5 * kMs, 0, 0, 5 * kMs, 0};
  return trace;
}

// On a stream all is called at once: the gather is over long before the
// gradient is computed that the reduction before it waits for.
TEST(SimulatorTest, AGatherDoesNotWaitForAReductionThatWaits) {
  const Result<SimulationResult> result =
      Simulate(ReduceAndUse(), TwoRanks(), BetweenRanks());
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steps[0].ns(), (1 + 5 + 5 + 5) * kMs);
  EXPECT_EQ(result->steps[0].reduce_scatters, 1);
}

// A thread calls for the chunk when the reduction is under way, which has the
// way to the other ranks to itself.
TEST(SimulatorTest, WhatRanksExchangeSharesTheWayBetweenThem) {
  const Result<SimulationResult> result =
      Simulate(ReduceAndUse(), TwoRanks(), BetweenRanks(),
               {.steps = 1, .trainer = SimTrainer::kThread});
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steps[0].ns(), (1 + 5 + 5 + 10 + 1 + 5) * kMs);
  EXPECT_EQ(result->steps[0].idle_ns(), 0);
}

TEST(SimulatorTest, TheSameInputGivesTheSameResult) {
  const Result<SimulationResult> a = Simulate(UseBoth(), TwoChunks(2), Link());
  const Result<SimulationResult> b = Simulate(UseBoth(), TwoChunks(2), Link());
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_EQ(a->steps, b->steps);
}

TEST(SimulatorTest, RefusesWhatIsNoStepOfTheEngine) {
  EXPECT_THAT(Simulate(StepTrace(), TwoChunks(2), Link()),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("no access")));
  StepTrace trace = UseBoth();
  trace.accesses[0].chunk = trace.accesses[1].chunk = ChunkId(2);
  EXPECT_THAT(Simulate(trace, TwoChunks(2), Link()),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2 chunks")));
}

TEST(SimulatorTest, SaysWhichMomentHoldsMoreThanThereAreSlots) {
  StepTrace trace;
  for (const AccessKind kind : {AccessKind::kUse, AccessKind::kUseEnd}) {
    for (int c = 0; c < 2; ++c) trace.accesses.push_back({kind, ChunkId(c)});
  }
  EXPECT_THAT(Simulate(trace, TwoChunks(1), Link()),
              StatusIs(ErrorCode::kInfeasible, HasSubstr("moment 1: chunk 1")));
}

TEST(SimulatorTest, RanksShareWhatIsTheMachines) {
  TierModel machine = Link();
  machine.nvme_read = LinkModel{600, 5};
  machine.memory = RateModel{900};
  const TierModel share = ShareOfMachine(machine, 3);
  EXPECT_EQ(share.host_to_device, machine.host_to_device);
  EXPECT_EQ(share.nvme_read, (LinkModel{200, 5}));
  EXPECT_EQ(share.memory, RateModel{300});
}

}  // namespace
}  // namespace castor
