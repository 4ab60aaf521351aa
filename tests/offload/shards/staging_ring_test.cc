// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/shards/staging_ring.h"

#include <array>
#include <deque>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;

class StagingRingTest : public testing::Test {
 protected:
  void Open(int64_t slots, int64_t for_fetch = 0) {
    const std::vector<SlotClass> classes = {{KiB(4), 8}, {KiB(8), 4}};
    ring_.reset();  // before its pool
    pool_ = std::make_unique<TierPool>(
        *TierPool::Create(Tier::kHost, MiB(1), classes, nullptr));
    ring_ = std::make_unique<StagingRing>(pool_.get(), 0, slots, for_fetch);
  }
  // Asks for slots; what is granted is noted by `name` and kept.
  void Ask(const std::string& name, int64_t count,
           StagingUse use = StagingUse::kWork) {
    ASSERT_THAT(ring_->Take(count, use,
                            [this, name](std::span<Slot> slots) {
                              granted_.push_back(name);
                              for (Slot& slot : slots) {
                                held_.push_back(std::move(slot));
                              }
                            }),
                IsOk());
  }
  void GiveBack(Event free_after = {}) {
    Slot slot = std::move(held_.front());
    held_.pop_front();
    ring_->Give(std::move(slot), std::move(free_after));
  }
  void GiveAllBack() {
    while (!held_.empty()) GiveBack();
  }

  std::unique_ptr<TierPool> pool_;
  std::unique_ptr<StagingRing> ring_;
  std::vector<std::string> granted_;
  std::deque<Slot> held_;
};

TEST_F(StagingRingTest, HoldsItsSlotsWhileItLives) {
  Open(3);
  EXPECT_EQ(pool_->stats().in_use, KiB(12));
  EXPECT_EQ(ring_->slots(), 3);
  EXPECT_EQ(ring_->here(), 3);
  EXPECT_EQ(ring_->slot_bytes(), KiB(4));
  ring_.reset();
  EXPECT_EQ(pool_->stats().in_use, Bytes(0));
}

TEST_F(StagingRingTest, LendsTheLongestFreeFirst) {
  Open(3);
  Ask("all", 3);
  std::vector<int32_t> order;
  for (const Slot& slot : held_) order.push_back(slot.index);
  std::swap(held_[0], held_[2]);
  GiveAllBack();
  Ask("again", 3);
  EXPECT_EQ(held_[0].index, order[2]);
  EXPECT_EQ(held_[1].index, order[1]);
  EXPECT_EQ(held_[2].index, order[0]);
  GiveAllBack();
}

TEST_F(StagingRingTest, ASlotComesWithTheEventOfItsLastUse) {
  Open(1);
  Ask("first", 1);
  EventSource used;
  GiveBack(used.event());
  Ask("second", 1);
  EXPECT_FALSE(held_[0].free_after.done());
  used.Complete();
  EXPECT_TRUE(held_[0].free_after.done());
  GiveAllBack();
}

TEST_F(StagingRingTest, NothingOvertakesWhoWaits) {
  Open(2);
  Ask("a", 1);
  Ask("b", 2);
  EXPECT_FALSE(ring_->GrantsNow(1, StagingUse::kWork))
      << "though a slot is here";
  EXPECT_FALSE(ring_->GrantsNow(0, StagingUse::kWork));
  GiveAllBack();
  EXPECT_THAT(granted_, ElementsAre("a", "b"));
  GiveAllBack();
  EXPECT_TRUE(ring_->GrantsNow(2, StagingUse::kWork));
}

TEST_F(StagingRingTest, WhatCouldNeverBeServedIsRefusedWithTheNumbers) {
  Open(2);
  bool called = false;
  EXPECT_THAT(ring_->Take(5, StagingUse::kWork,
                          [&](std::span<Slot>) { called = true; }),
              StatusIs(ErrorCode::kInfeasible,
                       Says("5 staging slots", "there are 2",
                            "raise the host budget by 12288 bytes")));
  EXPECT_FALSE(called);
  EXPECT_THAT(ring_->CheckServable(2, StagingUse::kWork), IsOk());
}

TEST_F(StagingRingTest, AGrantMayGiveBackAndAskAtOnce) {
  Open(1);
  Ask("holder", 1);
  std::vector<std::string> order;
  ASSERT_THAT(ring_->Take(1, StagingUse::kWork,
                          [&](std::span<Slot> slots) {
                            order.push_back("first");
                            Ask("inner", 1);
                            ring_->Give(std::move(slots[0]), Event());
                            order.push_back("first is over");
                          }),
              IsOk());
  Ask("last", 1);
  GiveBack();
  EXPECT_THAT(order, ElementsAre("first", "first is over"));
  EXPECT_THAT(granted_, ElementsAre("holder", "last"))
      << "the inner one asked after it";
  GiveBack();
  EXPECT_THAT(granted_, ElementsAre("holder", "last", "inner"));
  GiveAllBack();
}

TEST_F(StagingRingTest, GrowsForAWhile) {
  Open(0);
  EXPECT_THAT(ring_->CheckServable(1, StagingUse::kWork),
              StatusIs(ErrorCode::kInfeasible));
  ring_->Grow(1, 2);
  EXPECT_EQ(ring_->slot_bytes(), KiB(8));
  Ask("a", 2);
  GiveAllBack();
  ring_->Shrink();
  EXPECT_EQ(pool_->stats().in_use, Bytes(0));
  EXPECT_EQ(ring_->slots(), 0);
}

