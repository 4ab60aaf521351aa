// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "collectives/dry/dry_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "chunk/param_spec.h"
#include "collectives/dry/simulation_result.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;
constexpr Bytes kChunk = KiB(1024);
// A chunk takes a millisecond.
constexpr int64_t kLinkRate = kChunk.count() * 1000;

// Two chunks of one frozen parameter each: a step has uses alone.
class DryRunTest : public testing::Test {
 protected:
  DryRunTest() {
    for (const char* const name : {"a", "b"}) {
      params_.push_back({name, {kChunk.count() / 4}, DType::kF32, false});
    }
    asked_.options.chunk_size = kChunk;
    asked_.options.device_budget = 2 * kChunk;
    asked_.options.host_budget = 8 * kChunk;
    asked_.options.prefetch.depth = 2;
    // What is at home on the device is not fetched.
    asked_.options.home_rules = {{.glob = "*", .tier = Tier::kHost}};
    asked_.machine.emplace().host_to_device = LinkModel{kLinkRate, 0};
    asked_.declared.held = {{{ParamId(0)}, {}}, {{ParamId(1)}, {}}};
  }

  Result<SimulationResult> Run(const StepTrace& step, size_t steps = 4) {
    const std::vector<const StepTrace*> all(steps, &step);
    asked_.params = params_;
    asked_.steps = all;
    return DryRun(asked_);
  }

  std::vector<ParamSpec> params_;
  DryRunRequest asked_;
};

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

TEST_F(DryRunTest, AThreadWaitsForTheFirstFetchesOnly) {
  asked_.trainer = SimTrainer::kThread;
  const Result<SimulationResult> result = Run(UseBoth());
  ASSERT_THAT(result, IsOk());
  // On demand, one after the other; a frozen chunk then stays.
  EXPECT_EQ(result->steps[0].ns(), 12 * kMs);
  EXPECT_EQ(result->steps[0].stalls[static_cast<size_t>(RunCause::kDemand)],
            (StallSum{2, 2 * kMs}));
  EXPECT_EQ(result->steps[0].traffic.on(Tier::kHost, Tier::kDevice),
            (LinkTraffic{2 * kChunk, 2}));
  EXPECT_EQ(result->steady().ns(), 10 * kMs);
  EXPECT_EQ(result->steady().idle_ns(), 0);
  EXPECT_EQ(result->steady().critical(), SimResource::kCompute);
  EXPECT_EQ(result->steady().traffic.gathers, 0);
  EXPECT_EQ(result->peak[0], 2 * kChunk);
  // Three slots for staging are taken from Seal on.
  EXPECT_EQ(result->peak[1], 5 * kChunk);
}

TEST_F(DryRunTest, LargerPiecesOfADriveChangeNoByteAndLittleTime) {
  const Bytes chunk = 96 * kChunk;
  for (ParamSpec& param : params_) param.shape = {chunk.count() / 4};
  asked_.options.chunk_size = chunk;
  asked_.options.device_budget = chunk;
  asked_.options.host_budget = chunk;
  asked_.options.nvme = {{"/drive", GiB(1)}};
  asked_.options.home_rules = {{.glob = "*", .tier = Tier::kNvme}};
  asked_.machine->host_to_device = LinkModel{20'000'000'000, 5'000};
  asked_.machine->nvme_read = LinkModel{2'000'000'000, 50'000};
  asked_.nvme_piece = MiB(1);
  const Result<SimulationResult> small = Run(UseBoth());
  ASSERT_THAT(small, IsOk());
  asked_.nvme_piece = MiB(16);
  const Result<SimulationResult> large = Run(UseBoth());
  ASSERT_THAT(large, IsOk());
  EXPECT_EQ(small->steady().traffic, large->steady().traffic);
  EXPECT_EQ(small->steady().traffic.on(Tier::kNvme, Tier::kHost).bytes,
            2 * chunk);
  // Each chunk is read in 50 ms.
  EXPECT_GT(small->steady().ns(), 90 * kMs);
  EXPECT_NEAR(static_cast<double>(large->steady().ns()) /
                  static_cast<double>(small->steady().ns()),
              1, 0.03);
}

TEST_F(DryRunTest, WithOneSlotEveryUseWaits) {
  asked_.options.device_budget = kChunk;
  asked_.options.prefetch.depth = 0;
  const Result<SimulationResult> result = Run(UseBoth());
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steady().ns(), 12 * kMs);
  EXPECT_EQ(result->steady().busy(SimResource::kToDevice), 2 * kMs);
  EXPECT_EQ(result->peak[0], kChunk);
  ASSERT_EQ(result->by_chunk.size(), 2u);
  for (const StepTraffic& chunk : result->by_chunk) {
    EXPECT_EQ(chunk.gathers, 1);
    EXPECT_EQ(chunk.on(Tier::kHost, Tier::kDevice), (LinkTraffic{kChunk, 1}));
  }
}

