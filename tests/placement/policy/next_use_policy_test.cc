// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "placement/policy/next_use_policy.h"

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/planner/plan_validator.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// `chunks` used one after another, forward and then backward, the shape of a
// training step.
Trace Sweep(int chunks) {
  Trace trace;
  const auto use = [&](int c) {
    trace.push_back({AccessKind::kUse, ChunkId(c)});
    trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
  };
  for (int c = 0; c < chunks; ++c) use(c);
  for (int c = chunks - 1; c >= 0; --c) use(c);
  return trace;
}

PlanProblem OneClass(int chunks, int64_t slots, int depth) {
  PlanProblem problem;
  problem.param_class.assign(static_cast<size_t>(chunks), 0);
  problem.grad_class.assign(static_cast<size_t>(chunks), 0);
  problem.fetch_cost.assign(static_cast<size_t>(chunks), 1);
  problem.survives_step.assign(static_cast<size_t>(chunks), false);
  problem.slots = {slots};
  problem.prefetch.depth = depth;
  return problem;
}

int64_t Gathers(const Plan& plan) {
  return static_cast<int64_t>(plan.initial.size()) +
         std::count_if(plan.moves.begin(), plan.moves.end(), [](const Move& m) {
           return m.kind == MoveKind::kGather;
         });
}

int64_t OnDemand(const Plan& plan) {
  return std::count_if(plan.moves.begin(), plan.moves.end(),
                       [](const Move& move) {
                         return move.kind == MoveKind::kGather &&
                                move.cause == RunCause::kDemand;
                       });
}

TEST(NextUsePolicyTest, EmptyTraceNeedsNothing) {
  const Result<Plan> plan = PlanNextUse({}, OneClass(3, 2, 2));
  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(plan->moves.empty());
  EXPECT_TRUE(plan->initial.empty());
  EXPECT_THAT(plan->first_move, ElementsAre(0));
}

TEST(NextUsePolicyTest, KeepsWhatTheBackwardSweepNeedsFirst) {
  // Six chunks, three slots: the copies of 3, 4 and 5 are used again at once.
  const Result<Plan> plan = PlanNextUse(Sweep(6), OneClass(6, 3, 0));
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(Gathers(*plan), 6 + 3);
}

TEST(NextUsePolicyTest, WithoutPrefetchEveryGatherIsOnDemandAtItsUse) {
  const Trace trace = Sweep(5);
  const Result<Plan> plan = PlanNextUse(trace, OneClass(5, 2, 0));
  ASSERT_THAT(plan, IsOk());
  EXPECT_TRUE(plan->initial.empty());
  for (size_t i = 0; i < trace.size(); ++i) {
    for (int32_t m = plan->first_move[2 * i]; m < plan->first_move[2 * i + 2];
         ++m) {
      const Move& move = plan->moves[static_cast<size_t>(m)];
      if (move.kind != MoveKind::kGather) continue;
      EXPECT_EQ(move.cause, RunCause::kDemand);
      EXPECT_EQ(trace[i], (Access{AccessKind::kUse, move.chunk}));
    }
  }
}

TEST(NextUsePolicyTest, PrefetchLeavesNoGatherOnDemandWhereSlotsAllow) {
  const Result<Plan> plan = PlanNextUse(Sweep(8), OneClass(8, 4, 2));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(plan->initial, ElementsAre(ChunkId(0), ChunkId(1)));
  for (const Move& move : plan->moves) {
    if (move.kind == MoveKind::kGather) {
      EXPECT_EQ(move.cause, RunCause::kPrefetch);
    }
  }
  EXPECT_EQ(Gathers(*plan), Gathers(*PlanNextUse(Sweep(8), OneClass(8, 4, 0))))
      << "fetching ahead must not fetch more";
}

TEST(NextUsePolicyTest, KeepsTheCopyThatIsDearToFetch) {
  // Chunk 0 comes back later than chunk 1 but costs ten times as much.
  Trace trace;
  for (int c : {0, 1, 2, 1, 0}) {
    trace.push_back({AccessKind::kUse, ChunkId(c)});
    trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
  }
  PlanProblem problem = OneClass(3, 2, 0);
  problem.fetch_cost = {10, 1, 1};
  const Result<Plan> plan = PlanNextUse(trace, problem);
  ASSERT_THAT(plan, IsOk());
  std::map<int, int> fetched;
  for (const Move& move : plan->moves) {
    if (move.kind == MoveKind::kGather) ++fetched[move.chunk.value()];
  }
  EXPECT_EQ(fetched[0], 1);
  EXPECT_EQ(fetched[1], 2);
}

TEST(NextUsePolicyTest, FrozenCopiesStayAcrossTheStep) {
  PlanProblem problem = OneClass(3, 3, 0);
  problem.survives_step.assign(3, true);
  const Result<Plan> plan = PlanNextUse(Sweep(3), problem);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->initial.size(), 3u);
  EXPECT_TRUE(plan->moves.empty());
}

