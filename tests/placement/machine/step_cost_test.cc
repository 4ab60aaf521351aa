// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/machine/step_cost.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "chunk/base/units.h"
#include "chunk/search/pareto_front.h"
#include "gtest/gtest.h"
#include "placement/tier_model.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

// 1 GB/s and 1 ms in one direction, half and double that in the other; rings of
// 2 GB/s and 3 ms.
const TierModel kMachine = {
    .host_to_device = LinkModel{1'000'000'000, 1'000'000},
    .device_to_host = LinkModel{500'000'000, 2'000'000},
    .nvme_read = {},
    .nvme_write = {},
    .all_gather = RingModel{2'000'000'000, 3'000'000},
    .reduce_scatter = RingModel{2'000'000'000, 3'000'000}};

// Ten chunks of 100 MB.
const StepLoad kLoad = {10, Bytes(1'000'000'000), true};

TEST(StepCostTest, CountsTwoFetchesAndOneGradientOfEachChunk) {
  const StepCost cost = ModelStep(kMachine, kLoad, 4);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kHostToDevice), 20 * 1e-3 + 0.5);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kDeviceToHost), 10 * 2e-3 + 0.5);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kAllGather), 20 * 3 * 3e-3 + 0.75);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kReduceScatter), 10 * 3 * 3e-3 + 0.375);
  EXPECT_DOUBLE_EQ(*cost.overlapped_seconds(), 0.93);
  EXPECT_DOUBLE_EQ(*cost.serial_seconds(), 0.52 + 0.52 + 0.93 + 0.465);
}

TEST(StepCostTest, OneRankMovesWholeChunksAndGathersNothing) {
  const StepCost cost = ModelStep(kMachine, kLoad, 1);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kHostToDevice), 2.02);
  EXPECT_DOUBLE_EQ(*cost.on(StepLink::kDeviceToHost), 2.02);
  EXPECT_EQ(cost.on(StepLink::kAllGather), 0.0);
  EXPECT_EQ(cost.on(StepLink::kReduceScatter), 0.0);
}

