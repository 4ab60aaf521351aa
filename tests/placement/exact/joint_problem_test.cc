// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/exact/joint_problem.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/exact/joint_flow.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

auto Rejected(const std::string& why) {
  return StatusIs(ErrorCode::kInternal, HasSubstr(why));
}

// Two slots and two chunks with two gaps each, one after the other: 0 at
// moments 0, 4 and 8, 1 at 2, 6 and 10; uses take a moment.
class JointProblemTest : public testing::Test {
 protected:
  JointProblemTest() {
    problem_.capacity.assign(12, 2);
    problem_.parts = 2;
    problem_.gaps = {{1, 0, 4, 30, 20, -1},
                     {3, 2, 6, 30, 20, -1},
                     {5, 4, 8, 30, 20, 0},
                     {7, 6, 10, 30, 20, 1}};
    problem_.unit = 10;
    // Chunk 0 is kept whole and then as a shard, which is there all the time.
    solution_.split = 1;
    solution_.kept = {true, false, false, false};
    solution_.shard_kept = {false, true, true, true};
    solution_.gain = 90;
    solution_.proof = {{std::vector<int64_t>(12, 0), std::vector<int64_t>(12)}};
    solution_.bound = 120;
  }
  Status Verify() const { return VerifyJointSolution(problem_, solution_); }

  JointProblem problem_;
  JointSolution solution_;
};

TEST_F(JointProblemTest, AcceptsAChoiceAndABoundThatPricesProve) {
  ASSERT_THAT(CheckJointProblem(problem_), IsOk());
  EXPECT_THAT(Verify(), IsOk());
  EXPECT_EQ(ShardSince(problem_, solution_.kept, 2), 0);
  EXPECT_EQ(ShardSince(problem_, solution_.kept, 3), 6);
  EXPECT_EQ(LargestSplit(problem_), 2);
}

TEST_F(JointProblemTest, ALineBoundsEverySplit) {
  JointPrices prices{std::vector<int64_t>(12, 0), std::vector<int64_t>(12, 0)};
  prices.slot[3] = 25;
  prices.shard[3] = 15;
  const JointLine line = LineOf(problem_, prices);
  // Slots 2 x 25; gaps 0 and 1 are left 5 for either copy, 2 and 3 their 30.
  EXPECT_EQ(static_cast<int64_t>(line.At(0)), 50 + 5 + 5 + 30 + 30);
  EXPECT_EQ(static_cast<int64_t>(line.At(1)), 25 + 2 * 15 + 70);
  EXPECT_EQ(BoundAt(problem_, {line}, 1), 120);  // of 125
  EXPECT_EQ(BoundOf(problem_, {line}), 120);     // all there is
}

TEST_F(JointProblemTest, RejectsWhatDoesNotFit) {
  solution_.split = 0;
  EXPECT_THAT(Verify(), Rejected("shards in 0 places"));
  solution_.split = 1;
  solution_.kept[1] = true;
  solution_.shard_kept[1] = false;
  solution_.gain = 100;
  EXPECT_THAT(Verify(), Rejected("2 copies in 1 slots"));
  solution_.split = 3;
  EXPECT_THAT(Verify(), Rejected("3 slots for shards"));
}

TEST_F(JointProblemTest, RejectsClaimsThatAreNotSo) {
  solution_.gain = 100;
  EXPECT_THAT(Verify(), Rejected("gains 90 and not 100"));
  solution_.gain = 90;
  solution_.bound = 110;
  EXPECT_THAT(Verify(), Rejected("bound of 120"));
  solution_.bound = 120;
  solution_.shard_kept[0] = true;
  EXPECT_THAT(Verify(), Rejected("keeps both copies"));
  solution_.shard_kept[0] = false;
  solution_.proof[0].shard[5] = -1;
  EXPECT_THAT(Verify(), Rejected("negative prices"));
  solution_.proof[0].shard[5] = 0;
  solution_.proves = 1;
  EXPECT_THAT(Verify(), Rejected("proof 1 of 1 alone"));
  solution_.kept.pop_back();
  EXPECT_THAT(Verify(), Rejected("4 gaps"));
}

TEST_F(JointProblemTest, RefusesProblemsWithoutMeaning) {
  const JointProblem good = problem_;
  problem_.gaps[1].shard_gain = 40;
  EXPECT_THAT(CheckJointProblem(problem_),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("gap 1")));
  problem_ = good;
  problem_.gaps[1].gain = 35;
  EXPECT_THAT(
      CheckJointProblem(problem_),
      StatusIs(ErrorCode::kInvalidArgument, HasSubstr("multiples of 10")));
  problem_ = good;
  problem_.gaps[2].before = 1;
  EXPECT_THAT(CheckJointProblem(problem_),
              StatusIs(ErrorCode::kInvalidArgument,
                       HasSubstr("follows gap 1 at moment 4")));
  problem_ = good;
  problem_.parts = -1;
  EXPECT_THAT(CheckJointProblem(problem_),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("-1 shards")));
  problem_ = good;
  problem_.capacity[3] = -1;
  EXPECT_THAT(CheckJointProblem(problem_),
              StatusIs(ErrorCode::kInvalidArgument, HasSubstr("moment 3")));
}

TEST_F(JointProblemTest, TheSearchFindsWhatBothKindsAllow) {
  for (int64_t capacity : {0, 1, 2, 3}) {
    problem_.capacity.assign(12, capacity);
    const JointSolution found = SolveJoint(problem_);
    EXPECT_THAT(VerifyJointSolution(problem_, found), IsOk());
    EXPECT_TRUE(found.optimal()) << capacity;
    // One slot for two shards, and from the second on gathered copies.
    constexpr int64_t kMost[] = {0, 80, 120, 120};
    EXPECT_EQ(found.gain, kMost[capacity]) << capacity;
  }
}

}  // namespace
}  // namespace castor
