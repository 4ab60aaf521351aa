// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/lease_arena.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr Bytes kUnit(512);

class Memory {
 public:
  explicit Memory(Bytes size)
      : bytes_(new std::byte[static_cast<size_t>(size.count())]) {}
  std::byte* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<std::byte[]> bytes_;
};

TEST(LeaseArenaTest, LendsNothingWhereThereIsNothing) {
  LeaseArena arena;
  EXPECT_THAT(
      arena.Borrow(Bytes(1)).status(),
      StatusIs(ErrorCode::kTierFull, HasSubstr("of the 0 bytes declared")));
  EXPECT_THAT(arena.Borrow(Bytes(0)), IsOk());
}

TEST(LeaseArenaTest, LendsTheFirstGapThatIsLargeEnough) {
  const Memory memory(kUnit * 8);
  LeaseArena arena(memory.data(), kUnit * 8);
  const LeaseArena::Lease a = *arena.Borrow(Bytes(1));
  const LeaseArena::Lease b = *arena.Borrow(kUnit * 2);
  const LeaseArena::Lease c = *arena.Borrow(kUnit + Bytes(1));
  EXPECT_EQ(a.data, memory.data());
  EXPECT_EQ(b.data, memory.data() + 512);
  EXPECT_EQ(c.data, memory.data() + 3 * 512);
  EXPECT_EQ(arena.in_use(), kUnit * 5);
  arena.Return(b.id, Event());
  EXPECT_EQ(arena.Borrow(kUnit * 3)->data, memory.data() + 5 * 512);
  EXPECT_EQ(arena.Borrow(kUnit * 2)->data, memory.data() + 512);
  EXPECT_EQ(arena.leases(), 4u);
}

// What is free in pieces is not counted as free (defect B9).
TEST(LeaseArenaTest, SaysHowMuchIsOnLeaseAndTheLargestGap) {
  const Memory memory(kUnit * 8);
  LeaseArena arena(memory.data(), kUnit * 8);
  const LeaseArena::Lease first = *arena.Borrow(kUnit * 3);
  const LeaseArena::Lease second = *arena.Borrow(kUnit * 3);
  arena.Return(first.id, Event());
  // Five units are free, in two gaps.
  EXPECT_THAT(
      arena.Borrow(kUnit * 4).status(),
      StatusIs(ErrorCode::kTierFull,
               AllOf(HasSubstr("cannot lend 2048 bytes"),
                     HasSubstr("of the 4096 bytes declared at Seal(), 1536 "),
                     HasSubstr("largest gap between them has 1536 bytes"))));
  EXPECT_EQ(arena.leases(), 1u);
  arena.Return(second.id, Event());
  EXPECT_THAT(arena.Borrow(kUnit * 8), IsOk());
}

TEST(LeaseArenaTest, RefusesSizesWithoutMeaning) {
  const Memory memory(kUnit * 8);
  LeaseArena arena(memory.data(), kUnit * 8);
  EXPECT_THAT(arena.Borrow(Bytes(-1)).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(arena.Borrow(Bytes(std::numeric_limits<int64_t>::max())).status(),
              StatusIs(ErrorCode::kTierFull));
  EXPECT_EQ(arena.in_use(), Bytes(0));
}

TEST(LeaseArenaTest, AnEmptyLeaseTakesNoRoom) {
  const Memory memory(kUnit);
  LeaseArena arena(memory.data(), kUnit);
  const LeaseArena::Lease whole = *arena.Borrow(kUnit);
  const LeaseArena::Lease empty = *arena.Borrow(Bytes(0));
  EXPECT_EQ(arena.in_use(), kUnit);
  EXPECT_EQ(arena.leases(), 2u);
  arena.Return(empty.id, Event());
  arena.Return(whole.id, Event());
  EXPECT_THAT(arena.Borrow(kUnit), IsOk());
}

TEST(LeaseArenaTest, ALeaseWaitsForThoseWhoseBytesItTakesAndNoOthers) {
  const Memory memory(kUnit * 4);
  LeaseArena arena(memory.data(), kUnit * 4);
  std::vector<EventSource> sources(3);
  std::vector<int32_t> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(arena.Borrow(kUnit)->id);
  for (size_t i = 0; i < 3; ++i) arena.Return(ids[i], sources[i].event());

  const LeaseArena::Lease two = *arena.Borrow(kUnit * 2);
  EXPECT_FALSE(two.free_after.done());
  sources[0].Complete();
  EXPECT_FALSE(two.free_after.done());
  sources[1].Complete();
  EXPECT_TRUE(two.free_after.done()) << "the third range is not part of it";
  const LeaseArena::Lease rest = *arena.Borrow(kUnit * 2);
  EXPECT_FALSE(rest.free_after.done());
  sources[2].Complete(IoError("lost"));
  EXPECT_THAT(rest.free_after.status(), StatusIs(ErrorCode::kIoError));
}

TEST(LeaseArenaTest, APartOfAFreedRangeIsNotForgottenWithAnotherPart) {
  const Memory memory(kUnit * 4);
  LeaseArena arena(memory.data(), kUnit * 4);
  EventSource source;
  arena.Return(arena.Borrow(kUnit * 4)->id, source.event());
  const LeaseArena::Lease left = *arena.Borrow(kUnit);
  arena.Return(left.id, Event());
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(arena.Borrow(kUnit)->free_after.done()) << i;
  }
  source.Complete();
}