TEST(StepCostTest, FrozenParametersHaveNoGradients) {
  const StepLoad frozen = {10, Bytes(1'000'000'000), false};
  const StepCost cost = ModelStep(kMachine, frozen, 4);
  EXPECT_EQ(cost.on(StepLink::kHostToDevice),
            ModelStep(kMachine, kLoad, 4).on(StepLink::kHostToDevice));
  EXPECT_EQ(cost.on(StepLink::kDeviceToHost), 0.0);
  EXPECT_EQ(cost.on(StepLink::kReduceScatter), 0.0);
}

TEST(StepCostTest, GivesNoNumberWhereASpeedIsUnknown) {
  TierModel machine = kMachine;
  machine.device_to_host.reset();
  const StepCost cost = ModelStep(machine, kLoad, 4);
  EXPECT_TRUE(cost.on(StepLink::kHostToDevice).has_value());
  EXPECT_FALSE(cost.on(StepLink::kDeviceToHost).has_value());
  EXPECT_FALSE(cost.overlapped_seconds().has_value());
  EXPECT_FALSE(cost.serial_seconds().has_value());
  // What moves nothing needs no speed.
  const StepLoad frozen = {10, Bytes(1'000'000'000), false};
  EXPECT_TRUE(ModelStep(machine, frozen, 4).serial_seconds().has_value());
  machine.all_gather.reset();
  machine.reduce_scatter.reset();
  EXPECT_FALSE(ModelStep(machine, frozen, 4).serial_seconds().has_value());
  EXPECT_TRUE(ModelStep(machine, frozen, 1).serial_seconds().has_value());
}

TEST(StepCostTest, AddsGroupsLinkByLink) {
  const StepLoad other = {3, Bytes(8'192), true};
  const StepCost sum =
      ModelStep(kMachine, kLoad, 4) + ModelStep(kMachine, other, 4);
  const StepCost together = ModelStep(
      kMachine, {kLoad.chunks + 3, kLoad.allocated + Bytes(8'192), true}, 4);
  for (size_t i = 0; i < kStepLinks; ++i) {
    EXPECT_DOUBLE_EQ(*sum.link_seconds[i], *together.link_seconds[i]);
  }
  TierModel machine = kMachine;
  machine.all_gather.reset();
  EXPECT_FALSE((ModelStep(machine, kLoad, 4) + sum)
                   .on(StepLink::kAllGather)
                   .has_value());
}

TEST(StepCostTest, NamesItsLinksAsTheMachineFileDoes) {
  EXPECT_EQ(StepLinkName(StepLink::kHostToDevice), "host_to_device");
  EXPECT_EQ(StepLinkName(StepLink::kDeviceToHost), "device_to_host");
  EXPECT_EQ(StepLinkName(StepLink::kAllGather), "all_gather");
  EXPECT_EQ(StepLinkName(StepLink::kReduceScatter), "reduce_scatter");
}

// A choice of chunk sizes and every cost of it: what it allocates, chunks,
// gathered bytes, and the modelled time on each link.
struct Choice {
  StepLoad load;
  int64_t gathered = 0;
  StepCost cost;
};

// Whether `a` is at most as costly as `b` in every respect, times included, and
// less in one.
bool Dominates(const Choice& a, const Choice& b) {
  bool less = false;
  const auto at_most = [&less](auto mine, auto other) {
    if (mine > other) return false;
    less = less || mine < other;
    return true;
  };
  bool all = at_most(a.load.allocated, b.load.allocated) &&
             at_most(a.load.chunks, b.load.chunks) &&
             at_most(a.gathered, b.gathered);
  for (size_t i = 0; all && i < kStepLinks; ++i) {
    all = at_most(*a.cost.link_seconds[i], *b.cost.link_seconds[i]);
  }
  return all && less;
}

bool SameCounts(const Choice& a, const Choice& b) {
  return a.load.allocated == b.load.allocated &&
         a.load.chunks == b.load.chunks && a.gathered == b.gathered;
}

class ParetoTest : public testing::Test {
 protected:
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(limit));
  }
  LinkModel Link() { return {1 + Below(1'000'000'000), Below(1'000'000)}; }
  RingModel Ring() { return {1 + Below(1'000'000'000), Below(1'000'000)}; }

  // Few distinct numbers, so that ties and domination are common.
  std::vector<Choice> Choices(int world) {
    TierModel machine;
    machine.host_to_device = Link();
    machine.device_to_host = Link();
    machine.all_gather = Ring();
    machine.reduce_scatter = Ring();
    std::vector<Choice> choices(static_cast<size_t>(1 + Below(24)));
    for (Choice& choice : choices) {
      choice.load = {1 + Below(6), KiB(64) * (1 + Below(6)), true};
      choice.gathered = 1 + Below(6);
      choice.cost = ModelStep(machine, choice.load, world);
    }
    return choices;
  }

  std::mt19937_64 random_{TestSeed(2)};
};

// The claim of step_cost.h, on random choices and machines.
TEST_F(ParetoTest, ModelledTimesAddNothingToTheFront) {
  int dominated = 0;
  for (int round = 0; round < 3000; ++round) {
    const int world = 1 << Below(4);
    const std::vector<Choice> choices = Choices(world);
    std::vector<ParetoPoint> points;
    for (const Choice& choice : choices) {
      points.push_back(
          {choice.load.allocated.count(), choice.load.chunks, choice.gathered});
    }
    const std::vector<size_t> front = ParetoFront(points);
    std::vector<size_t> with_times;
    for (size_t i = 0; i < choices.size(); ++i) {
      bool kept = true;
      for (size_t j = 0; j < choices.size(); ++j) {
        if (Dominates(choices[j], choices[i])) kept = false;
        if (j < i && SameCounts(choices[j], choices[i])) kept = false;
      }
      if (kept) with_times.push_back(i);
    }
    ASSERT_EQ(front, with_times) << "round " << round;
    dominated += static_cast<int>(choices.size() - front.size());

    // The fastest of those that need no more gathered bytes is on the front.
    for (const Choice& choice : choices) {
      double fastest = std::numeric_limits<double>::infinity();
      for (const size_t i : front) {
        if (choices[i].gathered > choice.gathered) continue;
        fastest = std::min(fastest, *choices[i].cost.serial_seconds());
      }
      ASSERT_LE(fastest, *choice.cost.serial_seconds()) << "round " << round;
    }
  }
  EXPECT_GT(dominated, 3000);  // most choices are on no front
}

}  // namespace
}  // namespace castor
