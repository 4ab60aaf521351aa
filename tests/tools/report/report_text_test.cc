// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/report_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"
#include "tools/report/strip.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

// Three steps on two ranks.
MadeRun ThreeSteps() {
  MadeRun run(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    run.At(rank, 0).Move(Tier::kDevice, Tier::kHost, -50, -10, 1 << 20);
    run.TierBytes(Tier::kDevice, -50, 10).TierBytes(Tier::kHost, -10, 5'000);
    for (int32_t step = 1; step <= 3; ++step) {
      const int64_t begin = 1000 * step;
      run.At(rank, step).Step(begin, begin + 900 + 10 * step);
      run.TierBytes(Tier::kDevice, begin, 25);
      run.TierBytes(Tier::kDevice, begin + 450, 75);
      run.TierBytes(Tier::kDevice, begin + 700, 50);
      run.Move(Tier::kHost, Tier::kDevice, begin, begin + 300, 1 << 20,
               RunCause::kPrefetch, 1);
      run.Gather(1, begin + 300, begin + 400, 1 << 20);
      run.Stall(RunCause::kPrefetch, 1, begin + 250, begin + 400 + 20 * rank);
      run.Release(1, begin + 800).Update(1, begin + 850, begin + 900);
    }
  }
  run.At(1, 1).Stall(RunCause::kDemand, 3, 1500, 1600);
  return run;
}

std::string Text(const MadeRun& run, const TextOptions& options = {}) {
  return ReportText("run.rec", ComputeRunStatistics(run.record, {}), options);
}

TEST(ReportTextTest, ShowsARunOnOneScreen) {
  EXPECT_EQ("\n" + Text(ThreeSteps()), R"(
run.rec: 2 ranks, ZeRO stage 3, 4 chunks of up to 1000 B, 61 events, 0 dropped, 0 B

Steps 1-3                 min     median        max
  time                 910 us     920 us     930 us  (step 3)
  stalled              170 us     170 us     270 us  (step 1)
  host -> device        2 MiB      2 MiB      2 MiB
  all-gather            2 MiB      2 MiB      2 MiB

Time in steps: computing 80.8 %, stalled 19.2 %; optimizer at work 5.4 %; moves hidden behind computing 62.5 %
Chunks made whole on a device: 6 times, 100.0 % ahead of use; steps that departed from the recorded one: 0
Ranks: stalled most, rank 1: 22.1 %; least, rank 0: 16.3 %

Tiers over a step (full: the budget, or else the peak)
  device          |---------------=########++++++++|  peak 75 B of 100 B, 75.0 %
  host            |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@|  peak 4.88 KiB, no budget given

Links over a step (full: busy)                            bytes     busy     GB/s
  host -> device  |@@@@@@@@@@=                     |      6 MiB   32.6 %     3.50
  device -> host  |                                |        0 B    0.0 %     0.00
  all-gather      |          +@@@.                 |      6 MiB   10.9 %    10.49
  before the first step or after the last, not counted above: 2 MiB

Stalls, waited for      time  of steps   count  worst chunks
  prefetch            960 us    17.4 %       6  1 (960 us)
      chunk 1: "layer.1"
      all-gather was busy 62 % of that time: it waits for the slowest rank too; try a larger --chunk, or more work per step (--batch)
  demand              100 us     1.8 %       1  3 (100 us)
      chunk 3: "layer.3"
      mostly in step 1, which records what later steps fetch ahead: look at them with --steps 2-3
)");
}

TEST(ReportTextTest, SumsPinnedArenasOverRanks) {
  MadeRun run = ThreeSteps();
  EXPECT_THAT(Text(run), Not(HasSubstr("Pinned arenas")));
  run.At(0, 1).Arena("staging", 1 << 20).Arena("checkpoints", 1 << 24);
  run.At(1, 1).Arena("staging", 1 << 20);
  EXPECT_THAT(Text(run), HasSubstr(R"(
Pinned arenas            peak     budget       live     active   resident   retained  refused
  checkpoints           8 MiB     16 MiB      4 MiB      4 MiB      8 MiB        0 B        1  jemalloc 5.3.0, 1 rank
  staging               1 MiB      2 MiB    512 KiB    514 KiB      1 MiB        0 B        2  jemalloc 5.3.0, 2 ranks, not locked

Links)"));
}

TEST(ReportTextTest, SaysWhatASlotIsWorthWhereThePlanIsPriced) {
  MadeRun run = ThreeSteps();
  EXPECT_THAT(Text(run), Not(HasSubstr("Plan after")));
  RunPlanInfo plan;
  plan.step = 1;
  plan.in_seconds = true;
  plan.moments = 10;
  plan.classes.resize(2);
  plan.classes[0] = {
      4096, 3, 0, 0, 9, 9, true, true, {{4, 0.5}, {6, 0.25}, {8, 0}}};
  plan.classes[1] = {512, 1, 0, 0, 0.002, 0.001, false, false, {}};
  run.record.plans = {plan};
  EXPECT_THAT(Text(run), HasSubstr(R"(
Plan after step 1: what is fetched in a step, by the time that measured links take
  3 slots of 4 KiB: 9.00 s, proved the least; one more saves at most 1.50 s, one less costs at least 1.50 s; dearest at moments 4 to 5 of 10
  1 slot of 512 B: 2.00 ms, at least 1.00 ms whatever the plan
)"));
  run.record.plans[0].classes[0].shard_slots = 2;
  run.record.plans[0].classes[0].shards = 8;
  EXPECT_THAT(Text(run),
              HasSubstr("proved the least; 2 of them hold copies of up to 8 "
                        "shards; one more saves"));
  run.record.plans[0].classes[0].shard_slots = 0;
  run.record.plans[0].classes[0].prices.clear();
  EXPECT_THAT(Text(run), HasSubstr("9.00 s, proved the least; one more would "
                                   "save nothing\n"));
  run.record.plans = {plan};
  run.record.plans[0].in_seconds = false;
  EXPECT_THAT(Text(run), HasSubstr("by the links that it crosses\n  3 slots of "
                                   "4 KiB: 9, proved the least; one more saves "
                                   "at most 1.5,"));
}

TEST(ReportTextTest, DrawsWithBlocksWhereTheyAreShown) {
  const std::string text = Text(ThreeSteps(), {StripInk::kBlocks});
  EXPECT_THAT(text, HasSubstr("\u2588\u2588\u2588"));
  EXPECT_THAT(text, Not(HasSubstr("@")));
}

TEST(ReportTextTest, SaysWhatIsMissing) {
  EXPECT_THAT(Text(MadeRun(1)), HasSubstr("No step of a run"));
  MadeRun nobody(0);
  EXPECT_EQ(Text(nobody),
            "run.rec: 0 events, 0 dropped, 0 B\n\n"
            "No step of a run is in the record.\n");
  MadeRun cut(1);
  cut.Cut().At(0, 7).Use(0, 10, 20);
  EXPECT_THAT(Text(cut), HasSubstr("Step 7            none of 1 is complete"));
  EXPECT_THAT(Text(cut), HasSubstr("No stalls."));
  cut.At(0, 6).Step(0, 10);
  EXPECT_THAT(Text(cut), HasSubstr("1 of 2 steps are complete"));
}

TEST(ReportTextTest, NamesCannotTalkToTheTerminal) {
  MadeRun run = ThreeSteps();
  run.record.ranks[0].chunks[1].params = "\x1b[2J" + std::string(500, 'x');
  run.Arena("\x1b[2J", 1 << 20);
  const std::string text = Text(run);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr(std::string(100, 'x'))));
}

}  // namespace
}  // namespace castor
