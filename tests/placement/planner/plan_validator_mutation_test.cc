// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Plans of both policies, damaged in every way that a plan can be: what the
// validator still accepts, a replay that shares nothing with it accepts too,
// and the other way round.

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/exact/exact_policy.h"
#include "placement/planner/plan_validator.h"
#include "placement/policy/next_use_policy.h"
#include "tests/placement/policy/naive_replay.h"
#include "tests/placement/random_trace.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using Random = std::mt19937_64;

size_t Pick(Random& random, size_t n) { return random() % n; }

// One of those there are, or now and then none of them.
ChunkId AnyChunk(Random& random, const RandomCase& c) {
  const auto chunks = static_cast<int32_t>(c.problem.param_class.size());
  if (Pick(random, 20) == 0) return ChunkId(Pick(random, 2) == 0 ? -1 : chunks);
  return ChunkId(
      static_cast<int32_t>(Pick(random, static_cast<size_t>(chunks))));
}

// Behind the move at `at`, all moves are `by` further on.
void ShiftOffsets(Plan* plan, size_t at, int32_t by) {
  for (int32_t& first : plan->first_move) {
    if (static_cast<size_t>(first) > at) first += by;
  }
}

bool DropMove(Random& random, const RandomCase&, Plan* plan) {
  if (plan->moves.empty()) return false;
  const size_t at = Pick(random, plan->moves.size());
  plan->moves.erase(plan->moves.begin() + static_cast<std::ptrdiff_t>(at));
  ShiftOffsets(plan, at, -1);
  return true;
}

bool DuplicateMove(Random& random, const RandomCase&, Plan* plan) {
  if (plan->moves.empty()) return false;
  const size_t at = Pick(random, plan->moves.size());
  const Move move = plan->moves[at];
  plan->moves.insert(plan->moves.begin() + static_cast<std::ptrdiff_t>(at),
                     move);
  ShiftOffsets(plan, at, 1);
  return true;
}

bool SwapMoves(Random& random, const RandomCase&, Plan* plan) {
  if (plan->moves.size() < 2) return false;
  const size_t a = Pick(random, plan->moves.size() - 1);
  const size_t b =
      Pick(random, 2) == 0 ? a + 1 : Pick(random, plan->moves.size());
  std::swap(plan->moves[a], plan->moves[b]);
  return true;
}

// The move at a border between two slices goes to the other one.
bool ShiftMove(Random& random, const RandomCase&, Plan* plan) {
  const size_t border = 1 + Pick(random, plan->first_move.size() - 1);
  int32_t& first = plan->first_move[border];
  const bool later = Pick(random, 2) == 0;
  if (border + 1 < plan->first_move.size()) {
    const int32_t least = plan->first_move[border - 1];
    const int32_t most = plan->first_move[border + 1];
    if (later ? first == least : first == most) return false;
  }
  first += later ? -1 : 1;
  return true;
}

bool RetargetMove(Random& random, const RandomCase& c, Plan* plan) {
  if (plan->moves.empty()) return false;
  plan->moves[Pick(random, plan->moves.size())].chunk = AnyChunk(random, c);
  return true;
}

bool ChangeKind(Random& random, const RandomCase&, Plan* plan) {
  if (plan->moves.empty()) return false;
  plan->moves[Pick(random, plan->moves.size())].kind =
      static_cast<MoveKind>(Pick(random, 5));
  return true;
}

bool ChangeSource(Random& random, const RandomCase&, Plan* plan) {
  if (plan->moves.empty()) return false;
  bool& from = plan->moves[Pick(random, plan->moves.size())].from_shard;
  from = !from;
  return true;
}

bool ChangeChunks(Random& random, const RandomCase& c,
                  std::vector<ChunkId>* chunks) {
  const size_t at = Pick(random, chunks->size() + 1);
  const auto place = chunks->begin() + static_cast<std::ptrdiff_t>(at);
  switch (Pick(random, 3)) {
    case 0:
      chunks->insert(place, AnyChunk(random, c));
      return true;
    case 1:
      if (place == chunks->end()) return false;
      chunks->erase(place);
      return true;
    default:
      if (place == chunks->end()) return false;
      *place = AnyChunk(random, c);
      return true;
  }
}

bool ChangeInitial(Random& random, const RandomCase& c, Plan* plan) {
  return ChangeChunks(random, c, &plan->initial);
}

bool ChangeInitialShards(Random& random, const RandomCase& c, Plan* plan) {
  return ChangeChunks(random, c, &plan->initial_shards);
}

bool ChangeOffsets(Random& random, const RandomCase&, Plan* plan) {
  std::vector<int32_t>& first = plan->first_move;
  switch (Pick(random, 4)) {
    case 0:
      first.pop_back();
      return true;
    case 1:
      first.push_back(first.back());
      return true;
    case 2:
      first[Pick(random, first.size())] += Pick(random, 2) == 0 ? 1 : -1;
      return true;
    default:
      first[Pick(random, first.size())] = first[Pick(random, first.size())];
      return true;
  }
}

