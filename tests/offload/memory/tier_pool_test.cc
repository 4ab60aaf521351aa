// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/memory/tier_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_seed.h"

// Every allocation of this binary is counted, to show where there is none.
namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* data = std::malloc(size)) return data;
  std::abort();
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace castor {
namespace {

constexpr Bytes kPage(4096);

std::vector<SlotClass> Classes(std::initializer_list<SlotClass> classes) {
  return classes;
}

TierPool MakePool(std::initializer_list<SlotClass> classes,
                  std::byte* base = nullptr, Tier tier = Tier::kNvme) {
  return *TierPool::Create(tier, GiB(1), Classes(classes), base);
}

// 4 KiB aligned memory to cut slots from.
class Memory {
 public:
  explicit Memory(Bytes size)
      : data_(static_cast<std::byte*>(
            std::aligned_alloc(4096, static_cast<size_t>(size.count())))) {}
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
};

TEST(TierPoolTest, CutsClassesOneAfterTheOther) {
  const Memory memory(kPage * 8);
  TierPool pool =
      MakePool({{kPage * 2, 3}, {kPage, 2}}, memory.data(), Tier::kHost);
  EXPECT_EQ(pool.tier(), Tier::kHost);
  EXPECT_EQ(pool.classes(), 2);
  EXPECT_EQ(pool.slot_class(1).slot_bytes, kPage);
  EXPECT_EQ(pool.slot_class(0).slots, 3);
  EXPECT_EQ(pool.stats().reserved, kPage * 8);
  EXPECT_EQ(pool.stats().budget, GiB(1));

  const Slot a = *pool.Take(0);
  const Slot b = *pool.Take(1);
  const Slot c = *pool.Take(0);
  const Slot d = *pool.Take(1);
  EXPECT_EQ(a.offset, Bytes(0));
  EXPECT_EQ(c.offset, kPage * 2);
  EXPECT_EQ(b.offset, kPage * 6);
  EXPECT_EQ(d.offset, kPage * 7);
  EXPECT_EQ(d.data, memory.data() + 7 * 4096);
  EXPECT_EQ(a.size, kPage * 2);
  EXPECT_EQ(b.size, kPage);
  EXPECT_TRUE(a.valid());
  EXPECT_FALSE(Slot().valid());
}

TEST(TierPoolTest, SlotsOnNvmeHaveAnOffsetAndNoData) {
  TierPool pool = MakePool({{kPage, 2}});
  EXPECT_EQ(pool.Take(0)->data, nullptr);
  EXPECT_EQ(pool.Take(0)->offset, kPage);
}

TEST(TierPoolTest, HandsOnTheEventOfThePreviousUser) {
  TierPool pool = MakePool({{kPage, 1}});
  const Slot first = *pool.Take(0);
  EXPECT_TRUE(first.free_after.done());
  const EventSource in_flight;
  pool.Give(first, in_flight.event());
  const Slot second = *pool.Take(0);
  EXPECT_FALSE(second.free_after.done());
  in_flight.Complete(IoError("disk"));
  EXPECT_THAT(second.free_after.status(), StatusIs(ErrorCode::kIoError));
  pool.Give(second, Event());
  EXPECT_TRUE(pool.Take(0)->free_after.done());
}

TEST(TierPoolTest, ReportsTierFullWithTheCounts) {
  TierPool pool = MakePool({{kPage, 2}, {kPage, 0}}, nullptr);
  EXPECT_THAT(pool.Take(0), IsOk());
  const Slot second = *pool.Take(0);
  EXPECT_THAT(pool.Take(0), StatusIs(ErrorCode::kTierFull,
                                     Says("2 slots of class 0 of the nvme pool",
                                          "8192 bytes", "budget of 1 GiB")));
  EXPECT_THAT(pool.Take(1), StatusIs(ErrorCode::kTierFull));
  pool.Give(second, Event());
  EXPECT_THAT(pool.Take(0), IsOk());
}

// Nothing falls through to another allocator (defect B6).
TEST(TierPoolTest, TheBudgetIsHardToTheByte) {
  const auto classes = Classes({{kPage * 3, 5}, {kPage, 2}});
  EXPECT_THAT(
      TierPool::Create(Tier::kHost, kPage * 17, classes, nullptr).status(),
      IsOk());
  EXPECT_THAT(
      TierPool::Create(Tier::kHost, kPage * 17 - Bytes(1), classes, nullptr)
          .status(),
      StatusIs(
          ErrorCode::kInfeasible,
          Says("host pool needs 69632 bytes",
               "5 slots of 12288 bytes + 2 slots of 4096",
               "budget is 69631 bytes", "raise the host budget by 1 bytes")));
}

TEST(TierPoolTest, SumsThatOverflowAreInfeasible) {
  const Bytes half(int64_t{1} << 62);
  const Bytes all(std::numeric_limits<int64_t>::max());
  for (const auto& classes :
       {Classes({{half, 2}}), Classes({{half, 1}, {half, 1}})}) {
    EXPECT_THAT(TierPool::Create(Tier::kHost, all, classes, nullptr).status(),
                StatusIs(ErrorCode::kInfeasible, Says("64 bits")));
  }
}

TEST(TierPoolTest, RefusesSlotsThatTransfersCannotUse) {
  const auto create = [](Tier tier, int64_t slot_bytes, int64_t slots) {
    return TierPool::Create(tier, GiB(1), Classes({{Bytes(slot_bytes), slots}}),
                            nullptr)
        .status();
  };
  EXPECT_THAT(create(Tier::kDevice, 512, 1), IsOk());
  EXPECT_THAT(create(Tier::kDevice, 511, 1),
              StatusIs(ErrorCode::kInvalidArgument, Says("512")));
  EXPECT_THAT(create(Tier::kHost, 512, 1),
              StatusIs(ErrorCode::kInvalidArgument, Says("4096")));
  EXPECT_THAT(create(Tier::kNvme, 4097, 1),
              StatusIs(ErrorCode::kInvalidArgument, Says("4096")));
  EXPECT_THAT(create(Tier::kNvme, 0, 1), StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(create(Tier::kNvme, -4096, 1),
              StatusIs(ErrorCode::kInvalidArgument));
  EXPECT_THAT(create(Tier::kNvme, 4096, -1),
              StatusIs(ErrorCode::kInvalidArgument, Says("-1 slots")));
  EXPECT_THAT(create(Tier::kDevice, 512, int64_t{1} << 31),
              StatusIs(ErrorCode::kInvalidArgument, Says("2147483647")));
}

TEST(TierPoolDeathTest, GivingBackTwiceIsADefect) {
  TierPool pool = MakePool({{kPage, 2}});
  const Slot slot = *pool.Take(0);
  pool.Give(slot, Event());
  EXPECT_DEATH(pool.Give(slot, Event()), "taken");
}

TEST(TierPoolDeathTest, ASlotMustBeOfThisPool) {
  TierPool pool = MakePool({{kPage, 2}});
  const Slot slot = *pool.Take(0);
  Slot elsewhere = slot;
  elsewhere.offset = kPage;
  EXPECT_DEATH(pool.Give(elsewhere, Event()), "offset");
  elsewhere = slot;
  elsewhere.index = 2;
  EXPECT_DEATH(pool.Give(elsewhere, Event()), "slot.index");
  EXPECT_DEATH(pool.Give(Slot(), Event()), "slot_class");
  const Memory memory(kPage);
  elsewhere = slot;
  elsewhere.data = memory.data();
  EXPECT_DEATH(pool.Give(elsewhere, Event()), "data");
}

TEST(TierPoolDeathTest, TheClassMustExist) {
  TierPool pool = MakePool({{kPage, 2}});
  EXPECT_DEATH(pool.Take(1).status().IgnoreError(), "slot_class");
  EXPECT_DEATH(pool.Take(-1).status().IgnoreError(), "slot_class");
}

TEST(TierPoolDeathTest, TheBaseMustBeAligned) {
  const Memory memory(kPage * 2);
  EXPECT_DEATH(MakePool({{kPage, 1}}, memory.data() + 512, Tier::kHost),
               "base");
  MakePool({{kPage, 1}}, memory.data() + 512, Tier::kDevice);
}

TEST(TierPoolTest, AllocatesNothingAfterCreate) {
  TierPool pool = MakePool({{kPage, 64}, {kPage * 2, 8}});
  std::vector<Slot> slots(72);
  const EventSource source;
  const int64_t before = allocations;
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < slots.size(); ++i) {
      Result<Slot> slot = pool.Take(i < 64 ? 0 : 1);
      slots[i] = *std::move(slot);
    }
    // An order that makes the heap work.
    for (size_t i = 0; i < slots.size(); ++i) {
      pool.Give(slots[i * 29 % 72], source.event());
    }
  }
  EXPECT_EQ(allocations, before);
  // The counter counts.
  EXPECT_GT((std::make_unique<int>(1), allocations.load()), before);
}

// Random instructions against a naive model. Every slot taken is filled with a
// pattern of its own and read again when given back: two slots that share a
// byte are found out.

struct TakeOne {
  int32_t slot_class;
};
struct GiveOne {
  size_t which;  // of those held, modulo their number
};
struct GiveAll {};
using Instruction = std::variant<TakeOne, GiveOne, GiveAll>;

class PoolAndModel {
 public:
  explicit PoolAndModel(const std::vector<SlotClass>& classes)
      : classes_(classes),
        free_(classes.size()),
        memory_(Total(classes)),
        pool_(*TierPool::Create(Tier::kHost, Total(classes), classes,
                                memory_.data())) {
    for (size_t c = 0; c < classes.size(); ++c) {
      for (int32_t i = 0; i < classes[c].slots; ++i) free_[c].push_back(i);
    }
  }

  void Perform(const TakeOne& take) {
    const Result<Slot> slot = pool_.Take(take.slot_class);
    std::deque<int32_t>& free = free_[static_cast<size_t>(take.slot_class)];
    if (free.empty()) {
      ASSERT_THAT(slot, StatusIs(ErrorCode::kTierFull));
      return;
    }
    ASSERT_THAT(slot, IsOk());
    ASSERT_EQ(slot->index, free.front());
    free.pop_front();
    ASSERT_EQ(slot->size,
              classes_[static_cast<size_t>(take.slot_class)].slot_bytes);
    std::memset(slot->data, Pattern(*slot),
                static_cast<size_t>(slot->size.count()));
    held_[{slot->slot_class, slot->index}] = *slot;
  }

  void Perform(const GiveOne& give) {
    if (held_.empty()) return;
    Release(std::next(held_.begin(),
                      static_cast<std::ptrdiff_t>(give.which % held_.size())));
  }

  void Perform(const GiveAll&) {
    while (!held_.empty()) Release(held_.begin());
  }

  void CheckInvariants() {
    Bytes in_use;
    std::vector<int64_t> free;
    for (const SlotClass& shape : classes_) free.push_back(shape.slots);
    for (const auto& [key, slot] : held_) {
      in_use += slot.size;
      --free[static_cast<size_t>(key.first)];
    }
    peak_ = std::max(peak_, in_use);
    ASSERT_EQ(pool_.stats().in_use, in_use);
    ASSERT_EQ(pool_.stats().peak, peak_);
    ASSERT_EQ(pool_.stats().takes - pool_.stats().gives, std::ssize(held_));
    for (int32_t i = 0; i < pool_.classes(); ++i) {
      ASSERT_EQ(pool_.free_slots(i), free[static_cast<size_t>(i)]);
    }
  }

 private:
  using Held = std::map<std::pair<int32_t, int32_t>, Slot>;

  static Bytes Total(const std::vector<SlotClass>& classes) {
    Bytes total;
    for (const SlotClass& shape : classes) {
      total += shape.slot_bytes * shape.slots;
    }
    return total;
  }
  static int Pattern(const Slot& slot) {
    return slot.slot_class * 64 + slot.index + 1;
  }
  void Release(Held::iterator held) {
    const Slot& slot = held->second;
    for (int64_t i = 0; i < slot.size.count(); ++i) {
      ASSERT_EQ(static_cast<int>(slot.data[i]), Pattern(slot));
    }
    pool_.Give(slot, Event());
    free_[static_cast<size_t>(slot.slot_class)].push_back(slot.index);
    held_.erase(held);
  }

  std::vector<SlotClass> classes_;
  std::vector<std::deque<int32_t>> free_;  // by class, longest free first
  Memory memory_;
  TierPool pool_;
  Held held_;
  Bytes peak_;
};

TEST(TierPoolTest, AgreesWithANaiveModelOnRandomInstructions) {
  std::mt19937_64 random(TestSeed(20240601));
  const auto below = [&](size_t n) { return random() % n; };
  for (int list = 0; list < 20; ++list) {
    std::vector<SlotClass> classes;
    for (size_t i = 1 + below(3); i > 0; --i) {
      classes.push_back({kPage * static_cast<int64_t>(1 + below(4)),
                         static_cast<int64_t>(below(12))});
    }
    PoolAndModel state(classes);
    for (int step = 0; step < 300; ++step) {
      Instruction next = TakeOne{static_cast<int32_t>(below(classes.size()))};
      if (below(100) < 45) next = GiveOne{below(1000)};
      if (below(100) < 2) next = GiveAll{};
      std::visit([&](const auto& each) { state.Perform(each); }, next);
      state.CheckInvariants();
      ASSERT_FALSE(HasFatalFailure()) << "list " << list << " step " << step;
    }
    state.Perform(GiveAll{});
    state.CheckInvariants();
  }
}

TEST(TierPoolTest, AnAddedSlotIsTheLastInTurnAndWithinTheBudget) {
  alignas(4096) static std::byte cut[2 * 4096];
  alignas(4096) static std::byte more[4096];
  Result<TierPool> made =
      TierPool::Create(Tier::kHost, kPage * 3, Classes({{kPage, 2}}), cut);
  ASSERT_THAT(made, IsOk());
  TierPool& pool = *made;
  const Slot first = *pool.Take(0);
  ASSERT_THAT(pool.AddSlot(0, more), IsOk());
  EXPECT_EQ(pool.stats().reserved, kPage * 3);
  EXPECT_EQ(pool.free_slots(0), 2);
  const Slot second = *pool.Take(0);
  const Slot third = *pool.Take(0);
  EXPECT_EQ(second.data, cut + 4096);
  EXPECT_EQ(third.data, more);
  EXPECT_EQ(third.offset, kPage * 2);
  EXPECT_THAT(pool.Take(0), StatusIs(ErrorCode::kTierFull, Says("3 slots")));
  EXPECT_THAT(pool.AddSlot(0, more), StatusIs(ErrorCode::kInfeasible));
  for (const Slot* slot : {&third, &first, &second}) pool.Give(*slot, Event());
  EXPECT_EQ(pool.Take(0)->data, more) << "free for longest";
}

}  // namespace
}  // namespace castor
