// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How a MemoryManager keeps copies of shards in what leases leave.

#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lease_arena.h"
#include "offload/memory_manager.h"
#include "placement/plan.h"
#include "placement/plan_cost.h"
#include "placement/plan_validator.h"
#include "placement/run_event.h"
#include "placement/step_trace.h"
#include "tests/offload/fake_chunk_source.h"
#include "tests/offload/memory_manager_fixture.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

class MemoryManagerLentTest : public MemoryManagerFixture {
 protected:
  // Every fetch costs 1, which a copy of the shard spares, so that a plan's
  // cost is what it fetches. `places` of 512 bytes may be lent.
  static PlanProblem Problem(int chunks, int64_t slots, int64_t per_slot,
                             int64_t places) {
    const auto n = static_cast<size_t>(chunks);
    PlanProblem problem;
    problem.param_class.assign(n, 0);
    problem.grad_class.assign(n, 0);
    problem.fetch_cost.assign(n, 1);
    problem.shard_cost.assign(n, 1);
    problem.shards_per_slot = {per_slot};
    problem.survives_step.assign(n, false);
    problem.slots = {slots};
    problem.lent_class = 0;
    problem.lent_place = Bytes(512);
    problem.lent_arena = Bytes(512) * places;
    return problem;
  }
  void OpenLent(PlanProblem problem) {
    policy_ = PlanPolicy::kPlanned;
    Open(std::move(problem));
  }

  // Two sweeps there and back over four chunks in one slot, with three of the
  // arena's places on lease in the middle of each.
  void TwoSweeps(const std::vector<int>& extra_at = {}) {
    int use = 0;
    for (int sweep = 0; sweep < 2; ++sweep) {
      UseAll({0, 1});
      const LeaseArena::Lease kept = Borrow(Bytes(1536));
      UseAll({2, 3, 3, 2});
      Return(kept);
      for (const int chunk : {1, 0}) {
        std::optional<LeaseArena::Lease> extra;
        for (const int at : extra_at) {
          if (at == use) extra = Borrow(Bytes(2048));
        }
        ++use;
        Use(chunk);
        if (extra) Return(*extra);
      }
    }
    NextStep();
  }
  int64_t FetchesOf(const std::vector<int>& extra_at = {}) {
    const int64_t before = manager_->stats().fetches;
    TwoSweeps(extra_at);
    return manager_->stats().fetches - before;
  }
  double Planned() const {
    PlanProblem problem = problem_;
    const std::vector<double> costs =
        StepFetchCosts(problem, *manager_->plan());
    return std::accumulate(costs.begin(), costs.end(), 0.0);
  }
};

TEST_F(MemoryManagerLentTest, WhatLeasesLeaveSparesFetches) {
  OpenLent(Problem(4, 1, 0, 4));
  TwoSweeps();
  EXPECT_EQ(source_->agreements, 1);
  ASSERT_NE(manager_->certificate(), nullptr);
  EXPECT_EQ(manager_->certificate()->classes[0].lent_places, 4);
  const int64_t steady = FetchesOf();
  EXPECT_EQ(static_cast<double>(steady), Planned());
  // One place is there all the time, three more between the sweeps: all four
  // chunks are fetched for the first one, and three of them once more on its
  // way back.
  EXPECT_LT(steady, 14);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(FetchesOf(), steady);
  EXPECT_EQ(manager_->stats().divergences, 0);
  EXPECT_EQ(source_->agreements, 1);
  // Beside the one slot nothing was taken of the pool.
  EXPECT_EQ(device_->stats().peak, kSlot);
}

TEST_F(MemoryManagerLentTest, AsMuchIsLentAsTheRankHasThatHasLeast) {
  OpenLent(Problem(4, 1, 0, 4));
  source_->most_places = 0;
  TwoSweeps();
  const int64_t without = FetchesOf();
  EXPECT_THAT(source_->shards, IsEmpty());
  OpenLent(Problem(4, 1, 0, 4));
  TwoSweeps();
  EXPECT_LT(FetchesOf(), without);
}

TEST_F(MemoryManagerLentTest, AnUnforeseenLeaseJustDropsWhatIsInItsWay) {
  OpenLent(Problem(4, 1, 0, 4));
  TwoSweeps();
  const int64_t steady = FetchesOf();
  const int64_t disturbed = FetchesOf({0, 1});
  EXPECT_GT(disturbed, steady);
  // Planned for, and when it does not come again no more.
  EXPECT_EQ(manager_->stats().divergences, 1);
  EXPECT_EQ(source_->agreements, 2);
  EXPECT_GT(FetchesOf(), steady);
  EXPECT_EQ(source_->agreements, 3);
  EXPECT_EQ(FetchesOf(), steady);
  EXPECT_EQ(manager_->stats().divergences, 1);
  EXPECT_EQ(source_->agreements, 3);
}

TEST_F(MemoryManagerLentTest, AStepThatDepartsGivesAllOfItUp) {
  OpenLent(Problem(4, 1, 0, 4));
  TwoSweeps();
  const int64_t steady = FetchesOf();
  UseAll({0, 1, 3});
  const MemoryManagerStats before = manager_->stats();
  UseAll({0, 1, 3});
  EXPECT_EQ(manager_->stats().fetches - before.fetches, 3);
  NextStep();
  EXPECT_EQ(manager_->stats().divergences, 1);
  TwoSweeps();
  EXPECT_EQ(FetchesOf(), steady);
}

