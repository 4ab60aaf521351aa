// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/planner/plan_validator.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/policy/next_use_policy.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::HasSubstr;

auto Rejected(const std::string& why) {
  return StatusIs(ErrorCode::kInternal, HasSubstr(why));
}

class PlanValidatorTest : public testing::Test {
 protected:
  PlanValidatorTest() {
    for (int c : {0, 1, 2, 1, 0}) {
      trace_.push_back({AccessKind::kUse, ChunkId(c)});
      trace_.push_back({AccessKind::kUseEnd, ChunkId(c)});
    }
    trace_.push_back({AccessKind::kGradOpen, ChunkId(0)});
    trace_.push_back({AccessKind::kGradClose, ChunkId(0)});
    problem_.param_class = {0, 0, 0};
    problem_.grad_class = {0, 0, 0};
    problem_.fetch_cost = {1, 1, 1};
    problem_.survives_step = {false, false, false};
    problem_.slots = {2};
    problem_.prefetch.depth = 1;
    plan_ = *PlanNextUse(trace_, problem_);
  }

  // Inserts a move before the access at `moment`.
  void Insert(size_t moment, Move move) {
    plan_.moves.insert(plan_.moves.begin() + plan_.first_move[2 * moment],
                       move);
    for (size_t i = 2 * moment + 1; i < plan_.first_move.size(); ++i) {
      ++plan_.first_move[i];
    }
  }

  // Removes the first move of the kind; says at which moment it stood.
  void Remove(MoveKind kind) {
    const auto move =
        std::find_if(plan_.moves.begin(), plan_.moves.end(),
                     [&](const Move& m) { return m.kind == kind; });
    ASSERT_NE(move, plan_.moves.end());
    const int32_t at = static_cast<int32_t>(move - plan_.moves.begin());
    plan_.moves.erase(move);
    for (int32_t& first : plan_.first_move) {
      if (first > at) --first;
    }
  }

  Status Validate() const { return ValidatePlan(trace_, problem_, plan_); }

  Trace trace_;
  PlanProblem problem_;
  Plan plan_;
};

TEST_F(PlanValidatorTest, AcceptsThePlan) { EXPECT_THAT(Validate(), IsOk()); }

TEST_F(PlanValidatorTest, RejectsAnAccessThatFindsNoCopy) {
  plan_.initial.clear();
  EXPECT_THAT(Validate(), Rejected("chunk 0 is not gathered"));
}

TEST_F(PlanValidatorTest, RejectsAMissingRelease) {
  Remove(MoveKind::kRelease);
  EXPECT_THAT(Validate(), Rejected("slots"));
}

TEST_F(PlanValidatorTest, RejectsAMissingGather) {
  Remove(MoveKind::kGather);
  EXPECT_THAT(Validate(), StatusIs(ErrorCode::kInternal));
}

TEST_F(PlanValidatorTest, RejectsASecondGatherOfACopyThatIsThere) {
  Insert(1, {MoveKind::kGather, RunCause::kPrefetch, ChunkId(0)});
  EXPECT_THAT(Validate(), Rejected("gathered already"));
}

TEST_F(PlanValidatorTest, RejectsTheReleaseOfACopyInUse) {
  Insert(1, {MoveKind::kRelease, RunCause::kRoom, ChunkId(0)});
  EXPECT_THAT(Validate(), Rejected("in use"));
}

TEST_F(PlanValidatorTest, RejectsTheReleaseOfNoCopy) {
  Insert(0, {MoveKind::kRelease, RunCause::kRoom, ChunkId(2)});
  EXPECT_THAT(Validate(), Rejected("no copy"));
}

TEST_F(PlanValidatorTest, RejectsMoreCopiesThanSlots) {
  problem_.slots = {1};
  EXPECT_THAT(Validate(), Rejected("slots"));
}

TEST_F(PlanValidatorTest, RejectsCopiesInSlotsThatOthersTake) {
  const size_t moments = trace_.size();
  problem_.slots_taken = {std::vector<int64_t>(moments, 0)};
  EXPECT_THAT(Validate(), IsOk());
  // Chunks 0 and 1 are there when the use of 1 has ended.
  problem_.slots_taken[0][3] = 1;
  EXPECT_THAT(Validate(), Rejected("2 slots of 1"));
  problem_.slots_taken[0].pop_back();
  EXPECT_THAT(Validate(), Rejected("for 11 accesses"));
}

