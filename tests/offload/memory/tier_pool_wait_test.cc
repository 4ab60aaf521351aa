// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Pools that are full, and classes that come and go.

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::ElementsAre;

constexpr SlotHold kPassing = SlotHold::kPassing;
constexpr SlotHold kSettled = SlotHold::kSettled;

TierPool MakePool(std::vector<SlotClass> classes, Bytes budget = MiB(1)) {
  return *TierPool::Create(Tier::kHost, budget, classes, nullptr);
}

TEST(TierPoolWaitTest, WaitsForTheNextSlotGivenBackWithItsEvent) {
  TierPool pool = MakePool({{KiB(4), 2}});
  const Slot a = *pool.Take(0);
  const Slot b = *pool.Take(0);
  std::vector<int32_t> granted;
  Slot got;
  const auto note = [&](Slot slot) {
    granted.push_back(slot.index);
    got = slot;
  };
  ASSERT_THAT(pool.TakeNext(0, kPassing, note), IsOk());
  ASSERT_THAT(pool.TakeNext(0, kSettled, note), IsOk());
  EXPECT_EQ(pool.waiting(0), 2);
  EventSource used;
  pool.Give(b, used.event());
  EXPECT_THAT(granted, ElementsAre(1));
  EXPECT_FALSE(got.free_after.done());
  EXPECT_THAT(pool.Take(0).status(), StatusIs(ErrorCode::kTierFull))
      << "nobody overtakes";
  pool.Give(a, Event());
  EXPECT_THAT(granted, ElementsAre(1, 0));
  EXPECT_EQ(pool.waiting(0), 0);
  used.Complete();
}

TEST(TierPoolWaitTest, WhatNeverComesBackIsNotWaitedFor) {
  TierPool pool = MakePool({{KiB(4), 2}});
  const Slot settled = *pool.Take(0, kSettled);
  const Slot passing = *pool.Take(0, kPassing);
  int granted = 0;
  const auto count = [&](Slot) { ++granted; };
  ASSERT_THAT(pool.TakeNext(0, kSettled, count), IsOk());
  EXPECT_THAT(
      pool.TakeNext(0, kSettled, count),
      StatusIs(ErrorCode::kTierFull,
               Says("all 2 slots of class 0", "1 of them are on their way back",
                    "1 requests wait")));
  EXPECT_EQ(granted, 0);
  pool.MarkPassing(settled);
  ASSERT_THAT(pool.TakeNext(0, kSettled, count), IsOk());
  pool.Give(passing, Event());
  pool.Give(settled, Event());
  EXPECT_EQ(granted, 2);
  EXPECT_THAT(pool.TakeNext(0, kSettled, count),
              StatusIs(ErrorCode::kTierFull, Says("0 of them")));
}

TEST(TierPoolWaitTest, AGrantMayGiveAndTake) {
  TierPool pool = MakePool({{KiB(4), 1}});
  const Slot held = *pool.Take(0);
  int grants = 0;
  TierPool::Granted again = [&](Slot slot) {
    if (++grants < 5) {
      ASSERT_THAT(pool.TakeNext(0, kPassing, again), IsOk());
    }
    pool.Give(slot, Event());
  };
  ASSERT_THAT(pool.TakeNext(0, kPassing, again), IsOk());
  pool.Give(held, Event());
  EXPECT_EQ(grants, 5);
  EXPECT_EQ(pool.stats().in_use, Bytes(0));
}

TEST(TierPoolExtendTest, AddsClassesOfOtherMemoryAndTakesThemAwayAgain) {
  AlignedBytes own(KiB(8));
  AlignedBytes other(KiB(24));
  const std::vector<SlotClass> classes = {{KiB(8), 1}};
  TierPool pool = *TierPool::Create(Tier::kHost, KiB(32), classes, own.data());
  const std::vector<SlotClass> more = {{KiB(4), 2}, {KiB(16), 1}};
  ASSERT_OK_AND_ASSIGN(const int32_t first, pool.Extend(more, other.data()));
  EXPECT_EQ(first, 1);
  EXPECT_EQ(pool.stats().reserved, KiB(32));
  const Slot a = *pool.Take(1);
  const Slot b = *pool.Take(1);
  const Slot c = *pool.Take(2);
  EXPECT_EQ(a.data, other.data());
  EXPECT_EQ(b.data, other.data() + 4096);
  EXPECT_EQ(c.data, other.data() + 8192);
  EXPECT_EQ(c.offset, KiB(16)) << "after all others";
  EXPECT_EQ(pool.SmallestClass(KiB(5), false), 0);
  EXPECT_EQ(pool.SmallestClass(KiB(1), false), 1);
  EXPECT_EQ(pool.SmallestClass(KiB(1), true), 0);
  EXPECT_EQ(pool.SmallestClass(KiB(17), false), -1);
  for (const Slot& slot : {a, b, c}) pool.Give(slot, Event());
  pool.Retract(first);
  EXPECT_EQ(pool.classes(), 1);
  EXPECT_EQ(pool.stats().reserved, KiB(8));
  EXPECT_EQ(pool.Take(0)->data, own.data());
}