TEST(NextUsePolicyTest, RefusesATraceThatHoldsMoreThanThereAreSlots) {
  Trace trace = {
      {AccessKind::kUse, ChunkId(0)},      {AccessKind::kUse, ChunkId(1)},
      {AccessKind::kGradOpen, ChunkId(2)}, {AccessKind::kGradClose, ChunkId(2)},
      {AccessKind::kUseEnd, ChunkId(1)},   {AccessKind::kUseEnd, ChunkId(0)}};
  EXPECT_THAT(PlanNextUse(trace, OneClass(3, 2, 1)).status(),
              StatusIs(ErrorCode::kInfeasible, HasSubstr("holds 3")));
  EXPECT_THAT(PlanNextUse(trace, OneClass(3, 3, 1)), IsOk());
}

TEST(NextUsePolicyTest, RandomPlansAreProvedByTheValidatorAndRepeatable) {
  std::mt19937_64 random(TestSeed(20261120));
  for (int round = 0; round < 3000; ++round) {
    const RandomCase c =
        MakeRandomCase(random, 1 + static_cast<int>(random() % 12),
                       static_cast<int>(random() % 120),
                       static_cast<int64_t>(random() % 4), random() % 2 == 0);
    const Result<Plan> plan = PlanNextUse(c.trace, c.problem);
    ASSERT_THAT(plan, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, *plan), IsOk())
        << "round " << round;
    ASSERT_EQ(*plan, *PlanNextUse(c.trace, c.problem)) << "round " << round;
  }
}

TEST(NextUsePolicyTest, RandomPlansLeaveWhatOthersTake) {
  std::mt19937_64 random(TestSeed(20261121));
  for (int round = 0; round < 2000; ++round) {
    RandomCase c =
        MakeRandomCase(random, 1 + static_cast<int>(random() % 12),
                       static_cast<int>(random() % 120),
                       static_cast<int64_t>(random() % 5), random() % 2 == 0);
    AddRandomLeases(random, &c);
    const Result<Plan> plan = PlanNextUse(c.trace, c.problem);
    ASSERT_THAT(plan, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, *plan), IsOk())
        << "round " << round;
  }
}

TEST(NextUsePolicyTest, RandomPlansKeepNoCopyThatAGradientIsWrittenOver) {
  std::mt19937_64 random(TestSeed(20261122));
  int64_t in_place = 0;
  for (int round = 0; round < 2000; ++round) {
    RandomCase c = MakeRandomCase(random, 1 + static_cast<int>(random() % 12),
                                  static_cast<int>(random() % 120), 0, true);
    PutGradsInPlace(random, &c, static_cast<int64_t>(random() % 4));
    if (random() % 2 == 0) AddRandomLeases(random, &c);
    const Result<Plan> plan = PlanNextUse(c.trace, c.problem);
    ASSERT_THAT(plan, IsOk()) << "round " << round;
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, *plan), IsOk())
        << "round " << round;
    for (const Access& access : c.trace) {
      in_place += access.kind == AccessKind::kGradOpen &&
                  c.problem.grad_class[access.chunk.index()] == kNoSlotClass;
    }
  }
  EXPECT_GT(in_place, 2000);
}

TEST(NextUsePolicyTest, MakesRoomBeforeOthersTakeIt) {
  const Trace trace = Sweep(2);  // 0 1 1 0, each used and ended
  PlanProblem problem = OneClass(2, 2, 2);
  problem.slots_taken = {{0, 0, 0, 1, 1, 0, 0, 0}};
  const Result<Plan> plan = PlanNextUse(trace, problem);
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(ValidatePlan(trace, problem, *plan), IsOk());
  // Just after the use of 1 has ended chunk 0 goes, and comes back later.
  EXPECT_EQ(plan->first_move[7], 0);
  EXPECT_EQ(plan->first_move[8], 1);
  EXPECT_EQ(plan->moves[0],
            (Move{MoveKind::kRelease, RunCause::kRoom, ChunkId(0)}));
  EXPECT_EQ(Gathers(*plan), 3);
}

// The fewest gathers that serve a trace of single uses with `slots` slots: all
// keep-or-drop decisions tried.
int64_t FewestGathers(const std::vector<int>& uses, size_t at,
                      std::set<int> resident, size_t slots) {
  if (at == uses.size()) return 0;
  if (resident.contains(uses[at])) {
    return FewestGathers(uses, at + 1, resident, slots);
  }
  int64_t best = std::numeric_limits<int64_t>::max();
  if (resident.size() < slots) {
    std::set<int> next = resident;
    next.insert(uses[at]);
    best = 1 + FewestGathers(uses, at + 1, next, slots);
  }
  for (int victim : resident) {
    std::set<int> next = resident;
    next.erase(victim);
    next.insert(uses[at]);
    best = std::min(best, 1 + FewestGathers(uses, at + 1, next, slots));
  }
  return best;
}

