// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The order of operations: on a lane, between lanes, and against events of the
// host.

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <utility>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "offload/lanes/event.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/contracts/device_contract.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/test_seed.h"

namespace castor {
namespace {

using Lanes = std::vector<std::unique_ptr<Lane>>;

Lanes MakeLanes(Device& device, int count) {
  Lanes lanes;
  for (int i = 0; i < count; ++i) {
    lanes.push_back(device.MakeLane("lane " + std::to_string(i)));
  }
  return lanes;
}

}  // namespace

TEST_P(DeviceContract, ALaneHasItsNameAndStartsWell) {
  const auto lane = device().MakeLane("rank 0 fetch");
  EXPECT_EQ(lane->name(), "rank 0 fetch");
  EXPECT_THAT(lane->status(), IsOk());
  EXPECT_THAT(lane->Record().Wait(), IsOk());
  EXPECT_THAT(lane->Drain(), IsOk());
}

TEST_P(DeviceContract, CallsComeInTheLanesOrderAndTheirFailureIsTheLanes) {
  const auto lane = device().MakeLane("calls");
  const auto other = device().MakeLane("other");
  std::vector<int> seen;
  for (int i = 0; i < 3; ++i) {
    lane->Run([&seen, i] { return seen.push_back(2 * i), OkStatus(); });
    // It may queue work on a stream, and otherwise does the work itself.
    device().Call(*lane,
                  [&seen, i, on_host = lane->runs_on_host()](void* stream) {
                    EXPECT_EQ(stream == nullptr, on_host);
                    return seen.push_back(2 * i + 1), OkStatus();
                  });
    ASSERT_THAT(lane->Record().Wait(), IsOk());
  }
  EXPECT_THAT(seen, testing::ElementsAre(0, 1, 2, 3, 4, 5));
  device().Call(*lane, [](void*) { return Internal("no more memory"); });
  EXPECT_THAT(lane->Record().Wait(),
              StatusIs(ErrorCode::kInternal, Says("no more memory")));
  device().Call(*lane, [&seen](void*) { return seen.clear(), OkStatus(); });
  EXPECT_FALSE(lane->Drain().ok());
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_THAT(other->Drain(), IsOk());
  EXPECT_THAT(device().status(), IsOk());
}

TEST_P(DeviceContract, NoDeviceTakesAStreamThatIsNone) {
  // Null is a default stream where there are streams at all.
  const auto lane = device().AdoptStream(nullptr, "trainer");
  if (lane.ok()) {
    EXPECT_THAT((*lane)->Drain(), IsOk());
  } else {
    EXPECT_THAT(lane, StatusIs(ErrorCode::kUnavailable, Says("trainer")));
  }
}

TEST_P(DeviceContract, CopiesAndHostWorkOfALaneRunInOrder) {
  constexpr Bytes kSize = KiB(64);
  const Slab a = OnDevice(kSize);
  const Slab b = OnDevice(kSize);
  const Slab host = OnHost(kSize);
  const auto lane = device().MakeLane("order");
  std::vector<int> seen;
  for (int i = 1; i <= 20; ++i) {
    lane->Run([&, i] {
      FillBytes(Contents(host), static_cast<std::byte>(i));
      return OkStatus();
    });
    device().Copy(*lane, a.data(), host.data(), kSize, CopyKind::kToDevice);
    device().Copy(*lane, b.data(), a.data(), kSize, CopyKind::kWithinDevice);
    device().Zero(*lane, a.data(), kSize / 2);
    // The first half from what was zeroed, the second from what was copied.
    device().Copy(*lane, host.data(), a.data(), kSize / 2,
                  CopyKind::kFromDevice);
    device().Copy(*lane, host.data() + (kSize / 2).count(), b.data(), kSize / 2,
                  CopyKind::kFromDevice);
    lane->Run([&] {
      const auto bytes = Contents(host);
      const auto half = bytes.size() / 2;
      if (OnlyBytes(bytes.first(half), std::byte{0}) &&
          OnlyBytes(bytes.subspan(half), bytes.back())) {
        seen.push_back(static_cast<int>(bytes.back()));
      }
      return OkStatus();
    });
  }
  ASSERT_THAT(lane->Drain(), IsOk());
  std::vector<int> expected(20);
  for (int i = 0; i < 20; ++i) expected[static_cast<size_t>(i)] = i + 1;
  EXPECT_EQ(seen, expected);
}

TEST_P(DeviceContract, NoCallWaitsForWhatItQueues) {
  const Slab slab = OnDevice(KiB(4));
  const Slab host = OnHost(std::vector(4096, std::byte{1}));
  const auto lane = device().MakeLane("gated");
  const EventSource gate;
  lane->Wait(gate.event());
  device().Copy(*lane, slab.data(), host.data(), KiB(4), CopyKind::kToDevice);
  device().Zero(*lane, slab.data(), KiB(1));
  device().Copy(*lane, host.data(), slab.data(), KiB(4), CopyKind::kFromDevice);
  const Event after = lane->Record();
  EXPECT_FALSE(after.done());
  EXPECT_EQ(host.data()[0], std::byte{1});
  gate.Complete();
  EXPECT_THAT(after.Wait(), IsOk());
  EXPECT_EQ(host.data()[0], std::byte{0});
  EXPECT_EQ(host.data()[4095], std::byte{1});
}

TEST_P(DeviceContract, ALaneWaitsForAnother) {
  constexpr Bytes kSize = KiB(256);
  const Slab slab = OnDevice(kSize);
  const Slab from = OnHost(kSize);
  const Slab to = OnHost(kSize);
  const auto fetch = device().MakeLane("to device");
  const auto store = device().MakeLane("from device");
  Event stored;
  for (uint64_t round = 0; round < 10; ++round) {
    FillRandom(Contents(from), round);
    // The reader is queued first and must still come second.
    const EventSource gate;
    fetch->Wait(gate.event());
    fetch->Wait(stored);
    device().Copy(*fetch, slab.data(), from.data(), kSize, CopyKind::kToDevice);
    store->Wait(fetch->Record());
    device().Copy(*store, to.data(), slab.data(), kSize, CopyKind::kFromDevice);
    stored = store->Record();
    gate.Complete();
    ASSERT_THAT(stored.Wait(), IsOk());
    ASSERT_TRUE(SameBytes(Contents(to), Contents(from))) << "round " << round;
  }
}

TEST_P(DeviceContract, ALaneWaitsForEventsOfTheHostDoneBeforeAndAfter) {
  const auto lane = device().MakeLane("host events");
  std::vector<int> ran;
  const auto note = [&](int i) {
    lane->Run([&ran, i] {
      ran.push_back(i);
      return OkStatus();
    });
  };
  const EventSource before, after;
  before.Complete();
  lane->Wait(before.event());
  note(1);
  lane->Wait(Event());
  note(2);
  const Event second = lane->Record();
  lane->Wait(after.event());
  note(3);
  EXPECT_THAT(second.Wait(), IsOk());
  EXPECT_THAT(ran, testing::ElementsAre(1, 2));
  after.Complete();
  EXPECT_THAT(lane->Drain(), IsOk());
  EXPECT_THAT(ran, testing::ElementsAre(1, 2, 3));
}

TEST_P(DeviceContract, CallbacksOfItsEventsSeeWhatWasCopied) {
  const Slab slab = OnDevice(KiB(64));
  const Slab host = OnHost(KiB(64));
  Write(slab.data(), std::vector(64 << 10, std::byte{9}));
  const auto lane = device().MakeLane("callback");
  const EventSource called;
  device().Copy(*lane, host.data(), slab.data(), KiB(64),
                CopyKind::kFromDevice);
  lane->Record().OnDone([&](const Status& status) {
    const bool there = OnlyBytes(Contents(host), std::byte{9});
    called.Complete(status.ok() && !there ? Internal("too early") : status);
  });
  EXPECT_THAT(called.event().Wait(), IsOk());
}

TEST_P(DeviceContract, AsynchronousWorkHoldsTheLane) {
  const Slab slab = OnDevice(KiB(4));
  const Slab host = OnHost(KiB(4));
  const auto lane = device().MakeLane("async");
  const EventSource started;
  std::unique_ptr<EventSource> ending;
  device().Zero(*lane, slab.data(), KiB(4));
  lane->RunAsync([&](EventSource source) {
    ending = std::make_unique<EventSource>(std::move(source));
    started.Complete();
  });
  device().Copy(*lane, host.data(), slab.data(), KiB(4), CopyKind::kFromDevice);
  const Event after = lane->Record();
  ASSERT_THAT(started.event().Wait(), IsOk());
  EXPECT_FALSE(after.done());
  std::ranges::fill(Contents(host), std::byte{3});
  ending->Complete();
  EXPECT_THAT(after.Wait(), IsOk());
  EXPECT_EQ(host.data()[0], std::byte{0});
}

TEST_P(DeviceContract, TheEndOfALaneWaitsForItsOperations) {
  const Slab slab = OnDevice(MiB(1));
  const Slab host = OnHost(std::vector(1 << 20, std::byte{7}));
  for (int i = 0; i < 5; ++i) {
    FillBytes(Contents(host), static_cast<std::byte>(i + 1));
    {
      const auto lane = device().MakeLane("short");
      device().Copy(*lane, slab.data(), host.data(), MiB(1),
                    CopyKind::kToDevice);
      device().Copy(*lane, host.data() + 1, slab.data(), MiB(1) - Bytes(1),
                    CopyKind::kFromDevice);
      device().Zero(*lane, slab.data(), MiB(1));
      device().Copy(*lane, host.data(), slab.data(), Bytes(1),
                    CopyKind::kFromDevice);
    }
    ASSERT_EQ(host.data()[0], std::byte{0});
    ASSERT_EQ(host.data()[1], static_cast<std::byte>(i + 1));
  }
}

// Random copies over many lanes, ordered by nothing but the events of what they
// read and overwrite, against a model that does them one after the other.
TEST_P(DeviceContract, RandomCopiesOnManyLanesGiveWhatOneByOneGives) {
  constexpr int kLanes = 7;
  constexpr Bytes kSize = KiB(48) + Bytes(5);
  // The first four places are the device's, the others the host's.
  constexpr size_t kPlaces = 7;
  constexpr size_t kOnDevice = 4;
  struct Place {
    Slab slab;
    std::vector<std::byte> model;
    Event written;
    std::vector<Event> readers;
  };
  std::mt19937_64 random(TestSeed(2024));
  std::vector<Place> places(kPlaces);
  for (size_t i = 0; i < kPlaces; ++i) {
    Place& place = places[i];
    place.model.resize(static_cast<size_t>(kSize.count()));
    FillRandom(place.model, random());
    if (i < kOnDevice) {
      place.slab = OnDevice(kSize);
      Write(place.slab.data(), place.model);
    } else {
      place.slab = OnHost(place.model);
    }
  }
  const Lanes lanes = MakeLanes(device(), kLanes);
  for (int operation = 0; operation < TestRounds(600); ++operation) {
    Lane& lane = *lanes[random() % kLanes];
    const size_t t = random() % kPlaces;
    const size_t f = random() % kPlaces;
    if (f >= kOnDevice && t >= kOnDevice) continue;
    const int64_t size = static_cast<int64_t>(random() % (40 << 10)) + 1;
    const int64_t room = kSize.count() - size;
    const auto at_to = static_cast<int64_t>(random()) & 0xFFFF;
    const auto at_from = static_cast<int64_t>(random()) & 0xFFFF;
    const int64_t to_offset = at_to % (room + 1);
    const int64_t from_offset = at_from % (room + 1);
    Place& to = places[t];
    lane.Wait(to.written);
    for (const Event& reader : to.readers) lane.Wait(reader);
    to.readers.clear();
    if (f == t) {  // there is nothing to copy from, so zeros
      if (t >= kOnDevice) continue;
      device().Zero(lane, to.slab.data() + to_offset, Bytes(size));
      std::fill_n(to.model.begin() + to_offset, size, std::byte{0});
    } else {
      Place& from = places[f];
      lane.Wait(from.written);
      CopyKind kind = CopyKind::kWithinDevice;
      if (f >= kOnDevice) kind = CopyKind::kToDevice;
      if (t >= kOnDevice) kind = CopyKind::kFromDevice;
      device().Copy(lane, to.slab.data() + to_offset,
                    from.slab.data() + from_offset, Bytes(size), kind);
      std::copy_n(from.model.begin() + from_offset, size,
                  to.model.begin() + to_offset);
      from.readers.push_back(lane.Record());
    }
    to.written = lane.Record();
  }
  for (const auto& lane : lanes) ASSERT_THAT(lane->Drain(), IsOk());
  for (size_t i = 0; i < kPlaces; ++i) {
    const std::byte* data = places[i].slab.data();
    EXPECT_TRUE(i < kOnDevice
                    ? SameBytes(Read(data, kSize), places[i].model)
                    : SameBytes(Contents(places[i].slab), places[i].model))
        << "place " << i;
  }
}

// A value goes round through 64 lanes, each of which waits for the one before;
// few threads must be enough for all of them.
TEST_P(DeviceContract, SixtyFourLanesWaitForEachOther) {
  constexpr size_t kLanes = 64;
  constexpr Bytes kSize = KiB(1);
  const Slab slab = OnDevice(kSize * static_cast<int64_t>(kLanes));
  const Slab host = OnHost(kSize);
  const Lanes lanes = MakeLanes(device(), kLanes);
  const EventSource gate;
  Event previous = gate.event();
  const auto at = [&](size_t i) {
    return slab.data() + kSize.count() * static_cast<int64_t>(i);
  };
  FillRandom(Contents(host), 64);
  const std::vector<std::byte> sent(Contents(host).begin(),
                                    Contents(host).end());
  for (int round = 0; round < 8; ++round) {
    for (size_t i = 0; i < kLanes; ++i) {
      lanes[i]->Wait(previous);
      if (i == 0) {
        device().Copy(*lanes[i], at(i), host.data(), kSize,
                      CopyKind::kToDevice);
      } else {
        device().Copy(*lanes[i], at(i), at(i - 1), kSize,
                      CopyKind::kWithinDevice);
        device().Zero(*lanes[i], at(i - 1), kSize);
      }
      previous = lanes[i]->Record();
    }
    lanes[0]->Wait(previous);
    lanes[0]->Run([&] {
      std::ranges::fill(Contents(host), std::byte{0});
      return OkStatus();
    });
    device().Copy(*lanes[0], host.data(), at(kLanes - 1), kSize,
                  CopyKind::kFromDevice);
    previous = lanes[0]->Record();
  }
  EXPECT_FALSE(previous.done());
  gate.Complete();
  ASSERT_THAT(previous.Wait(), IsOk());
  EXPECT_TRUE(SameBytes(Contents(host), sent));
}

// Events come from pools or go: neither memory nor descriptors grow with their
// number.
TEST_P(DeviceContract, ThousandsOfEventsLeaveNothingBehind) {
  const Slab slab = OnDevice(KiB(4));
  const Slab host = OnHost(KiB(4));
  const Lanes lanes = MakeLanes(device(), 4);
  Event last;
  const auto run = [&](int events) {
    for (int i = 0; i < events; ++i) {
      Lane& lane = *lanes[static_cast<size_t>(i) % lanes.size()];
      lane.Wait(last);
      if (i % 2 == 0) {
        device().Copy(lane, slab.data(), host.data(), Bytes(64),
                      CopyKind::kToDevice);
      } else {
        device().Copy(lane, host.data(), slab.data(), Bytes(64),
                      CopyKind::kFromDevice);
      }
      last = lane.Record();
      if (i % 100 == 99) {
        ASSERT_THAT(last.Wait(), IsOk());
      }
    }
    for (const auto& lane : lanes) ASSERT_THAT(lane->Drain(), IsOk());
  };
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  // What is in use of the heap; zero under a sanitizer, whose heap it is not.
  const auto heap = [] { return static_cast<int64_t>(mallinfo2().uordblks); };
  run(TestRounds(1000));
  const auto descriptors_before = descriptors();
  const int64_t heap_before = heap();
  run(TestRounds(5000));
  EXPECT_EQ(descriptors(), descriptors_before);
  EXPECT_LE(heap() - heap_before, 64 << 10);
}

}  // namespace castor
