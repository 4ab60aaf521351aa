// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The time that operations of the twin take: turned by hand, one step at a
// time, for each race of a transfer's end with what happens meanwhile; counted,
// where a whole run takes exactly what its recurrence says; and real.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_device.h"
#include "offload/twin/simulated_link.h"
#include "placement/tier_model.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/fakes/manual_timer.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

// A byte in a nanosecond, after ten.
constexpr LinkModel kLink = {.bytes_per_second = 1'000'000'000,
                             .latency_ns = 10};
constexpr Bytes kRoom = KiB(64);

SimulatedLinkModels Links(Duplex duplex) {
  return {.to_device = kLink, .from_device = kLink, .duplex = duplex};
}

class HandTurnedDeviceTest : public testing::Test {
 protected:
  void Make(const SimulatedLinkModels& links) {
    device_.emplace(SimulatedDeviceOptions{.capacity = kRoom,
                                           .links = links,
                                           .executor = &executor_,
                                           .timer = &timer_});
    slab_ = std::move(device_->MakeSlab(kRoom)).value();
  }
  void SetUp() override { Make(Links(Duplex::kFull)); }

  void ToDevice(Lane& lane, int64_t size) {
    device_->Copy(lane, slab_.data(), host_.data(), Bytes(size),
                  CopyKind::kToDevice);
  }
  void FromDevice(Lane& lane, int64_t size) {
    device_->Copy(lane, host_.data(), slab_.data(), Bytes(size),
                  CopyKind::kFromDevice);
  }

  ManualExecutor executor_;
  ManualTimer timer_;
  std::vector<std::byte> host_ = std::vector<std::byte>(65536);
  std::optional<SimulatedDevice> device_;
  Slab slab_;
};

TEST_F(HandTurnedDeviceTest, ATransferEndsWhenItsTimeIsOverAndHoldsNoThread) {
  const auto lane = device_->MakeLane("lane");
  ToDevice(*lane, 100);
  const Event end = lane->Record();
  executor_.RunAll();
  EXPECT_EQ(executor_.pending(), 0u);
  EXPECT_EQ(timer_.pending(), 1u);
  timer_.Advance(109);
  executor_.RunAll();
  EXPECT_FALSE(end.done());
  timer_.Advance(1);
  EXPECT_FALSE(end.done());  // the timer's thread does not run the lane
  EXPECT_EQ(executor_.pending(), 1u);
  executor_.RunAll();
  EXPECT_TRUE(end.done());
}

TEST_F(HandTurnedDeviceTest, WorkQueuedMeanwhileDoesNotStartTheLane) {
  const auto lane = device_->MakeLane("lane");
  ToDevice(*lane, 100);
  executor_.RunAll();
  bool ran = false;
  lane->Run([&] {
    ran = true;
    return OkStatus();
  });
  ToDevice(*lane, 50);
  EXPECT_EQ(executor_.pending(), 0u);
  timer_.Advance(110);
  executor_.RunAll();
  EXPECT_TRUE(ran);
  // The next began when the first had ended.
  timer_.Advance(59);
  executor_.RunAll();
  EXPECT_FALSE(lane->Record().done());
  timer_.Advance(1);
  executor_.RunAll();
  EXPECT_TRUE(lane->Record().done());
}

// A lane whose turn comes late begins late.
TEST_F(HandTurnedDeviceTest, ATransferBeginsWithItsTurnNotWithItsCall) {
  const auto lane = device_->MakeLane("lane");
  ToDevice(*lane, 100);
  const Event end = lane->Record();
  timer_.Advance(1000);
  executor_.RunAll();
  timer_.Advance(109);
  executor_.RunAll();
  EXPECT_FALSE(end.done());
  timer_.Advance(1);
  executor_.RunAll();
  EXPECT_TRUE(end.done());
}