TEST(NextUsePolicyTest, EqualCostsNeedNoMoreGathersThanExhaustiveSearch) {
  std::mt19937_64 random(TestSeed(7));
  for (int round = 0; round < 300; ++round) {
    const int chunks = 2 + static_cast<int>(random() % 4);
    const size_t slots = 1 + random() % 3;
    std::vector<int> uses(1 + random() % 10);
    Trace trace;
    for (int& c : uses) {
      c = static_cast<int>(random() % static_cast<uint64_t>(chunks));
      trace.push_back({AccessKind::kUse, ChunkId(c)});
      trace.push_back({AccessKind::kUseEnd, ChunkId(c)});
    }
    const int depth = static_cast<int>(random() % 3);
    const Result<Plan> plan = PlanNextUse(
        trace, OneClass(chunks, static_cast<int64_t>(slots), depth));
    ASSERT_THAT(plan, IsOk());
    const int64_t fewest = FewestGathers(uses, 0, {}, slots);
    const Result<Plan> at_use =
        PlanNextUse(trace, OneClass(chunks, static_cast<int64_t>(slots), 0));
    ASSERT_THAT(at_use, IsOk());
    ASSERT_EQ(Gathers(*at_use), fewest) << "round " << round;
    // One more is fetched only for two that are no longer waited for.
    ASSERT_LE(2 * Gathers(*plan) + OnDemand(*plan),
              2 * fewest + OnDemand(*at_use))
        << "round " << round;
    ASSERT_GE(Gathers(*plan), fewest);
  }
}

TEST(NextUsePolicyTest, DearCopiesAreNotKeptWhereAllOthersWouldBeWaitedFor) {
  // Every second chunk is dear, and its copy has too far to go to its next use
  // for the slots that there are.
  PlanProblem problem = OneClass(20, 5, 3);
  for (size_t c = 0; c < 20; c += 2) problem.fetch_cost[c] = 3;
  const Trace trace = Sweep(20);
  const Result<Plan> plan = PlanNextUse(trace, problem);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(ValidatePlan(trace, problem, *plan), IsOk());
  EXPECT_EQ(OnDemand(*plan), 0);
  problem.prefetch.depth = 0;
  const Plan at_use = *PlanNextUse(trace, problem);
  EXPECT_GE(Gathers(*plan), Gathers(at_use));
  EXPECT_LE(Gathers(*plan), Gathers(at_use) + 3);
}

TEST(NextUsePolicyTest, AGradientLeavesOtherSlotsToFetches) {
  // In the backward, each gradient closes right before the next chunk's use.
  Trace trace;
  for (int c = 7; c >= 0; --c) {
    for (const AccessKind kind :
         {AccessKind::kUse, AccessKind::kUseEnd, AccessKind::kGradOpen,
          AccessKind::kGradClose}) {
      trace.push_back({kind, ChunkId(c)});
    }
  }
  const Result<Plan> plan = PlanNextUse(trace, OneClass(8, 3, 3));
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(ValidatePlan(trace, OneClass(8, 3, 3), *plan), IsOk());
  EXPECT_EQ(Gathers(*plan), 8);
  EXPECT_EQ(OnDemand(*plan), 0);
}

TEST(NextUsePolicyTest, CopiesInSpareSlotsStayAcrossTheStep) {
  PlanProblem problem = OneClass(6, 6, 3);
  problem.survives_step.assign(6, true);
  const Plan all = *PlanNextUse(Sweep(6), problem);
  EXPECT_EQ(all.initial.size(), 6u);
  EXPECT_TRUE(all.moves.empty());
}

TEST(NextUsePolicyTest, RefusesTracesThatNoStepCouldMake) {
  const Access use{AccessKind::kUse, ChunkId(0)};
  const Access end{AccessKind::kUseEnd, ChunkId(0)};
  const Access open{AccessKind::kGradOpen, ChunkId(0)};
  const Access close{AccessKind::kGradClose, ChunkId(0)};
  const Access nowhere{AccessKind::kUse, ChunkId(1)};
  const Access nothing{AccessKind::kUse, ChunkId()};
  for (const Trace& trace :
       {Trace{use, end, end}, Trace{end, use, use}, Trace{use, open, open},
        Trace{open, close, close}, Trace{use, end, nowhere},
        Trace{use, end, nothing}}) {
    EXPECT_THAT(
        PlanNextUse(trace, OneClass(1, 4, 1)).status(),
        StatusIs(ErrorCode::kInvalidArgument, HasSubstr("of the trace")));
  }
}

TEST(FirstStepVictimTest, ForwardDropsTheFirstChunkBackwardTheLast) {
  const std::vector<ChunkId> candidates = {ChunkId(2), ChunkId(3), ChunkId(4)};
  EXPECT_EQ(FirstStepVictim(candidates, ChunkId(5), true), ChunkId(2));
  EXPECT_EQ(FirstStepVictim(candidates, ChunkId(1), false), ChunkId(4));
  // Going backward, what lies below is used before what lies above.
  EXPECT_EQ(FirstStepVictim(candidates, ChunkId(3), false), ChunkId(4));
}

}  // namespace
}  // namespace castor
