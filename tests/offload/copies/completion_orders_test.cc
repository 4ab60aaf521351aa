// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// That nothing ever waits for itself, by trying: a rank of two or three chunks,
// with fewer slots than chunks and one staging slot, in every order in which
// its copies, its drive, its optimizer and its trainer may get done with what
// they do. In each of them every access is served, with the right bytes.

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <span>
#include <utility>
#include <vector>

#include "chunk/base/tier.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "offload/memory/tier_pool.h"
#include "offload/shards/staging_ring.h"
#include "placement/plan.h"
#include "tests/offload/copies/small_rank.h"
#include "tests/offload/copies/small_rank_memory.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/fakes/order_explorer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

using small_rank::kSize;
using small_rank::Memory;
using small_rank::Program;
using small_rank::Setting;
using small_rank::SmallRank;

class CompletionOrdersTest : public testing::Test {
 protected:
  void Explore(const Setting& setting) {
    SCOPED_TRACE(setting.explored);
    Memory memory(setting);
    OrderExplorer orders;
    do {
      SmallRank rank(setting, &memory, &orders);
      rank.Run(Program(setting.before));
      rank.Explore(Program(setting.explored));
      prefetched_ += rank.stats().prefetched_gathers;
      cancelled_ += rank.stats().cancelled_gathers;
      staging_waits_ += rank.staging_waits();
    } while (!HasFailure() && orders.Next());
    std::cout << orders.orders() << " orders of " << setting.explored << ", "
              << setting.chunks << " chunks in " << setting.slots
              << " slots, prefetch " << setting.depth
              << (setting.thread ? ", on a thread" : "")
              << (setting.turns ? ", with turns of lanes" : "") << "\n";
    orders_ += orders.orders();
  }

  int64_t orders_ = 0;
  // In some order.
  int64_t prefetched_ = 0;
  int64_t cancelled_ = 0;
  int64_t staging_waits_ = 0;
};

TEST_F(CompletionOrdersTest, EveryAccessIsServedInEveryOrder) {
  const std::vector<Setting> settings = {
      // On demand, one slot for two chunks; and ahead.
      {2, 1, 0, false, "b u0 u1 e b", "u0 u1"},
      {2, 1, 1, false, "b u0 u1 e b", "u0 u1"},
      {2, 1, 0, true, "b u0 u1 e", "w0 w1 b u0 u1"},
      {2, 1, 1, true, "b u0 u1 e", "w0 w1 b u0 u1"},
      {2, 1, 1, false, "b u0 u1 e", "w0 b u0 u1", PlanPolicy::kPlanned},
      // What is fetched ahead is not what comes.
      {2, 1, 1, false, "b u0 u1 e", "w0 b u1 u0"},
      {2, 1, 1, true, "b u0 u1 e", "w0 w1 b u1 u0"},
      // A window holds the staging slot while others ask for it.
      {2, 1, 0, false, "b u0 u1 e", "o0 b u1 c0 u0"},
      {2, 2, 1, false, "b u0 u1 e b", "u0 o1 u0 c1"},
      // Gradients take slots and staging on their way out.
      {2, 2, 1, true, "b h0 u1 l0 g1 e", "w1 b h0 u1 l0 g1"},
      {2, 2, 1, false, "b u0 g0 e", "w0 b u0 g0"},
      {2, 1, 1, true, "b u0 g0 u1 g1 e", "w0 b u0 g0 u1 g1"},
      // Homes on two tiers, which only meet in the ring.
      {2, 1, 1, true, "b u0 u1 e", "w0 w1 b u0 u1", PlanPolicy::kAuto,
       Tier::kHost},
      // Three chunks in two slots.
      {3, 2, 1, true, "b u0 u1 u2 u1 e", "w0 b u0 u1 u2 u1"},
      // Fetches have a staging slot of their own, and pass the updates.
      {2, 1, 0, true, "b u0 u1 e", "w1 w0 b u0 u1", PlanPolicy::kAuto,
       Tier::kNvme, false, 1},
      {2, 1, 1, false, "b u0 u1 e", "w0 w1 b u0 u1", PlanPolicy::kAuto,
       Tier::kNvme, false, 1},
      {2, 1, 0, false, "b u0 u1 e", "o0 b u1 c0 u0", PlanPolicy::kAuto,
       Tier::kNvme, false, 1},
      {2, 2, 1, true, "b h0 u1 l0 g1 e", "w1 b h0 u1 l0 g1", PlanPolicy::kAuto,
       Tier::kNvme, false, 1},
      // The turns of lanes, too.
      {2, 1, 0, false, "b u0 u1 e b", "u0", PlanPolicy::kAuto, Tier::kNvme,
       true},
  };
  for (size_t i = 0; i < settings.size() && !HasFailure();
       i += static_cast<size_t>(TestStride())) {
    Explore(settings[i]);
  }
  std::cout << orders_ << " orders in all\n";
  if (TestStride() > 1) return;
  EXPECT_GT(orders_, 500);
  EXPECT_GT(prefetched_, 0);
  EXPECT_GT(cancelled_, 0);
  EXPECT_GT(staging_waits_, 0);
}

// Each of two takes two slots, one by one, or both at once: why the ring lends
// a request all its slots together, and that an order in which two wait for
// each other is found where there is one.
TEST_F(CompletionOrdersTest, SlotsTakenOneByOneAreWaitedForAllAtOnceAreNot) {
  struct Taker {
    std::vector<Slot> slots;
    bool waits = false;
    bool done = false;
  };
  for (const int64_t at_once : {1, 2}) {
    OrderExplorer orders;
    int64_t stuck = 0;
    do {
      AlignedBytes memory(kSize * 2);
      const SlotClass two{kSize, 2};
      TierPool pool = *TierPool::Create(Tier::kHost, kSize * 2,
                                        std::span(&two, 1), memory.data());
      StagingRing ring(&pool, 0, 2);
      Taker takers[2];
      const auto give_all = [&ring](Taker& taker) {
        for (Slot& slot : std::exchange(taker.slots, {})) {
          ring.Give(std::move(slot), Event());
        }
      };
      for (;;) {
        std::vector<Taker*> able;
        for (Taker& taker : takers) {
          if (!taker.waits && !taker.done) able.push_back(&taker);
        }
        if (able.empty()) break;
        Taker& taker = *able[orders.Choose(able.size())];
        if (taker.slots.size() == 2) {
          give_all(taker);
          taker.done = true;
          continue;
        }
        taker.waits = true;
        const auto granted = [&taker](std::span<Slot> slots) {
          taker.waits = false;
          for (Slot& slot : slots) taker.slots.push_back(std::move(slot));
        };
        ASSERT_THAT(ring.Take(at_once, StagingUse::kWork, granted), IsOk());
      }
      stuck += !takers[0].done || !takers[1].done;
      while (ring.here() < ring.slots()) {
        for (Taker& taker : takers) give_all(taker);
      }
    } while (orders.Next());
    EXPECT_EQ(stuck > 0, at_once == 1) << stuck << " of " << orders.orders();
    EXPECT_LT(stuck, orders.orders());
  }
}

}  // namespace
}  // namespace castor
