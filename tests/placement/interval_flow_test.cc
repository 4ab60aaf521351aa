// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/interval_flow.h"

#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/interval_problem.h"
#include "tests/placement/random_intervals.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kUnit = int64_t{1} << 20;

TEST(IntervalFlowTest, NothingToDecideHasAnAnswer) {
  const IntervalSolution none = SolveIntervals({});
  EXPECT_THAT(none.kept, IsEmpty());
  EXPECT_EQ(none.bound, 0);
  const IntervalSolution slots = SolveIntervals({{0, 3, 1}, {}});
  EXPECT_THAT(slots.price, ElementsAre(0, 0, 0));
}

TEST(IntervalFlowTest, KeepsEverythingWhereThereIsRoom) {
  const IntervalProblem problem{{2, 3, 9}, {{0, 3, 4}, {1, 3, 4}, {2, 1, 4}}};
  const IntervalSolution solution = SolveIntervals(problem);
  EXPECT_THAT(solution.kept, Each(true));
  EXPECT_TRUE(solution.optimal());
  EXPECT_THAT(solution.price, Each(0));
}

TEST(IntervalFlowTest, KeepsNothingWhereThereIsNoSlot) {
  const IntervalProblem problem{{1, 0, 1}, {{0, 3, 4}, {1, 2, 9}, {2, 3, 1}}};
  const IntervalSolution solution = SolveIntervals(problem);
  EXPECT_THAT(solution.kept, ElementsAre(false, false, true));
  EXPECT_TRUE(solution.optimal());
}

TEST(IntervalFlowTest, KeepsTheDearOneAndPricesTheSlotBetweenTheTwo) {
  // A sweep over chunks of two tiers, back and forth, with one slot to spare.
  const IntervalProblem problem{{1, 1, 1, 1, 1, 1},
                                {{0, 6, 5}, {1, 5, 1}, {2, 4, 1}}};
  const IntervalSolution solution = SolveIntervals(problem);
  EXPECT_THAT(solution.kept, ElementsAre(true, false, false));
  int64_t price = 0;
  for (int64_t p : solution.price) price += p;
  EXPECT_GE(price, 1);
  EXPECT_LE(price, 5);
}

TEST(IntervalFlowTest, OnALineItGainsAsMuchAsTryingAllChoices) {
  std::mt19937_64 random(TestSeed(20261121));
  for (int round = 0; round < 3000; ++round) {
    const IntervalProblem problem =
        RandomIntervals(random, 1 + static_cast<int>(random() % 10),
                        1 + static_cast<int>(random() % 12), 1);
    const IntervalSolution solution = SolveIntervals(problem);
    ASSERT_THAT(VerifyIntervalSolution(problem, solution), IsOk())
        << "round " << round;
    ASSERT_TRUE(solution.optimal()) << "round " << round;
    ASSERT_EQ(solution.gain, MostGain(problem)) << "round " << round;
  }
}

TEST(IntervalFlowTest, OnALoopTheBestChoiceIsBetweenGainAndBound) {
  std::mt19937_64 random(TestSeed(20261122));
  int best = 0;
  int proved = 0;
  constexpr int kRounds = 2000;
  for (int round = 0; round < kRounds; ++round) {
    const int wraps = 1 + static_cast<int>(random() % 5);
    const IntervalProblem problem =
        RandomIntervals(random, wraps + static_cast<int>(random() % 5),
                        1 + static_cast<int>(random() % 10), kUnit, wraps);
    const IntervalSolution solution = SolveIntervals(problem);
    ASSERT_THAT(VerifyIntervalSolution(problem, solution), IsOk())
        << "round " << round;
    const int64_t most = MostGain(problem);
    ASSERT_LE(solution.gain, most) << "round " << round;
    ASSERT_GE(solution.bound, most) << "round " << round;
    best += solution.gain == most;
    proved += solution.optimal();
  }
  std::cout << "of " << kRounds << " loops, " << best
            << " were solved best and " << proved << " proved so" << std::endl;
  EXPECT_GT(best, kRounds * 98 / 100);
  EXPECT_GT(proved, kRounds * 90 / 100);
}

TEST(IntervalFlowTest, WhereALoopsProgramIsFractionalTheBoundSaysSo) {
  // Any two of the three meet; the program keeps half of each.
  const std::vector<KeepInterval> triangle = {
      {0, 2, 2 * kUnit}, {1, 3, 2 * kUnit}, {2, 1, 2 * kUnit}};
  IntervalProblem problem{{1, 1, 1}, triangle};
  const IntervalSolution even = SolveIntervals(problem);
  EXPECT_EQ(even.gain, 2 * kUnit);
  // Three halves, rounded to what choices can gain.
  EXPECT_EQ(even.bound, 2 * kUnit);
  problem.intervals[0].gain = 3 * kUnit;
  const IntervalSolution uneven = SolveIntervals(problem);
  EXPECT_EQ(uneven.gain, 3 * kUnit);
  EXPECT_EQ(uneven.bound, 3 * kUnit);
}

TEST(IntervalFlowTest, LargeProblemsAreProvedBestAndRepeatable) {
  std::mt19937_64 random(TestSeed(5));
  for (int round = 0; round < 20; ++round) {
    IntervalProblem problem = RandomIntervals(random, 400, 900, 1);
    for (int64_t& capacity : problem.capacity) capacity += 20;
    const IntervalSolution solution = SolveIntervals(problem);
    ASSERT_THAT(VerifyIntervalSolution(problem, solution), IsOk());
    ASSERT_TRUE(solution.optimal());
    ASSERT_EQ(solution, SolveIntervals(problem));
  }
}

TEST(IntervalFlowTest, LargeLoopsAreBoundedClosely) {
  std::mt19937_64 random(TestSeed(6));
  int proved = 0;
  for (int round = 0; round < 20; ++round) {
    IntervalProblem problem = RandomIntervals(random, 300, 400, kUnit, 80);
    for (int64_t& capacity : problem.capacity) capacity += 20;
    const IntervalSolution solution = SolveIntervals(problem);
    ASSERT_THAT(VerifyIntervalSolution(problem, solution), IsOk());
    ASSERT_EQ(solution, SolveIntervals(problem));
    ASSERT_LT(static_cast<double>(solution.bound - solution.gain),
              0.01 * static_cast<double>(solution.bound))
        << "round " << round;
    proved += solution.optimal();
  }
  std::cout << proved << " of 20 loops were proved best" << std::endl;
}

}  // namespace
}  // namespace castor