TEST(LeaseArenaTest, ManyReturnsWithoutProgressOfTheLaneStayOrdered) {
  // As a lane does that is far behind: each lease ends after the one before.
  const Memory memory(kUnit * 4);
  LeaseArena arena(memory.data(), kUnit * 4);
  EventSource first;
  Event last = first.event();
  for (int i = 0; i < 100'000; ++i) {
    const LeaseArena::Lease lease = *arena.Borrow(kUnit * 4);
    ASSERT_EQ(lease.free_after.done(), i == 0);
    arena.Return(lease.id, last);
  }
  first.Complete();
  EXPECT_TRUE(arena.Borrow(kUnit)->free_after.done());
}

// The naive model: for each unit of the arena who holds it, and the events of
// all who held it before.
struct Model {
  explicit Model(size_t units) : holder(units, -1), previous(units) {}
  std::vector<int32_t> holder;
  std::vector<std::vector<Event>> previous;
};

TEST(LeaseArenaTest, RandomLeasesNeverOverlapAndWaitForTheirPredecessors) {
  std::mt19937_64 random(TestSeed(11));
  constexpr size_t kUnits = 24;
  for (int round = 0; round < 200; ++round) {
    const Memory memory(kUnit * kUnits);
    LeaseArena arena(memory.data(), kUnit * kUnits);
    Model model(kUnits);
    struct Held {
      size_t begin, end;
      Event free_after;
    };
    std::map<int32_t, Held> held;
    std::vector<EventSource> sources;
    std::vector<bool> completed;
    for (int i = 0; i < 300; ++i) {
      const uint64_t what = random() % 3;
      if (what == 0) {
        const size_t units = random() % 9;
        const Bytes size =
            units == 0 ? Bytes(0)
                       : kUnit * static_cast<int64_t>(units) -
                             Bytes(static_cast<int64_t>(random() % 512));
        // First fit, counted unit by unit.
        size_t begin = 0;
        for (size_t run = 0, at = 0; at < kUnits && run < units; ++at) {
          run = model.holder[at] < 0 ? run + 1 : 0;
          begin = at + 1 - run;
          if (run == units) break;
          if (at + 1 == kUnits) begin = kUnits;
        }
        Result<LeaseArena::Lease> lease = arena.Borrow(size);
        if (begin + units > kUnits) {
          ASSERT_THAT(lease.status(), StatusIs(ErrorCode::kTierFull));
          continue;
        }
        ASSERT_THAT(lease, IsOk());
        if (units > 0) {
          ASSERT_EQ(lease->data, memory.data() + begin * 512);
        }
        bool waits = false;
        for (size_t at = begin; at < begin + units; ++at) {
          ASSERT_EQ(model.holder[at], -1);
          model.holder[at] = lease->id;
          for (const Event& event : model.previous[at]) {
            waits = waits || !event.done();
          }
        }
        ASSERT_EQ(lease->free_after.done(), !waits);
        ASSERT_EQ(held.count(lease->id), 0u);
        ASSERT_EQ(arena.SizeOf(lease->id), Bytes(512) * units);
        held[lease->id] = {begin, begin + units, lease->free_after};
      } else if (what == 1 && !held.empty()) {
        auto it = held.begin();
        std::advance(it, static_cast<int64_t>(random() % held.size()));
        // What its user queued ends once the lease was free and the user done.
        sources.emplace_back();
        completed.push_back(false);
        const Event both[] = {it->second.free_after, sources.back().event()};
        const Event end = castor::AllOf(both);
        for (size_t at = it->second.begin; at < it->second.end; ++at) {
          model.holder[at] = -1;
          model.previous[at].push_back(end);
        }
        arena.Return(it->first, end);
        held.erase(it);
      } else if (what == 2 && !sources.empty()) {
        const size_t s = random() % sources.size();
        if (!completed[s]) sources[s].Complete();
        completed[s] = true;
      }
      const auto in_use =
          std::count_if(model.holder.begin(), model.holder.end(),
                        [](int32_t id) { return id >= 0; });
      ASSERT_EQ(arena.in_use(), kUnit * in_use);
      ASSERT_EQ(arena.leases(), held.size());
    }
  }
}

TEST(LeaseArenaDeathTest, ALeaseIsReturnedOnce) {
  const Memory memory(kUnit);
  LeaseArena arena(memory.data(), kUnit);
  const int32_t id = arena.Borrow(kUnit)->id;
  arena.Return(id, Event());
  EXPECT_DEATH(arena.Return(id, Event()), "");
}

}  // namespace
}  // namespace castor
