// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/interval_problem.h"

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/exact/interval_flow.h"
#include "tests/placement/exact/random_intervals.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

auto Rejected(const std::string& why) {
  return StatusIs(ErrorCode::kInternal, HasSubstr(why));
}

// One slot, three copies that want it at moment 1; the dearest is kept.
class IntervalProblemTest : public testing::Test {
 protected:
  IntervalProblemTest() {
    problem_.capacity = {2, 1, 2};
    problem_.intervals = {{0, 2, 3}, {1, 3, 5}, {1, 2, 2}};
    solution_.kept = {false, true, false};
    solution_.gain = 5;
    solution_.price = {0, 5, 0};
    solution_.bound = 5;
  }
  Status Verify() const { return VerifyIntervalSolution(problem_, solution_); }

  IntervalProblem problem_;
  IntervalSolution solution_;
};

TEST_F(IntervalProblemTest, PricesThatMeetTheGainProveTheChoiceBest) {
  EXPECT_THAT(Verify(), IsOk());
  EXPECT_TRUE(solution_.optimal());
  // Any price between the first and the second of three proves it as well.
  solution_.price[1] = 3;
  EXPECT_THAT(Verify(), IsOk());
  EXPECT_TRUE(solution_.optimal());
}

TEST_F(IntervalProblemTest, WithoutPricesAllThatCanBeKeptBoundsTheGain) {
  EXPECT_EQ(PriceBound(problem_, {0, 0, 0}), 10);
  EXPECT_EQ(PriceBound(problem_, {0, 2, 0}), 2 + 1 + 3);
  EXPECT_EQ(PriceBound(problem_, {1, 1, 1}), 2 + 1 + 2 + 1 + 3 + 1);
  // Prices as high as can be prove nothing, and overflow nothing.
  const int64_t most = std::numeric_limits<int64_t>::max();
  problem_.capacity = {most, most, most};
  EXPECT_EQ(PriceBound(problem_, {most, most, most}), 10);
}

TEST_F(IntervalProblemTest, TheBoundIsAMultipleOfWhatAllGainsAre) {
  for (KeepInterval& interval : problem_.intervals) interval.gain *= 10;
  // 13 + 17 + 37 + 7.
  EXPECT_EQ(PriceBound(problem_, {0, 13, 0}), 70);
}

TEST_F(IntervalProblemTest, AnIntervalThatWrapsPaysForBothItsEnds) {
  problem_.capacity = {0, 0, 0};
  problem_.intervals = {{2, 1, 10}, {1, 2, 1}};
  EXPECT_EQ(PriceBound(problem_, {1, 4, 2}), 10 - 3);
  problem_.intervals[0] = {2, 2, 10};  // all moments
  EXPECT_EQ(PriceBound(problem_, {1, 4, 2}), 10 - 7);
  problem_.intervals[0] = {3, 0, 10};  // none
  EXPECT_EQ(PriceBound(problem_, {1, 4, 2}), 10);
  problem_.capacity = {0, 1, 0};
  EXPECT_EQ(PriceBound(problem_, {1, 4, 2}), 11);  // 4 + 10, and 11 at most
}

TEST_F(IntervalProblemTest, RejectsMoreCopiesThanSlots) {
  solution_.kept[0] = true;
  solution_.gain += 3;
  EXPECT_THAT(Verify(), Rejected("2 copies are kept at moment 1"));
  problem_.intervals = {{2, 1, 3}, {0, 1, 5}, {1, 3, 2}};
  problem_.capacity = {1, 1, 2};
  EXPECT_THAT(Verify(), Rejected("2 copies are kept at moment 0"));
}

TEST_F(IntervalProblemTest, RejectsClaimsThatDoNotHold) {
  IntervalSolution claim = solution_;
  claim.gain = 6;
  EXPECT_THAT(VerifyIntervalSolution(problem_, claim),
              Rejected("gains 5 and not 6"));
  claim = solution_;
  claim.bound = 4;
  EXPECT_THAT(VerifyIntervalSolution(problem_, claim),
              Rejected("a bound of 5 and not 4"));
  claim = solution_;
  claim.price[1] = 1;  // proves less
  EXPECT_THAT(VerifyIntervalSolution(problem_, claim), Rejected("bound"));
  claim = solution_;
  claim.price[0] = -1;
  EXPECT_THAT(VerifyIntervalSolution(problem_, claim),
              Rejected("price at moment 0"));
  claim = solution_;
  claim.kept.pop_back();
  EXPECT_THAT(VerifyIntervalSolution(problem_, claim), Rejected("2 choices"));
}

TEST_F(IntervalProblemTest, RefusesWhatHasNoMeaning) {
  for (const KeepInterval& interval :
       std::vector<KeepInterval>{{-1, 2, 1},
                                 {0, 4, 1},
                                 {4, 0, 1},
                                 {0, 1, 0},
                                 {0, 1, -2},
                                 {0, 1, kMaxTotalGain}}) {
    IntervalProblem problem = problem_;
    problem.intervals.push_back(interval);
    EXPECT_THAT(CheckIntervalProblem(problem),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("interval 3")));
  }
  problem_.capacity[2] = -1;
  EXPECT_THAT(CheckIntervalProblem(problem_),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("moment 2")));
}

// Whatever is changed in a proved solution, what is accepted still is true: no
// choice that fits gains more than the bound, and the best is only called best.
TEST(IntervalProblemRandomTest, NoTamperedSolutionClaimsWhatIsNotSo) {
  std::mt19937_64 random(TestSeed(41));
  int rejected = 0;
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    const IntervalProblem problem =
        RandomIntervals(random, 2 + static_cast<int>(random() % 8), 8, 1);
    if (problem.intervals.empty()) continue;
    const IntervalSolution best = SolveIntervals(problem);
    IntervalSolution tampered = best;
    const size_t j = random() % problem.intervals.size();
    const size_t t = random() % problem.capacity.size();
    const int64_t by = random() % 2 == 0 ? 1 : -1;
    switch (random() % 5) {
      case 0:
        tampered.kept[j] = !tampered.kept[j];
        break;
      case 1:
        tampered.kept[j] = !tampered.kept[j];
        tampered.gain +=
            (tampered.kept[j] ? 1 : -1) * problem.intervals[j].gain;
        break;
      case 2:
        tampered.price[t] += by;
        break;
      case 3:
        tampered.gain += by;
        break;
      default:
        tampered.bound += by;
    }
    if (!VerifyIntervalSolution(problem, tampered).ok()) {
      ++rejected;
      continue;
    }
    ++accepted;
    const int64_t most = MostGain(problem);
    ASSERT_LE(tampered.gain, most) << "round " << round;
    ASSERT_GE(tampered.bound, most) << "round " << round;
  }
  EXPECT_GT(rejected, 1000);
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace castor