TEST_F(HandTurnedDeviceTest, TheTurnThatComesFirstHasTheWireFirst) {
  for (const bool second_first : {false, true}) {
    Make(Links(Duplex::kFull));
    const int64_t start = timer_.NowNs();
    const auto a = device_->MakeLane("a");
    const auto b = device_->MakeLane("b");
    ToDevice(*a, 100);
    ToDevice(*b, 1000);
    int64_t a_end = 0;
    int64_t b_end = 0;
    const auto note = [&](int64_t* end) {
      return [&, end] {
        *end = timer_.NowNs() - start;
        return OkStatus();
      };
    };
    a->Run(note(&a_end));
    b->Run(note(&b_end));
    executor_.RunOne(second_first ? 1 : 0);
    executor_.RunAll();
    while (timer_.RunNext()) executor_.RunAll();
    EXPECT_EQ(a_end, second_first ? 1110 : 110);
    EXPECT_EQ(b_end, second_first ? 1010 : 1110);
  }
}

// What a lane waits for is done before, during and after its transfer.
TEST_F(HandTurnedDeviceTest, AnEventDoneDuringATransferIsNotMissed) {
  for (const int when : {0, 1, 2}) {
    Make(Links(Duplex::kFull));
    const auto lane = device_->MakeLane("lane");
    const EventSource source;
    ToDevice(*lane, 100);
    lane->Wait(source.event());
    FromDevice(*lane, 100);
    const Event end = lane->Record();
    if (when == 0) source.Complete();
    executor_.RunAll();
    if (when == 1) source.Complete();
    executor_.RunAll();
    timer_.Advance(110);
    executor_.RunAll();
    EXPECT_EQ(timer_.pending(), when == 2 ? 0u : 1u);
    if (when == 2) source.Complete();
    executor_.RunAll();
    timer_.Advance(110);
    executor_.RunAll();
    EXPECT_TRUE(end.done()) << "when " << when;
  }
}

// The device breaks while a transfer is under way: that one is well, since its
// bytes have left, and the next is not.
TEST_F(HandTurnedDeviceTest, ABreakSparesTheTransferUnderWay) {
  const auto lane = device_->MakeLane("lane");
  ToDevice(*lane, 100);
  const Event first = lane->Record();
  ToDevice(*lane, 100);
  const Event second = lane->Record();
  executor_.RunAll();
  device_->InjectFailure(IoError("fell off the bus"));
  EXPECT_THAT(device_->status(), IsOk());
  timer_.Advance(110);
  executor_.RunAll();
  EXPECT_THAT(first.status(), IsOk());
  EXPECT_THAT(second.status(), StatusIs(ErrorCode::kIoError));
  EXPECT_EQ(timer_.pending(), 0u);
}

// Work that fails on one lane while another's transfer is under way.
TEST_F(HandTurnedDeviceTest, AFailureDuringATransferComesAfterIt) {
  const auto fetch = device_->MakeLane("fetch");
  const auto store = device_->MakeLane("store");
  const EventSource failing;
  ToDevice(*fetch, 100);
  fetch->Wait(failing.event());
  ToDevice(*fetch, 100);
  store->Wait(fetch->Record());
  executor_.RunAll();
  failing.Complete(DataLoss("checksum"));
  executor_.RunAll();
  EXPECT_THAT(fetch->status(), IsOk());
  timer_.Advance(110);
  executor_.RunAll();
  EXPECT_THAT(fetch->status(), StatusIs(ErrorCode::kDataLoss));
  EXPECT_THAT(store->status(), StatusIs(ErrorCode::kDataLoss));
  EXPECT_EQ(timer_.pending(), 0u);
}

TEST_F(HandTurnedDeviceTest, WhatTakesNoTimeNeedsNoTimer) {
  const auto lane = device_->MakeLane("lane");
  device_->Zero(*lane, slab_.data(), KiB(1));  // that link has no model
  device_->Busy(*lane, 0);
  executor_.RunAll();
  EXPECT_TRUE(lane->Record().done());
  EXPECT_EQ(timer_.pending(), 0u);
}