TEST_F(MemoryManagerLentTest, DroppingEverythingEmptiesTheArenaToo) {
  PlanProblem problem = Problem(4, 1, 0, 4);
  problem.survives_step.assign(4, true);
  OpenLent(std::move(problem));
  TwoSweeps();
  TwoSweeps();
  for (int32_t& version : source_->versions) ++version;
  manager_->DropAll(RunCause::kNone);
  // Resumed elsewhere: nothing of before is counted on.
  std::memset(arena_->data(), 0, 2048);
  manager_->BeginStep(++step_);
  const int64_t steady = FetchesOf();
  EXPECT_EQ(static_cast<double>(FetchesOf()), Planned());
  EXPECT_GE(steady, 0);
  EXPECT_THAT(manager_->Close(), IsOk());
}

TEST_F(MemoryManagerLentTest, ACopyMovesWhereAnotherPlaceIsFree) {
  // Two places in a slot, two that are lent: 1's copy begins beyond, and is
  // wanted when a lease is there.
  PlanProblem problem = Problem(5, 2, 2, 2);
  problem.fetch_cost = {4, 4, 4, 4, 4};
  problem.shard_cost = {4, 4, 4, 4, 4};
  OpenLent(std::move(problem));
  for (int i = 0; i < 3; ++i) {
    UseAll({0, 1, 2, 3, 0});
    const LeaseArena::Lease all = Borrow(Bytes(1024));
    UseAll({1, 2});
    Return(all);
    UseAll({3, 4});
    NextStep();
  }
  EXPECT_EQ(manager_->stats().divergences, 0);
  EXPECT_GT(source_->from_shards.size(), 0u);
}

// Random steps with leases of all sizes, returned in any order: a steady step
// fetches what its plan says, whatever has to move for that; and no copy is
// written to what is on lease.
TEST_F(MemoryManagerLentTest, ASteadyStepFetchesWhatItsPlanSays) {
  std::mt19937_64 random(TestSeed(20261124));
  const auto pick = [&](uint64_t n) { return static_cast<int>(random() % n); };
  int64_t moved = 0;
  int64_t spared = 0;
  int64_t disturbed = 0;
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    const int chunks = 3 + pick(5);
    PlanProblem problem =
        Problem(chunks, 1 + pick(3), 2 * pick(2), 1 + pick(6));
    problem.prefetch_depth = pick(3);
    for (size_t c = 0; c < problem.survives_step.size(); ++c) {
      problem.survives_step[c] = pick(4) == 0;
    }
    const int64_t arena = problem.lent_arena.count();
    OpenLent(std::move(problem));
    // Chunks to use; or a lease to take, below zero, or to return, from 100.
    std::vector<int> calls;
    int held = 0;
    for (int i = 0; i < 40; ++i) {
      const int what = pick(4);
      if (what == 0 && held < 4) {
        calls.push_back(-1 - pick(static_cast<uint64_t>(arena)));
        ++held;
      } else if (what == 1 && held > 0) {
        calls.push_back(100 + pick(static_cast<uint64_t>(held--)));
      } else {
        calls.push_back(pick(static_cast<uint64_t>(chunks)));
      }
    }
    while (held > 0) calls.push_back(100 + pick(static_cast<uint64_t>(held--)));
    struct Lease {
      LeaseArena::Lease lease;
      Bytes size;
      uint8_t mark = 0;
    };
    const auto make_step = [&](int unforeseen) {
      std::vector<std::optional<Lease>> leases;
      uint8_t mark = 1;
      const auto take = [&](int64_t wanted) {
        // What does not fit is not borrowed.
        const Bytes size(wanted);
        if (!leases_.EndOf(size).ok()) {
          leases.emplace_back();
          return;
        }
        leases.push_back(Lease{Borrow(size), size, mark++});
        std::memset(leases.back()->lease.data, leases.back()->mark,
                    static_cast<size_t>(wanted));
      };
      const auto give = [&](size_t at) {
        if (leases[at]) {
          for (int64_t i = 0; i < leases[at]->size.count(); ++i) {
            ASSERT_EQ(static_cast<uint8_t>(leases[at]->lease.data[i]),
                      leases[at]->mark);
          }
          Return(leases[at]->lease);
        }
        leases.erase(leases.begin() + static_cast<std::ptrdiff_t>(at));
      };
      for (size_t i = 0; i < calls.size(); ++i) {
        const bool more = static_cast<int>(i) == unforeseen;
        if (more) take(arena);
        const size_t extra = leases.size() - 1;
        if (calls[i] < 0) {
          take(-calls[i]);
        } else if (calls[i] >= 100) {
          give(static_cast<size_t>(calls[i] - 100));
        } else {
          Use(calls[i]);
        }
        if (more && calls[i] < 100) give(extra);
      }
      while (!leases.empty()) give(0);
      NextStep();
    };
    make_step(-1);
    ASSERT_NE(manager_->plan(), nullptr);
    make_step(-1);
    for (int step = 0; step < 3; ++step) {
      const MemoryManagerStats before = manager_->stats();
      make_step(-1);
      ASSERT_EQ(static_cast<double>(manager_->stats().fetches - before.fetches),
                Planned());
      spared += manager_->stats().gathers - before.gathers -
                (manager_->stats().fetches - before.fetches);
    }
    EXPECT_EQ(manager_->stats().divergences, 0);
    for (int step = 0; step < 3; ++step) {
      const int64_t before = manager_->stats().fetches;
      const double planned = Planned();
      make_step(pick(40));
      disturbed +=
          static_cast<double>(manager_->stats().fetches - before) > planned;
    }
    moved += static_cast<int64_t>(source_->moved.size());
    ASSERT_THAT(manager_->Close(), IsOk());
    manager_.reset();
  }
  EXPECT_GT(moved, 20);
  EXPECT_GT(spared, 100);
  EXPECT_GT(disturbed, 20);
}

}  // namespace
}  // namespace castor
