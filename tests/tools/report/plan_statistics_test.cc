// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "tools/report/plan_statistics.h"

#include "gtest/gtest.h"
#include "placement/run_event.h"

namespace castor {
namespace {

RunPlanInfo PlanOf(int32_t rank) {
  RunPlanInfo plan;
  plan.rank = rank;
  plan.step = 1;
  plan.in_seconds = true;
  plan.moments = 10;
  RunPlanClass slots;
  slots.slot_bytes = 4096;
  slots.slots = 3;
  slots.cost = 9;
  slots.lower_bound = 9;
  slots.optimal = slots.priced = true;
  slots.prices = {{2, 0.5}, {4, 1}, {6, 0.25}, {8, 0}};
  plan.classes = {slots};
  return plan;
}

TEST(PlanStatisticsTest, ASlotIsWorthItsPricesOverAllMoments) {
  RunRecord record;
  EXPECT_FALSE(ComputePlanStatistics(record));
  record.plans = {PlanOf(0), PlanOf(1)};
  const auto plan = ComputePlanStatistics(record);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->moments, 10);
  EXPECT_TRUE(plan->in_seconds);
  ASSERT_EQ(plan->slots.size(), 1u);
  const SlotWorth& worth = plan->slots[0];
  EXPECT_DOUBLE_EQ(*worth.one_more_saves, 0.5 * 2 + 1 * 2 + 0.25 * 2);
  EXPECT_DOUBLE_EQ(*worth.one_less_costs, 3.5);
  EXPECT_EQ(worth.dearest_first, 4);
  EXPECT_EQ(worth.dearest_last, 5);
}

TEST(PlanStatisticsTest, WhatIsNotProvedWidensTheAnswer) {
  RunRecord record;
  record.plans = {PlanOf(0)};
  RunPlanClass& slots = record.plans[0].classes[0];
  slots.optimal = false;
  slots.lower_bound = 8;
  SlotWorth worth = ComputePlanStatistics(record)->slots[0];
  EXPECT_DOUBLE_EQ(*worth.one_more_saves, 4.5);
  EXPECT_DOUBLE_EQ(*worth.one_less_costs, 2.5);
  // No slot saves more than there is, and none less than nothing.
  slots.prices = {{9, 100}};
  EXPECT_DOUBLE_EQ(*ComputePlanStatistics(record)->slots[0].one_more_saves, 9);
  slots.prices.clear();
  worth = ComputePlanStatistics(record)->slots[0];
  EXPECT_DOUBLE_EQ(*worth.one_less_costs, 0);
  EXPECT_EQ(worth.dearest_first, -1);
  slots.priced = false;
  EXPECT_FALSE(ComputePlanStatistics(record)->slots[0].one_more_saves);
}

}  // namespace
}  // namespace castor
