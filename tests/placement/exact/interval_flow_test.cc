// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/interval_flow.h"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/exact/interval_problem.h"
#include "placement/exact/interval_windows.h"
#include "tests/placement/exact/random_intervals.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
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

// A sweep forth and back, over and over, with slots for some of it: what a step
// of many micro-batches keeps.
IntervalProblem Sweeps(int sweeps, int chunks, bool loop) {
  IntervalProblem problem;
  const int32_t moments = sweeps * 2 * chunks;
  problem.capacity.assign(static_cast<size_t>(moments), chunks / 3);
  for (int32_t sweep = 0; sweep < sweeps; ++sweep) {
    for (int32_t chunk = 0; chunk < chunks; ++chunk) {
      const int32_t forth = sweep * 2 * chunks + chunk;
      const int32_t back = (sweep + 1) * 2 * chunks - 1 - chunk;
      const int32_t next = (sweep + 1) * 2 * chunks + chunk;
      const int64_t gain = kUnit * (chunk % 4 == 0 ? 5 : 1);
      if (forth + 1 < back)
        problem.intervals.push_back({forth + 1, back, gain});
      if (sweep + 1 < sweeps && back + 1 < next) {
        problem.intervals.push_back({back + 1, next, gain});
      } else if (loop && sweep + 1 == sweeps && chunk > 0) {
        problem.intervals.push_back({back + 1, chunk, gain});
      }
    }
  }
  return problem;
}

double ProcessorSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

TEST(IntervalFlowTest, ManySweepsAreProvedBestOrNearlySo) {
  for (const bool loop : {false, true}) {
    if (loop && TestStride() > 1) continue;
    const IntervalProblem problem = Sweeps(500, 60, loop);
    ASSERT_GT(std::ssize(problem.intervals), 3 * kMostTogether);
    const IntervalSolution solution = SolveIntervals(problem);
    ASSERT_THAT(VerifyIntervalSolution(problem, solution), IsOk());
    EXPECT_LE(static_cast<double>(solution.bound - solution.gain),
              0.01 * static_cast<double>(solution.bound))
        << "loop " << loop;
    ASSERT_EQ(solution, SolveIntervals(problem));
  }
}

// With one flow for all, eight times as many took more than fifty times as
// long.
TEST(IntervalFlowTest, TimeGrowsWithTheNumberOfIntervals) {
  const auto seconds = [](int sweeps) {
    const IntervalProblem problem = Sweeps(sweeps, 60, true);
    const double begin = ProcessorSeconds();
    SolveIntervals(problem);
    return ProcessorSeconds() - begin;
  };
  const int sweeps = TestStride() > 1 ? 60 : 250;
  const double few = std::min(seconds(sweeps), seconds(sweeps));
  EXPECT_LT(seconds(8 * sweeps), 24 * few);
}

TEST(IntervalFlowTest, WindowsOfAnyLengthMakeChoicesThatFit) {
  std::mt19937_64 random(TestSeed(7));
  for (int round = 0; round < 300; ++round) {
    const int wraps = static_cast<int>(random() % 3) * 4;
    const IntervalProblem problem =
        RandomIntervals(random, 12 + static_cast<int>(random() % 80),
                        1 + static_cast<int>(random() % 60), 1, wraps);
    if (problem.intervals.empty()) continue;
    const IntervalSolution best = SolveIntervals(problem);
    const IntervalSolution solution = internal::SolveInWindows(
        problem, 2 + static_cast<int64_t>(random() % 40), SolveIntervals);
    ASSERT_THAT(VerifyIntervalSolution(problem, solution), IsOk())
        << "round " << round;
    ASSERT_LE(solution.gain, best.bound) << "round " << round;
    ASSERT_GE(solution.bound, best.gain) << "round " << round;
  }
}

}  // namespace
}  // namespace castor