bool ChangeShardSlots(Random& random, const RandomCase& c, Plan* plan) {
  const size_t classes = c.problem.slots.size();
  if (plan->shard_slots.empty()) plan->shard_slots.assign(classes, 0);
  if (Pick(random, 8) == 0) {
    plan->shard_slots.push_back(0);
  } else {
    plan->shard_slots[Pick(random, classes)] += Pick(random, 2) == 0 ? 1 : -1;
  }
  return true;
}

struct Mutator {
  const char* name;
  // False where there is nothing to damage so.
  bool (*mutate)(Random& random, const RandomCase& c, Plan* plan);
};

constexpr Mutator kMutators[] = {{"drop a move", DropMove},
                                 {"duplicate a move", DuplicateMove},
                                 {"swap moves", SwapMoves},
                                 {"shift a move", ShiftMove},
                                 {"retarget a move", RetargetMove},
                                 {"change a kind", ChangeKind},
                                 {"change a source", ChangeSource},
                                 {"change what is there", ChangeInitial},
                                 {"change shards there", ChangeInitialShards},
                                 {"change offsets", ChangeOffsets},
                                 {"change shard slots", ChangeShardSlots}};

// Chunks one after the other, in a few slots, of which one holds the shards of
// most: what is worth it.
RandomCase OneAtATime(Random& random) {
  RandomCase made;
  constexpr size_t kChunks = 6;
  for (int use = 0; use < 24; ++use) {
    const ChunkId chunk(static_cast<int32_t>(Pick(random, kChunks)));
    made.trace.push_back({AccessKind::kUse, chunk});
    made.trace.push_back({AccessKind::kUseEnd, chunk});
  }
  PlanProblem& problem = made.problem;
  problem.param_class.assign(kChunks, 0);
  problem.grad_class.assign(kChunks, 0);
  problem.fetch_cost.assign(kChunks, 4);
  problem.shard_cost.assign(kChunks, 3);
  for (size_t c = 0; c < kChunks; ++c) {
    problem.survives_step.push_back(Pick(random, 4) == 0);
  }
  problem.slots = {3};
  problem.shards_per_slot = {4};
  problem.prefetch.depth = static_cast<int>(Pick(random, 3));
  return made;
}

RandomCase AnyCase(Random& random) {
  if (Pick(random, 3) == 0) return OneAtATime(random);
  RandomCase c = MakeRandomCase(random, 6, 60,
                                static_cast<int64_t>(Pick(random, 4)), true);
  if (Pick(random, 2) == 0) AddRandomShards(random, &c.problem);
  if (Pick(random, 3) == 0) {
    PutGradsInPlace(random, &c, static_cast<int64_t>(Pick(random, 4)));
  }
  if (Pick(random, 2) == 0) AddRandomLeases(random, &c);
  return c;
}

Plan PlanOf(const RandomCase& c, bool planned) {
  if (planned) return PlanExact(c.trace, c.problem).value().plan;
  return PlanNextUse(c.trace, c.problem).value();
}

TEST(PlanValidatorMutationTest, JudgesDamagedPlansAsANaiveReplayDoes) {
  Random random(TestSeed(20261122));
  constexpr size_t kCount = std::size(kMutators);
  int rejected[kCount] = {};
  int accepted = 0;
  int with_shards = 0;
  for (int round = 0; round < 240; ++round) {
    const RandomCase c = AnyCase(random);
    ASSERT_FALSE(c.trace.empty());
    const Plan whole = PlanOf(c, round % 2 == 0);
    ASSERT_THAT(ValidatePlan(c.trace, c.problem, whole), IsOk());
    ASSERT_TRUE(NaivelyHolds(c.trace, c.problem, whole)) << "round " << round;
    with_shards += !whole.shard_slots.empty();
    for (size_t m = 0; m < kCount; ++m) {
      for (int again = 0; again < 4; ++again) {
        Plan damaged = whole;
        if (!kMutators[m].mutate(random, c, &damaged)) continue;
        const Status judged = ValidatePlan(c.trace, c.problem, damaged);
        ASSERT_EQ(judged.ok(), NaivelyHolds(c.trace, c.problem, damaged))
            << "round " << round << ", " << kMutators[m].name << ": "
            << judged.message();
        if (judged.ok()) {
          ++accepted;
        } else {
          ASSERT_THAT(judged, StatusIs(ErrorCode::kInternal));
          ++rejected[m];
        }
      }
    }
  }
  for (size_t m = 0; m < kCount; ++m) {
    EXPECT_GT(rejected[m], 20) << kMutators[m].name;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(with_shards, 5);
}

}  // namespace
}  // namespace castor
