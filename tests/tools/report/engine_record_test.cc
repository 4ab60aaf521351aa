// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What the engine records is what it did: a recorded training is reported, and
// the numbers are compared with the engine's own counters.

#include <memory>

#include "collectives/zero_engine.h"
#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "offload/record/record_reader.h"
#include "offload/record/record_writer.h"
#include "placement/plan.h"
#include "placement/run_event.h"
#include "placement/tier_model.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/toys/toy_trainer.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

constexpr int kSteps = 4;

struct Recorded {
  ToyResult trained;  // as rank 0 saw it
  RunRecord record;
};

// Trains with little room on the device and the host.
Recorded TrainRecorded(int world, int stage,
                       const ZeroOptions& more = ZeroOptions()) {
  const TempDir dir;
  ThreadPool pool(2);
  Log quiet([](LogLevel, std::string_view) {});
  Recorded result;
  {
    auto recorder = FileRecorder::Create(dir.File("run.rec"));
    EXPECT_THAT(recorder, IsOk());
    ZeroOptions options;
    options.stage = stage;
    options.executor = &pool;
    options.log = &quiet;
    options.chunk_size = KiB(8);
    options.device_budget = stage == 3 ? KiB(192) : KiB(512);
    options.host_budget = KiB(256);
    options.nvme = {{dir.path(), std::nullopt}};
    options.recorder = recorder->get();
    options.policy = more.policy;
    options.machine = more.machine;
    ToyRun run;
    run.steps = kSteps;
    run.micro_batches = 2;
    result.trained =
        TrainToy(MakeToyModel(7, 24, 2000, DType::kF32), run, world, options);
    EXPECT_THAT(result.trained.status, IsOk());
    EXPECT_THAT((*recorder)->Close(), IsOk());
  }
  auto record = ReadRecord(dir.File("run.rec"));
  EXPECT_THAT(record, IsOk());
  result.record = std::move(record).value();
  EXPECT_THAT(result.record.completeness, IsOk());
  EXPECT_EQ(result.record.dropped, 0);
  return result;
}

class EngineRecordTest : public testing::TestWithParam<int> {};

TEST_P(EngineRecordTest, TheReportAgreesWithTheEnginesCounters) {
  const int stage = GetParam();
  const Recorded recorded = TrainRecorded(2, stage);
  const EngineStats& stats = recorded.trained.stats;

  const RunStatistics all = ComputeRunStatistics(recorded.record, {});
  EXPECT_EQ(all.world, 2);
  EXPECT_EQ(all.stage, stage);
  EXPECT_EQ(all.chunks, stats.chunks);
  EXPECT_EQ(all.complete_steps, kSteps);
  ASSERT_EQ(static_cast<int>(all.steps.size()), kSteps);
  EXPECT_GT(all.step_ns.min, 0);
  // Steps move the same bytes, from the second on, which follows the plan that
  // the first one made.
  for (size_t step = 2; step < all.steps.size(); ++step) {
    EXPECT_EQ(all.steps[step].link_bytes, all.steps[1].link_bytes) << step;
  }
  for (size_t i = 0; i < all.links.size(); ++i) {
    const bool in_steps = all.steps[1].link_bytes[i] > 0;
    EXPECT_EQ(all.steps[0].link_bytes[i] > 0, in_steps)
        << LinkName(all.links[i].link);
  }

  // Rank 0 alone, because the counters are its own.
  RunRecord own = recorded.record;
  std::erase_if(own.events, [](const RunEvent& e) { return e.rank != 0; });
  const RunStatistics rank = ComputeRunStatistics(own, {});
  int64_t moved[3][3] = {};
  for (const LinkStatistics& link : rank.links) {
    if (link.link.kind != RunEventKind::kTransfer) continue;
    moved[TierIndex(link.link.from)][TierIndex(link.link.to)] =
        link.bytes + link.outside_bytes;
  }
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) {
      EXPECT_EQ(moved[TierIndex(from)][TierIndex(to)],
                stats.moved[TierIndex(from)][TierIndex(to)].count())
          << TierName(from) << " -> " << TierName(to);
    }
  }
  for (const TierStatistics& tier : rank.tiers) {
    EXPECT_EQ(tier.peak_bytes, stats.tiers[TierIndex(tier.tier)].peak.count())
        << TierName(tier.tier);
    EXPECT_LE(tier.peak_bytes,
              tier.budget_bytes > 0 ? tier.budget_bytes : INT64_MAX);
  }
  int64_t stall_ns = 0;
  int64_t stalls = 0;
  for (const RunEvent& event : own.events) {
    if (event.kind != RunEventKind::kStall) continue;
    ++stalls;
    stall_ns += event.end_ns - event.begin_ns;
  }
  EXPECT_EQ(stalls, stats.stalls);
  EXPECT_EQ(stall_ns, stats.stall_ns);
  EXPECT_EQ(rank.divergences, stats.divergences);
}

TEST(EnginePlanRecordTest, PlansWithAProofSayWhatASlotIsWorth) {
  EXPECT_TRUE(TrainRecorded(1, 3).record.plans.empty())
      << "auto proves nothing";
  ZeroOptions options;
  options.policy = PlanPolicy::kPlanned;
  for (const bool measured : {false, true}) {
    if (measured) {
      options.machine.emplace();
      options.machine->host_to_device = LinkModel{1'000'000'000, 10'000};
      options.machine->nvme_read = LinkModel{200'000'000, 80'000};
      options.machine->all_gather = RingModel{3'000'000'000, 5'000};
    }
    const Recorded recorded = TrainRecorded(2, 3, options);
    ASSERT_EQ(recorded.record.plans.size(), 2u);
    RunPlanInfo other = recorded.record.plans[1];
    other.rank = 0;
    EXPECT_EQ(other, recorded.record.plans[0]) << "ranks plan alike";
    const auto plan = ComputeRunStatistics(recorded.record, {}).plan;
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->in_seconds, measured);
    EXPECT_EQ(plan->step, 1);
    const SlotWorth& worth = plan->slots[0];
    EXPECT_EQ(worth.slot_bytes, 8192);
    EXPECT_EQ(worth.slots, recorded.trained.stats.gathered_slots);
    EXPECT_TRUE(worth.optimal);
    EXPECT_GT(worth.cost, 0);
    // A step's copies, each of which costs one link at least and three at most,
    // or a millisecond at most.
    const double copies =
        static_cast<double>(recorded.trained.stats.gathers) / (kSteps);
    EXPECT_LT(worth.cost, copies * (measured ? 1e-3 : 3) * 1.5);
    // There is less room than chunks.
    EXPECT_GT(*worth.one_more_saves, 0);
    EXPECT_LE(*worth.one_more_saves, worth.cost);
    EXPECT_GE(worth.dearest_first, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, EngineRecordTest, testing::Values(0, 1, 2, 3),
                         [](const auto& info) {
                           return "Stage" + std::to_string(info.param);
                         });

}  // namespace
}  // namespace castor