TEST_F(PlanValidatorTest, RejectsAnUnknownChunk) {
  plan_.initial.push_back(ChunkId(9));
  EXPECT_THAT(Validate(), Rejected("no chunk 9"));
}

TEST_F(PlanValidatorTest, RejectsOffsetsThatDoNotMatchTheTrace) {
  plan_.first_move.pop_back();
  EXPECT_THAT(Validate(), Rejected("offsets"));
}

TEST_F(PlanValidatorTest, RejectsAGradientThatClosesUnopened) {
  std::swap(trace_[trace_.size() - 1], trace_[trace_.size() - 2]);
  EXPECT_THAT(Validate(), Rejected("gradient"));
}

TEST_F(PlanValidatorTest, RejectsACopyOfAChunkThatNeedsNoSlot) {
  problem_.param_class[2] = kNoSlotClass;
  EXPECT_THAT(Validate(), Rejected("chunk 2 needs no slot"));
}

TEST_F(PlanValidatorTest, RejectsMovesThatEndBeforeTheyBegin) {
  plan_.first_move[1] = plan_.first_move.back() + 1;
  EXPECT_THAT(Validate(), Rejected("moves of moment 0 end before "
                                   "they begin"));
}

TEST_F(PlanValidatorTest, RejectsAnUnknownMove) {
  plan_.moves[0].kind = static_cast<MoveKind>(9);
  EXPECT_THAT(Validate(), Rejected("unknown move"));
}

TEST_F(PlanValidatorTest, RejectsAGradientInThePlaceOfNothing) {
  problem_.grad_class[0] = kNoSlotClass;
  EXPECT_THAT(Validate(), Rejected("takes the place of parameters "
                                   "that are not in use"));
}

TEST_F(PlanValidatorTest, RejectsAUseThatEndsUnbegun) {
  trace_[0].kind = AccessKind::kUseEnd;
  EXPECT_THAT(Validate(), Rejected("chunk 0 is not in use"));
}

TEST_F(PlanValidatorTest, RejectsAGradientThatOpensTwice) {
  trace_.back().kind = AccessKind::kGradOpen;
  EXPECT_THAT(Validate(), Rejected("chunk 0 is open already"));
}

TEST_F(PlanValidatorTest, RejectsWhatTheStepLeavesOpen) {
  problem_.param_class = {kNoSlotClass, kNoSlotClass, kNoSlotClass};
  plan_ = Plan();
  plan_.first_move = {0, 0, 0};
  trace_ = {{AccessKind::kUse, ChunkId(1)}};
  EXPECT_THAT(Validate(), Rejected("end of the step: chunk 1 is still in use"));
  trace_ = {{AccessKind::kGradOpen, ChunkId(2)}};
  EXPECT_THAT(Validate(), Rejected("of chunk 2 is still open"));
}

// One slot of two holds copies of two shards, one of them a frozen chunk's.
class ShardCopiesTest : public PlanValidatorTest {
 protected:
  ShardCopiesTest() {
    problem_.slots = {1};
    problem_.shard_cost = {0.5, 0.5, 0};
    problem_.shards_per_slot = {2};
    problem_.survives_step = {false, true, false};
    problem_.prefetch.depth = 0;
    plan_ = *PlanNextUse(trace_, problem_);
    problem_.slots = {2};
    plan_.shard_slots = {1};
    // Each of the first gathers keeps its shard for the second.
    bool kept[3] = {};
    for (size_t i = 0; i < trace_.size(); ++i) {
      for (int32_t m = plan_.first_move[2 * i]; m < plan_.first_move[2 * i + 1];
           ++m) {
        Move& move = plan_.moves[static_cast<size_t>(m)];
        const size_t chunk = move.chunk.index();
        if (move.kind != MoveKind::kGather || chunk == 2) continue;
        move.from_shard = true;
        if (std::exchange(kept[chunk], true)) continue;
        fetched_at_[chunk] = i;
        Insert(i, {MoveKind::kFetchShard, RunCause::kDemand,
                   ChunkId(static_cast<int32_t>(chunk))});
        ++m;
      }
    }
    Insert(trace_.size() - 1, Drop(0));
  }