TEST_F(HandTurnedDeviceTest, KernelsTakeTheTimeOfTheirTraffic) {
  SimulatedLinkModels links;
  links.within_device =
      LinkModel{.bytes_per_second = 1'000'000'000, .latency_ns = 5};
  Make(links);
  const auto lane = device_->MakeLane("lane");
  const auto time_of = [&] {
    const int64_t start = timer_.NowNs();
    executor_.RunAll();
    while (timer_.RunNext()) executor_.RunAll();
    return timer_.NowNs() - start;
  };
  std::byte* const data = slab_.data();
  device_->Zero(*lane, data, Bytes(300));
  EXPECT_EQ(time_of(), 305);
  device_->Copy(*lane, data, data + 4096, Bytes(300), CopyKind::kWithinDevice);
  EXPECT_EQ(time_of(), 605);
  device_->Convert(*lane, data, DType::kF32, data + 4096, DType::kBF16,
                   Elements(100));
  EXPECT_EQ(time_of(), 605);
  device_->AddInto(*lane, data, data + 4096, DType::kBF16, Elements(100));
  EXPECT_EQ(time_of(), 605);
  device_->AddSquares(*lane, data + 4096, DType::kF32, Elements(100),
                      reinterpret_cast<uint64_t*>(data));
  EXPECT_EQ(time_of(), 405);
}

// A step as an engine makes it: shards are fetched into two slots in turn,
// worked on, and stored, on three lanes.
struct StepTimes {
  std::vector<int64_t> stored;
  int64_t end = 0;
  friend bool operator==(const StepTimes&, const StepTimes&) = default;
};

constexpr int kShards = 40;
constexpr Bytes kShard = KiB(24);

int64_t WorkNs(int shard) { return 20'000 + 1'500 * (shard % 7); }

StepTimes RunStep(const SimulatedLinkModels& links) {
  VirtualExecutor world;
  const VirtualParticipant participant(&world);
  SimulatedDevice device(
      {.capacity = kRoom, .links = links, .executor = &world, .timer = &world});
  const Slab slab = std::move(device.MakeSlab(kRoom)).value();
  std::vector<std::byte> host(static_cast<size_t>(kShard.count() * 2));
  StepTimes times;
  times.stored.resize(kShards);
  const auto to = device.MakeLane("to device");
  const auto work = device.MakeLane("compute");
  const auto from = device.MakeLane("from device");
  Event slot_free[2];
  Event last;
  for (int i = 0; i < kShards; ++i) {
    std::byte* const slot = slab.data() + i % 2 * kShard.count();
    to->Wait(slot_free[i % 2]);
    device.Copy(*to, slot, host.data(), kShard, CopyKind::kToDevice);
    work->Wait(to->Record());
    device.Busy(*work, WorkNs(i));
    from->Wait(work->Record());
    device.Copy(*from, host.data() + kShard.count(), slot, kShard,
                CopyKind::kFromDevice);
    from->Run([&, i] {
      times.stored[static_cast<size_t>(i)] = world.NowNs();
      return OkStatus();
    });
    last = slot_free[i % 2] = from->Record();
    // The owner looks up now and then, which must not change a thing.
    if (i % 8 == 7) to->Record().Wait().IgnoreError();
  }
  EXPECT_THAT(last.Wait(), IsOk());
  times.end = world.NowNs();
  return times;
}

TEST(VirtualStepTest, TakesExactlyWhatItsRecurrenceSays) {
  const SimulatedLinkModels links = {
      .to_device = LinkModel{1'600'000'000, 700},
      .from_device = LinkModel{1'100'000'000, 900},
      .duplex = Duplex::kFull};
  const StepTimes times = RunStep(links);
  const int64_t load =
      links.to_device->latency_ns + WireNs(*links.to_device, kShard);
  const int64_t store =
      links.from_device->latency_ns + WireNs(*links.from_device, kShard);
  int64_t loaded = 0;
  int64_t worked = 0;
  std::vector<int64_t> stored;
  for (int i = 0; i < kShards; ++i) {
    const int64_t slot_free = i < 2 ? 0 : stored[static_cast<size_t>(i) - 2];
    loaded = std::max(loaded, slot_free) + load;
    worked = std::max(worked, loaded) + WorkNs(i);
    stored.push_back(std::max(stored.empty() ? 0 : stored.back(), worked) +
                     store);
  }
  EXPECT_EQ(times.stored, stored);
  EXPECT_EQ(times.end, stored.back());
}

TEST(VirtualStepTest, IsTheSameEveryTimeAlsoWhereLanesShareAWire) {
  for (const Duplex duplex : {Duplex::kFull, Duplex::kHalf}) {
    const StepTimes first = RunStep(Links(duplex));
    for (int round = 0; round < TestRounds(20); ++round) {
      ASSERT_EQ(RunStep(Links(duplex)), first);
    }
  }
  EXPECT_GT(RunStep(Links(Duplex::kHalf)).end,
            RunStep(Links(Duplex::kFull)).end);
}

TEST(ThrottledDeviceTest, ATransferTakesAtLeastItsTime) {
  ThreadPool pool(1);
  SteadyTimer timer;
  SimulatedDevice device({.capacity = MiB(1),
                          .links = {.to_device = LinkModel{50'000'000, 0}},
                          .executor = &pool,
                          .timer = &timer});
  const Slab slab = std::move(device.MakeSlab(MiB(1))).value();
  std::vector<std::byte> host(1 << 20);
  const auto lane = device.MakeLane("lane");
  const int64_t start = timer.NowNs();
  device.Copy(*lane, slab.data(), host.data(), MiB(1), CopyKind::kToDevice);
  EXPECT_LT(timer.NowNs() - start, 20'000'000);  // the call does not wait
  EXPECT_THAT(lane->Drain(), IsOk());
  EXPECT_GE(timer.NowNs() - start, 20'971'520);
}

TEST(ThrottledDeviceTest, ManyLanesAreBusyAtOnceOnOneThread) {
  ThreadPool pool(1);
  SteadyTimer timer;
  SimulatedDevice device({.executor = &pool, .timer = &timer});
  std::vector<std::unique_ptr<Lane>> lanes;
  const int64_t start = timer.NowNs();
  for (int i = 0; i < 16; ++i) {
    lanes.push_back(device.MakeLane("lane"));
    device.Busy(*lanes.back(), 100'000'000);
  }
  for (const auto& lane : lanes) EXPECT_THAT(lane->Drain(), IsOk());
  EXPECT_GE(timer.NowNs() - start, 100'000'000);
  // One after the other they would take 1.6 s.
  EXPECT_LT(timer.NowNs() - start, 800'000'000);
}

// The end of a lane races with the end of its transfer.
TEST(ThrottledDeviceTest, TheEndOfALaneWaitsForItsTransfer) {
  ThreadPool pool(2);
  SteadyTimer timer;
  SimulatedDevice device(
      {.capacity = KiB(4),
       .links = {.from_device = LinkModel{1'000'000'000'000, 50'000}},
       .executor = &pool,
       .timer = &timer});
  const Slab slab = std::move(device.MakeSlab(KiB(4))).value();
  std::vector<std::byte> host(4096);
  for (int round = 0; round < 200; ++round) {
    std::fill(host.begin(), host.end(), std::byte{1});
    const int64_t start = timer.NowNs();
    {
      const auto lane = device.MakeLane("lane");
      device.Copy(*lane, host.data(), slab.data(), KiB(4),
                  CopyKind::kFromDevice);
    }
    ASSERT_GE(timer.NowNs() - start, 50'000);
    ASSERT_EQ(host[4095], std::byte{0});
  }
}

}  // namespace
}  // namespace castor
