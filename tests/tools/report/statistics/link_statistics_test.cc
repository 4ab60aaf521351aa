// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/report/made_run.h"
#include "tools/report/statistics/run_statistics.h"

namespace castor {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

std::vector<LinkStatistics> Compute(const MadeRun& run, StepRange steps = {}) {
  return ComputeLinkStatistics(run.record, FindStepWindows(run.record, steps),
                               steps, 4);
}

TEST(LinkStatisticsTest, BusyTimeIsTheUnionNotTheSum) {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100);
  run.Move(Tier::kHost, Tier::kDevice, 0, 20, 3'000);
  run.Move(Tier::kHost, Tier::kDevice, 10, 30, 5'000, RunCause::kDemand);
  run.Move(Tier::kHost, Tier::kDevice, 60, 70, 2'000);
  const auto links = Compute(run);
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(LinkName(links[0].link), "host -> device");
  EXPECT_EQ(links[0].count, 3);
  EXPECT_EQ(links[0].bytes, 10'000);
  EXPECT_EQ(links[0].busy_ns, 40'000);
  EXPECT_DOUBLE_EQ(links[0].busy_share, 0.4);
  EXPECT_DOUBLE_EQ(links[0].gigabytes_per_second(), 0.25);
  EXPECT_EQ(links[0].bytes_by_cause[static_cast<size_t>(RunCause::kDemand)],
            5'000);
  EXPECT_EQ(links[0].bytes_by_cause[static_cast<size_t>(RunCause::kPrefetch)],
            5'000);
  EXPECT_THAT(links[0].over_step,
              ElementsAre(DoubleNear(1, 1e-9), DoubleNear(0.2, 1e-9),
                          DoubleNear(0.4, 1e-9), DoubleNear(0, 1e-9)));
}

TEST(LinkStatisticsTest, RanksHaveLinksOfTheirOwn) {
  MadeRun run(2);
  for (int32_t rank = 0; rank < 2; ++rank) {
    run.At(rank, 1).Step(0, 100);
    run.Move(Tier::kNvme, Tier::kHost, 0, 50, 100'000);
  }
  const auto links = Compute(run);
  ASSERT_EQ(links.size(), 1u);
  EXPECT_EQ(links[0].bytes, 200'000);
  EXPECT_EQ(links[0].busy_ns, 100'000);
  EXPECT_DOUBLE_EQ(links[0].gigabytes_per_second(), 2);
  EXPECT_DOUBLE_EQ(links[0].busy_share, 0.5);
}

TEST(LinkStatisticsTest, BytesCountByTheStepTheyMovedFor) {
  MadeRun run(1);
  run.At(0, 0).Move(Tier::kHost, Tier::kNvme, 0, 10, 7);
  run.At(0, 1).Step(10, 20).Gather(0, 12, 14, 11);
  run.At(0, 2).Gather(1, 18, 22, 13).Step(20, 30);
  const auto all = Compute(run);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(LinkName(all[0].link), "host -> nvme");
  EXPECT_EQ(all[0].bytes, 0);
  EXPECT_EQ(all[0].outside_bytes, 7);
  EXPECT_EQ(LinkName(all[1].link), "all-gather");
  EXPECT_EQ(all[1].bytes, 24);
  const auto second = Compute(run, {2, 2});
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[1].bytes, 13);
  EXPECT_EQ(second[1].busy_ns, 4'000);
  // Of its four microseconds, two lie in step 2.
  EXPECT_DOUBLE_EQ(second[1].busy_share, 0.2);
}

TEST(LinkStatisticsTest, LinksComeInAFixedOrder) {
  MadeRun run(1);
  run.At(0, 1).Step(0, 100).Gather(0, 0, 1, 1);
  run.record.events.push_back(run.record.events.back());
  run.record.events.back().kind = RunEventKind::kReduceScatter;
  for (const Tier from : kAllTiers) {
    for (const Tier to : kAllTiers) run.Move(to, from, 0, 1, 1);
  }
  std::vector<std::string> names;
  for (const LinkStatistics& link : Compute(run)) {
    names.push_back(LinkName(link.link));
  }
  EXPECT_THAT(names,
              ElementsAre("host -> device", "device -> host", "nvme -> host",
                          "host -> nvme", "nvme -> device", "device -> nvme",
                          "device -> device", "host -> host", "nvme -> nvme",
                          "all-gather", "reduce-scatter"));
}

}  // namespace
}  // namespace castor