  static Move Drop(int chunk) {
    return {MoveKind::kDropShard, RunCause::kRoom, ChunkId(chunk)};
  }

  size_t fetched_at_[3] = {};  // by chunk: the moment before which it is
};

TEST_F(ShardCopiesTest, AcceptsThePlan) {
  EXPECT_THAT(Validate(), IsOk());
  EXPECT_GT(std::count_if(plan_.moves.begin(), plan_.moves.end(),
                          [](const Move& m) { return m.from_shard; }),
            2);
}

TEST_F(ShardCopiesTest, RejectsAGatherFromACopyThatIsNotThere) {
  Remove(MoveKind::kFetchShard);
  EXPECT_THAT(Validate(), Rejected("which is not there"));
}

TEST_F(ShardCopiesTest, RejectsAGatherAfterItsCopyWasDropped) {
  Insert(fetched_at_[0] + 1, Drop(0));
  EXPECT_THAT(Validate(), Rejected("which is not there"));
}

TEST_F(ShardCopiesTest, RejectsAFetchPastACopyThatIsThere) {
  for (Move& move : plan_.moves) move.from_shard = false;
  EXPECT_THAT(Validate(), Rejected("beside its shard's copy"));
}

TEST_F(ShardCopiesTest, RejectsMoreCopiesThanPlaces) {
  problem_.shards_per_slot = {1};
  EXPECT_THAT(Validate(), Rejected("2 shards in 1 places"));
  plan_.shard_slots = {};
  EXPECT_THAT(Validate(), Rejected("1 shards in 0 places"));
}

TEST_F(ShardCopiesTest, RejectsGatheredCopiesInSlotsThatHoldShards) {
  plan_.shard_slots = {2};
  EXPECT_THAT(Validate(), Rejected("1 slots of 0"));
  plan_.shard_slots = {3};
  EXPECT_THAT(Validate(), Rejected("3 slots of 2 of class 0"));
  plan_.shard_slots = {1, 0};
  EXPECT_THAT(Validate(), Rejected("for 2 classes"));
}

TEST_F(ShardCopiesTest, RejectsACopyKeptPastTheUpdate) {
  Remove(MoveKind::kDropShard);
  EXPECT_THAT(Validate(), Rejected("past the update"));
  // A frozen chunk's may stay, and be there again.
  problem_.survives_step[0] = true;
  EXPECT_THAT(Validate(), IsOk());
}

TEST_F(ShardCopiesTest, RejectsACopyThatIsFetchedTwice) {
  Insert(fetched_at_[0] + 1,
         {MoveKind::kFetchShard, RunCause::kDemand, ChunkId(0)});
  EXPECT_THAT(Validate(), Rejected("already"));
}

TEST_F(ShardCopiesTest, RejectsTheDropOfNoCopy) {
  Insert(0, Drop(0));
  EXPECT_THAT(Validate(), Rejected("no copy of chunk 0's shard"));
}

TEST_F(ShardCopiesTest, RejectsACopyThatSparesNothing) {
  Insert(0, {MoveKind::kFetchShard, RunCause::kDemand, ChunkId(2)});
  EXPECT_THAT(Validate(), Rejected("chunk 2's shard may be kept"));
  plan_.initial_shards.push_back(ChunkId(2));
  EXPECT_THAT(Validate(), Rejected("before the step"));
}

TEST(PlanValidatorRandomTest, RejectsRandomPlansWithOneGatherMissing) {
  std::mt19937_64 random(TestSeed(99));
  int checked = 0;
  for (int round = 0; round < 500; ++round) {
    const RandomCase c = MakeRandomCase(random, 6, 60, 1, true);
    Plan plan = *PlanNextUse(c.trace, c.problem);
    std::vector<size_t> demanded;
    for (size_t m = 0; m < plan.moves.size(); ++m) {
      if (plan.moves[m].cause == RunCause::kDemand) demanded.push_back(m);
    }
    if (demanded.empty()) continue;
    const size_t gone = demanded[random() % demanded.size()];
    plan.moves.erase(plan.moves.begin() + static_cast<std::ptrdiff_t>(gone));
    for (int32_t& first : plan.first_move) {
      if (first > static_cast<int32_t>(gone)) --first;
    }
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, plan),
                StatusIs(ErrorCode::kInternal))
        << "round " << round;
    ++checked;
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace castor