TEST(TierPoolExtendTest, TheBudgetHoldsForExtensionsToo) {
  TierPool pool = MakePool({{KiB(8), 1}}, KiB(16));
  const std::vector<SlotClass> more = {{KiB(4), 3}};
  EXPECT_THAT(pool.Extend(more, nullptr).status(),
              StatusIs(ErrorCode::kInfeasible,
                       Says("20480 bytes", "beside", "16384 bytes")));
  EXPECT_EQ(pool.classes(), 1);
}

TEST(TierPoolExtendTest, AnEmptyPoolMayBeMoved) {
  AlignedBytes one(KiB(8));
  AlignedBytes two(KiB(8));
  const std::vector<SlotClass> classes = {{KiB(4), 2}};
  TierPool pool = *TierPool::Create(Tier::kHost, KiB(8), classes, one.data());
  pool.Give(*pool.Take(0), Event());
  pool.Rebase(two.data());
  const Slot a = *pool.Take(0);
  EXPECT_EQ(a.data, two.data() + 4096);
  EXPECT_EQ(pool.Take(0)->data, two.data());
}

TEST(TierPoolExtendTest, KnowsWhenAllThatIsNotTakenIsFree) {
  TierPool pool = MakePool({{KiB(4), 3}});
  const Slot a = *pool.Take(0);
  const Slot b = *pool.Take(0);
  EventSource used;
  pool.Give(a, used.event());
  const Event free = pool.AllFree(0);
  EXPECT_FALSE(free.done());
  used.Complete(IoError("gone"));
  EXPECT_THAT(free.Wait(), StatusIs(ErrorCode::kIoError));
  pool.Give(b, Event());
}

// Against counts and a queue, with slots that settle and pass.
TEST(TierPoolWaitTest, RandomWaitersAreServedAsANaiveModelSays) {
  std::mt19937_64 random(TestSeed(62));
  int64_t refused = 0;
  int64_t waited = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t slots = 1 + static_cast<int64_t>(random() % 4);
    TierPool pool = MakePool({{KiB(4), slots}});
    std::vector<std::pair<int, Slot>> held;  // by request
    std::deque<std::pair<int, SlotHold>> waiting;
    std::map<int, SlotHold> hold;  // of those held
    int64_t free = slots;
    for (int i = 0; i < 100; ++i) {
      if (random() % 2 == 0) {
        const SlotHold how = random() % 3 == 0 ? kSettled : kPassing;
        int64_t passing = 0;
        for (const auto& [name, kept] : hold) passing += kept == kPassing;
        const bool serves =
            free > 0 || static_cast<int64_t>(waiting.size()) < passing;
        const Status asked = pool.TakeNext(
            0, how, [&held, i](Slot slot) { held.emplace_back(i, slot); });
        ASSERT_EQ(asked.ok(), serves);
        refused += !serves;
        if (!serves) continue;
        if (free > 0) {
          --free;
          hold[i] = how;
        } else {
          ++waited;
          waiting.emplace_back(i, how);
        }
      } else if (!held.empty()) {
        const size_t which = random() % held.size();
        const auto [name, slot] = held[which];
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        hold.erase(name);
        pool.Give(slot, Event());
        ++free;
        if (!waiting.empty()) {
          --free;
          hold[waiting.front().first] = waiting.front().second;
          waiting.pop_front();
        }
      }
      ASSERT_EQ(pool.free_slots(0), free);
      ASSERT_EQ(held.size(), hold.size());
      for (const auto& [name, slot] : held) ASSERT_TRUE(hold.contains(name));
      ASSERT_EQ(pool.waiting(0), static_cast<int64_t>(waiting.size()));
    }
    while (!held.empty()) {
      const Slot slot = held.back().second;
      held.pop_back();
      pool.Give(slot, Event());
    }
  }
  EXPECT_GT(refused, 100);
  EXPECT_GT(waited, 100);
}

}  // namespace
}  // namespace castor