TEST_F(StagingRingTest, ShrinksToTheSlotsThatItBeganWith) {
  Open(2);
  ring_->Grow(1, 3);
  EXPECT_EQ(ring_->slot_bytes(), KiB(4));
  Ask("a", 4);
  GiveAllBack();
  ring_->Shrink();
  EXPECT_EQ(ring_->slots(), 2);
  EXPECT_EQ(pool_->free_slots(1), 4) << "those of its own class stay";
  EXPECT_EQ(pool_->stats().in_use, KiB(8));
}

TEST_F(StagingRingTest, WorkLeavesTheSlotsOfFetchesAlone) {
  Open(3, 1);
  Ask("all that work may have", 2);
  EXPECT_FALSE(ring_->GrantsNow(1, StagingUse::kWork));
  EXPECT_TRUE(ring_->GrantsNow(1, StagingUse::kFetch));
  EXPECT_THAT(ring_->CheckServable(3, StagingUse::kWork),
              StatusIs(ErrorCode::kInfeasible, Says("there are 2")));
  EXPECT_THAT(ring_->CheckServable(2, StagingUse::kFetch),
              StatusIs(ErrorCode::kInfeasible, Says("there are 1")));
  Ask("fetch", 1, StagingUse::kFetch);
  EXPECT_THAT(granted_, ElementsAre("all that work may have", "fetch"));
  // It goes back to fetches, with the event of its last one alone.
  EventSource work, fetched;
  GiveBack(work.event());
  GiveBack(work.event());
  GiveBack(fetched.event());
  Ask("fetch again", 1, StagingUse::kFetch);
  fetched.Complete();
  EXPECT_TRUE(held_.front().free_after.done());
  EXPECT_FALSE(ring_->AllFree().done()) << "those of work are not";
  work.Complete();
  GiveAllBack();
  EXPECT_TRUE(ring_->AllFree().done());
}

TEST_F(StagingRingTest, AFetchWithASlotComesInItsTurnBehindWhoWaits) {
  Open(2, 1);
  Ask("work", 1);
  Ask("more work", 1);
  Ask("fetch", 1, StagingUse::kFetch);
  EXPECT_THAT(granted_, ElementsAre("work"))
      << "it may be one of what the work writes";
  GiveBack();
  EXPECT_THAT(granted_, ElementsAre("work", "more work", "fetch"));
  GiveAllBack();
}

// Against a queue of names and a count of slots.
TEST_F(StagingRingTest, RandomRequestsAreGrantedAsANaiveModelSays) {
  std::mt19937_64 random(TestSeed(61));
  for (int round = 0; round < 100; ++round) {
    const int64_t slots = 1 + static_cast<int64_t>(random() % 5);
    const int64_t for_fetch = static_cast<int64_t>(random()) & 1;
    Open(slots + for_fetch, for_fetch);
    granted_.clear();
    std::vector<std::string> want;
    struct Waiting {
      std::string name;
      int64_t count;
      StagingUse use;
    };
    std::deque<Waiting> waiting;
    // Of work and of fetches.
    std::array<int64_t, 2> here = {slots, for_fetch};
    const auto here_for = [&](StagingUse use) -> int64_t& {
      return here[use == StagingUse::kFetch && for_fetch > 0];
    };
    const auto serve = [&] {
      while (!waiting.empty() &&
             waiting.front().count <= here_for(waiting.front().use)) {
        here_for(waiting.front().use) -= waiting.front().count;
        want.push_back(waiting.front().name);
        waiting.pop_front();
      }
    };
    for (int i = 0; i < 200; ++i) {
      if (random() % 2 == 0) {
        const auto count = static_cast<int64_t>(random()) & 7;
        const std::string name = std::to_string(i);
        const auto use = static_cast<StagingUse>(random() % 2);
        const int64_t most =
            use == StagingUse::kFetch && for_fetch > 0 ? for_fetch : slots;
        if (count > most) {
          ASSERT_THAT(ring_->CheckServable(count, use),
                      StatusIs(ErrorCode::kInfeasible));
          continue;
        }
        Ask(name, count, use);
        waiting.push_back({name, count, use});
      } else if (!held_.empty()) {
        std::swap(held_.front(), held_[random() % held_.size()]);
        // Those of fetches are the last ones of the pool's.
        ++here[held_.front().index >= slots];
        GiveBack();
      }
      serve();
      ASSERT_EQ(granted_, want);
      ASSERT_EQ(ring_->here(), here[0] + here[1]);
      ASSERT_EQ(ring_->waiting(), static_cast<int64_t>(waiting.size()));
      ASSERT_EQ(static_cast<int64_t>(held_.size()),
                slots + for_fetch - here[0] - here[1]);
    }
    while (ring_->waiting() > 0 || !held_.empty()) GiveBack();
    EXPECT_EQ(ring_->here(), slots + for_fetch);
  }
}

using StagingRingDeathTest = StagingRingTest;

TEST_F(StagingRingDeathTest, ASlotThatIsNotBackIsADefect) {
  Open(2);
  Ask("a", 1);
  EXPECT_DEATH(ring_.reset(), "here");
  GiveAllBack();
}

}  // namespace
}  // namespace castor
