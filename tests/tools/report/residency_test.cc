// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/residency.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/offload/record/random_events.h"
#include "tests/support/test_seed.h"
#include "tests/tools/report/made_run.h"

namespace castor {
namespace {

TEST(ResidencyTest, LastsFromGatherToRelease) {
  MadeRun run(2);
  // Recorded in any order.
  run.At(0, 1).Release(1, 50, RunCause::kStale).Gather(1, 10, 20, 8);
  run.Gather(1, 70, 75, 8, RunCause::kDemand).Use(2, 80, 200);
  run.At(1, 1).Gather(1, 30, 40, 8).Release(1, 60);
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].rank, 0);
  EXPECT_EQ(found[0].time, (Interval{10'000, 50'000}));
  EXPECT_EQ(found[0].fetched, RunCause::kPrefetch);
  EXPECT_EQ(found[0].released, RunCause::kStale);
  // Still there when the record ends.
  EXPECT_EQ(found[1].time, (Interval{70'000, 200'000}));
  EXPECT_EQ(found[1].released, RunCause::kNone);
  EXPECT_EQ(found[2].rank, 1);
  EXPECT_EQ(found[2].time, (Interval{30'000, 60'000}));
}

TEST(ResidencyTest, ALostReleaseEndsAtTheNextGather) {
  MadeRun run(1);
  run.At(0, 1).Gather(0, 10, 20, 8).Gather(0, 40, 50, 8).Release(0, 60);
  run.Release(0, 65);
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].time, (Interval{10'000, 40'000}));
  EXPECT_EQ(found[1].time, (Interval{40'000, 60'000}));
}

TEST(ResidencyTest, BeginsWithTheShardThatIsGatheredAround) {
  MadeRun run(1);
  run.At(0, 1).Move(Tier::kHost, Tier::kDevice, 5, 8, 4, RunCause::kDemand);
  run.Gather(0, 10, 20, 8, RunCause::kDemand).Release(0, 30);
  // A replicated chunk is only copied.
  run.At(0, 2).Move(Tier::kHost, Tier::kDevice, 40, 45, 4).Release(0, 60);
  // These fill no slot with parameters.
  run.Move(Tier::kHost, Tier::kDevice, 70, 71, 4, RunCause::kRefresh);
  run.Move(Tier::kDevice, Tier::kHost, 72, 73, 4);
  run.Move(Tier::kHost, Tier::kDevice, 74, 75, 4);
  run.record.events.back().state = StateKind::kGrad;
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].time, (Interval{5'000, 30'000}));
  EXPECT_EQ(found[0].fetched, RunCause::kDemand);
  EXPECT_EQ(found[1].time, (Interval{40'000, 60'000}));
  EXPECT_EQ(found[1].step, 2);
}

TEST(ResidencyTest, ReleasedAndGatheredAtOneTimeIsTwoStays) {
  MadeRun run(1);
  run.At(0, 1).Gather(0, 10, 20, 8).Gather(0, 30, 40, 8).Release(0, 30);
  run.Release(0, 50);
  const auto found = FindResidencies(run.record.events);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].time, (Interval{10'000, 30'000}));
  EXPECT_EQ(found[1].time, (Interval{30'000, 50'000}));
}

TEST(ResidencyTest, StaysOfOneChunkNeverOverlap) {
  std::mt19937_64 random(TestSeed(33));
  for (int round = 0; round < 200; ++round) {
    const auto events = RandomEvents(random, 400);
    const auto found = FindResidencies(events);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_GE(found[i].time.length(), 0);
      if (i == 0 || found[i - 1].rank != found[i].rank ||
          found[i - 1].chunk != found[i].chunk) {
        continue;
      }
      ASSERT_LE(found[i - 1].time.end, found[i].time.begin);
    }
  }
}

}  // namespace
}  // namespace castor
