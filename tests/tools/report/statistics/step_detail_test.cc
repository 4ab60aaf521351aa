// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/statistics/step_detail.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"
#include "tests/tools/report/made_run.h"
#include "tools/report/statistics/run_setup.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using testing::ElementsAre;
using enum ChunkActivity;

using Span = std::tuple<int32_t, ChunkActivity, int64_t, int64_t>;

std::vector<Span> SpansOf(const RankDetail& rank, int32_t chunk) {
  std::vector<Span> spans;
  for (const ChunkSpan& span : rank.spans) {
    if (span.chunk != chunk) continue;
    spans.emplace_back(span.chunk, span.activity, span.time.begin,
                       span.time.end);
  }
  return spans;
}

// One rank, one step of 1000 us, from 100 us on. Times of pictures are from
// its begin.
MadeRun OneStep() {
  MadeRun run(1);
  run.TierBytes(Tier::kDevice, 0, 60);
  run.Step(100, 1100);
  run.Move(Tier::kHost, Tier::kDevice, 150, 250, 500, RunCause::kPrefetch, 1)
      .Gather(1, 250, 300, 500)
      .Use(1, 400, 500)
      .Use(1, 700, 800)
      .Release(1, 900);
  run.Stall(RunCause::kDemand, 2, 520, 560);
  return run;
}

TEST(StepDetailTest, ACopyComesWaitsIsUsedAndKept) {
  const StepDetail detail = ComputeStepDetail(OneStep().record, {}, 1);
  ASSERT_EQ(detail.ranks.size(), 1u);
  const RankDetail& rank = detail.ranks[0];
  EXPECT_EQ(rank.time, (Interval{0, 1'000'000}));
  EXPECT_THAT(SpansOf(rank, 1), ElementsAre(Span{1, kComing, 50'000, 200'000},
                                            Span{1, kReady, 200'000, 300'000},
                                            Span{1, kUsed, 300'000, 400'000},
                                            Span{1, kUsed, 600'000, 700'000},
                                            Span{1, kKept, 400'000, 600'000},
                                            Span{1, kKept, 700'000, 800'000}));
  EXPECT_THAT(SpansOf(rank, 2),
              ElementsAre(Span{2, kWaited, 420'000, 460'000}));
  ASSERT_EQ(rank.stalls.size(), 1u);
  EXPECT_EQ(rank.stalls[0].chunk, 2);
  ASSERT_EQ(rank.moves.size(), 2u);
  EXPECT_EQ(LinkName(detail.links[rank.moves[0].link]), "host -> device");
  EXPECT_EQ(rank.moves[0].bytes, 500);
}