TEST_F(DryRunTest, WithoutAMachineNothingTakesTime) {
  asked_.machine.reset();
  asked_.options.device_budget = kChunk;
  const Result<SimulationResult> result = Run(UseBoth());
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steady().end_ns, 0);
  EXPECT_EQ(result->steady().traffic.on(Tier::kHost, Tier::kDevice),
            (LinkTraffic{2 * kChunk, 2}));
}

TEST_F(DryRunTest, TheSameInputGivesTheSameResult) {
  const Result<SimulationResult> a = Run(UseBoth());
  const Result<SimulationResult> b = Run(UseBoth());
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_EQ(a->steps, b->steps);
}

TEST_F(DryRunTest, RefusesWhatIsNoStepOfTheEngine) {
  EXPECT_THAT(Run(StepTrace()),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("no access")));
  StepTrace trace = UseBoth();
  trace.accesses[0].chunk = trace.accesses[1].chunk = ChunkId(2);
  EXPECT_THAT(Run(trace),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("2 chunks")));
}

TEST_F(DryRunTest, SaysWhichChunkFindsNoSlot) {
  asked_.options.device_budget = kChunk;
  StepTrace trace;
  for (const AccessKind kind : {AccessKind::kUse, AccessKind::kUseEnd}) {
    for (int c = 0; c < 2; ++c) trace.accesses.push_back({kind, ChunkId(c)});
  }
  EXPECT_THAT(Run(trace),
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("chunk 1 (b) needs a gathered slot")));
}

// What the first step left to the trainer's lane is over before the engine is.
TEST_F(DryRunTest, AStepThatFailsAfterAnotherEndsTheRun) {
  asked_.options.device_budget = kChunk;
  const StepTrace serves = UseBoth();
  StepTrace fails;
  for (const AccessKind kind : {AccessKind::kUse, AccessKind::kUseEnd}) {
    for (int c = 0; c < 2; ++c) fails.accesses.push_back({kind, ChunkId(c)});
  }
  const std::vector<const StepTrace*> steps = {&serves, &fails};
  asked_.params = params_;
  asked_.steps = steps;
  EXPECT_THAT(DryRun(asked_), StatusIs(ErrorCode::kInfeasible));
}

// The lease of the first use ends by itself, before or after the use does.
TEST_F(DryRunTest, LeasesThatEndByThemselvesMoveNothingElse) {
  const Result<SimulationResult> as_traced = Run(UseBoth());
  ASSERT_THAT(as_traced, IsOk());
  asked_.options.own_lease_ends = true;
  for (const int32_t before : {1, 2, 3, 4}) {
    StepTrace step = UseBoth();
    step.lease_ends = {{.use = 0, .before = before}};
    const Result<SimulationResult> own = Run(step);
    ASSERT_THAT(own, IsOk()) << before;
    EXPECT_EQ(own->steady().traffic, as_traced->steady().traffic) << before;
    EXPECT_EQ(own->steady().ns(), as_traced->steady().ns()) << before;
  }
}

// Two ranks, each with its shards at home on the device, of which one chunk is
// trained. A gather takes a millisecond, a reduction ten.
class DryRanksTest : public DryRunTest {
 protected:
  DryRanksTest() {
    params_[0].trainable = true;
    asked_.world = 2;
    asked_.options.home_rules.clear();
    asked_.options.device_budget = 16 * kChunk;
    asked_.options.optimizer.kind = OptimizerKind::kSgd;
    asked_.options.optimizer.beta1 = 0;
    asked_.machine.emplace();
    asked_.machine->all_gather = RingModel{kLinkRate / 2, 0};
    asked_.machine->reduce_scatter = RingModel{kLinkRate / 20, 0};
    asked_.declared.held = {{{ParamId(0), ParamId(1)}, {ParamId(0)}}};
  }

  // The first chunk's gradient is computed and reduced; then the second chunk
  // is used.
  static StepTrace ReduceAndUse() {
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
};

// On a stream all is called at once: the gather is over long before the
// gradient is computed that the reduction before it waits for.
TEST_F(DryRanksTest, AGatherDoesNotWaitForAReductionThatWaits) {
  const Result<SimulationResult> result = Run(ReduceAndUse());
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steps[0].ns(), (1 + 5 + 5 + 5) * kMs);
  EXPECT_EQ(result->steps[0].reduce_scatters, 1);
}

// A thread calls for the chunk when the reduction is under way, which has the
// way to the other ranks to itself.
TEST_F(DryRanksTest, WhatRanksExchangeSharesTheWayBetweenThem) {
  asked_.trainer = SimTrainer::kThread;
  const Result<SimulationResult> result = Run(ReduceAndUse(), 1);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->steps[0].ns(), (1 + 5 + 5 + 10 + 1 + 5) * kMs);
  EXPECT_EQ(result->steps[0].idle_ns(), 0);
  // The first chunk is gathered for the next step, too.
  EXPECT_EQ(result->steps[0].traffic.all_gather,
            (LinkTraffic{3 * kChunk / 2, 3}));
  EXPECT_EQ(result->steps[0].traffic.reduce_scatter,
            (LinkTraffic{kChunk / 2, 1}));
}

}  // namespace
}  // namespace castor