TEST(StepDetailTest, MemoryIsSplitByKind) {
  MadeRun run = OneStep();
  RunHomesInfo homes;
  homes.step = 1;
  homes.budget_bytes[0] = 5000;
  homes.home_bytes[0][0] = 40;
  run.record.homes.push_back(homes);
  // A whole chunk has 1000 bytes; the rest of the level is something else.
  run.TierBytes(Tier::kDevice, 160, 1100);
  const StepDetail detail = ComputeStepDetail(run.record, {}, 1);
  const TierCourse& device = detail.ranks[0].tiers.at(0);
  EXPECT_EQ(device.tier, Tier::kDevice);
  EXPECT_EQ(device.budget_bytes, 5000);
  EXPECT_EQ(device.home_bytes[0], 40);
  const auto at = [&](int64_t ns) {
    const auto next =
        std::upper_bound(device.times.begin(), device.times.end(), ns);
    return device.bytes[static_cast<size_t>(next - device.times.begin()) - 1];
  };
  EXPECT_THAT(at(10'000), ElementsAre(0, 0, 0, 20));
  EXPECT_THAT(at(100'000), ElementsAre(0, 1000, 0, 60));
  EXPECT_THAT(at(350'000), ElementsAre(1000, 0, 0, 60));
  EXPECT_THAT(at(900'000), ElementsAre(0, 0, 0, 1060));
}

TEST(StepDetailTest, PhasesFollowTheTrace) {
  MadeRun run(1);
  run.Step(0, 1000);
  for (const auto& [chunk, begin] : std::vector<std::pair<int32_t, int64_t>>{
           {0, 100}, {1, 200}, {1, 400}, {0, 600}}) {
    run.Use(chunk, begin, begin + 100);
    run.record.events.back().moment = 1;
  }
  using enum AccessKind;
  TraceFile trace;
  trace.chunks.resize(2);
  const auto access = [&](AccessKind kind, int32_t chunk) {
    trace.step.accesses.push_back({kind, ChunkId(chunk)});
  };
  for (const int32_t chunk : {0, 1}) {
    access(kUse, chunk);
    access(kUseEnd, chunk);
  }
  for (const int32_t chunk : {1, 0}) {
    access(kUse, chunk);
    access(kGradOpen, chunk);
    access(kGradClose, chunk);
    access(kUseEnd, chunk);
  }
  RunSetup setup;
  setup.traces[0] = trace;
  const StepDetail detail = ComputeStepDetail(run.record, setup, 1);
  std::vector<std::tuple<std::string, int64_t, int64_t>> phases;
  for (const StepPhase& phase : detail.ranks.at(0).phases) {
    phases.emplace_back(phase.name, phase.time.begin, phase.time.end);
  }
  EXPECT_THAT(phases, ElementsAre(std::tuple("forward", 0, 400'000),
                                  std::tuple("backward", 400'000, 700'000),
                                  std::tuple("update", 700'000, 1'000'000)));
}

TEST(StepDetailTest, AStepThatIsNotWholeHasNone) {
  EXPECT_EQ(ComputeStepDetail(OneStep().record, {}, 2).step, 0);
  EXPECT_TRUE(StepDetailJson(ComputeStepDetail(RunRecord(), {}, 1)).is_null());
  EXPECT_EQ(TypicalStep(RunStatistics(), {}), 0);
}

TEST(StepDetailTest, TheTypicalStepIsTheMedianOfSteadyOnes) {
  MadeRun run(1);
  int64_t begin = 0;
  // The first two make the trace and the plan.
  for (const int64_t length : {10, 11, 300, 100, 200}) {
    run.At(0, static_cast<int32_t>(run.record.events.size()) + 1);
    run.Step(begin, begin + length);
    begin += length;
  }
  const RunStatistics statistics = ComputeRunStatistics(run.record, {});
  EXPECT_EQ(TypicalStep(statistics, {}), 5);
  EXPECT_EQ(TypicalStep(ComputeRunStatistics(run.record, {1, 2}), {1, 2}), 1);
}

TEST(StepDetailTest, ManyChunksStaySmall) {
  constexpr int kChunks = 1000;
  MadeRun run(1, kChunks);
  run.Step(0, 40'000'000);
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    for (int pass = 0; pass < TestRounds(20); ++pass) {
      const int64_t begin = 2'000'000 * pass + 2'000 * chunk;
      run.Move(Tier::kHost, Tier::kDevice, begin, begin + 300, 1000,
               RunCause::kPrefetch, chunk)
          .Use(chunk, begin + 400, begin + 900)
          .Release(chunk, begin + 1000);
    }
  }
  const StepDetail detail = ComputeStepDetail(run.record, {}, 1);
  EXPECT_FALSE(detail.ranks.at(0).spans.empty());
  EXPECT_LT(StepDetailJson(detail).Dump().size(), 2'000'000u);
}

TEST(StepDetailTest, BearsAnyEvents) {
  std::mt19937_64 random(TestSeed(20261126));
  for (int round = 0; round < 200; ++round) {
    RunRecord record;
    record.ranks.push_back(SomeRank(0, 8, 3));
    record.events = RandomEvents(random, random() % 200);
    const RunStatistics run = ComputeRunStatistics(record, {});
    const int32_t step = TypicalStep(run, {});
    const StepDetail detail = ComputeStepDetail(record, {}, step);
    for (const RankDetail& rank : detail.ranks) {
      for (const ChunkSpan& span : rank.spans) {
        EXPECT_LE(rank.time.begin, span.time.begin);
        EXPECT_LE(span.time.end, rank.time.end);
      }
      for (const TierCourse& course : rank.tiers) {
        EXPECT_EQ(course.times.size(), course.bytes.size());
        EXPECT_TRUE(std::is_sorted(course.times.begin(), course.times.end()));
      }
    }
    EXPECT_EQ(ChunksJson(record, {}, 0, step).size(), 3u);
    StepDetailJson(detail).Dump();
  }
}

}  // namespace
}  // namespace castor
