// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Memory and copies, and how operations fail. device_contract_lanes.cc has
// their order, device_contract_kernels.cc their arithmetic.

#include "tests/support/contracts/device_contract.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/text/units_text.h"
#include "gmock/gmock.h"
#include "offload/lanes/event.h"
#include "tests/support/aligned_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"

namespace castor {
namespace {

bool IsZero(std::span<const std::byte> bytes) {
  return OnlyBytes(bytes, std::byte{0});
}

}  // namespace

void DeviceContract::SetUp() {
  std::string reason;
  under_test_ = GetParam().make(&reason);
  if (under_test_ == nullptr) GTEST_SKIP() << reason;
}

Slab DeviceContract::OnDevice(Bytes size) {
  Result<Slab> slab = device().MakeSlab(size);
  EXPECT_THAT(slab, IsOk());
  return std::move(slab).value();
}

Slab DeviceContract::OnHost(Bytes size) {
  Result<Slab> slab = device().MakeHostSlab(size, {});
  EXPECT_THAT(slab, IsOk());
  return std::move(slab).value();
}

Slab DeviceContract::OnHost(std::span<const std::byte> bytes) {
  Slab slab = OnHost(Bytes(static_cast<int64_t>(bytes.size())));
  std::ranges::copy(bytes, slab.data());
  return slab;
}

std::vector<std::byte> DeviceContract::Read(const std::byte* from, Bytes size) {
  const Slab host = OnHost(size);
  const auto lane = device().MakeLane("read");
  device().Copy(*lane, host.data(), from, size, CopyKind::kFromDevice);
  EXPECT_THAT(lane->Drain(), IsOk());
  return {Contents(host).begin(), Contents(host).end()};
}

void DeviceContract::Write(std::byte* to, std::span<const std::byte> bytes) {
  const Slab host = OnHost(bytes);
  const auto lane = device().MakeLane("write");
  device().Copy(*lane, to, host.data(), host.size(), CopyKind::kToDevice);
  EXPECT_THAT(lane->Drain(), IsOk());
}

TEST_P(DeviceContract, SaysWhatItIs) {
  const DeviceFacts facts = device().facts();
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.total, MiB(16));
  EXPECT_GE(facts.free, MiB(16));
  EXPECT_LE(facts.free, facts.total);
  EXPECT_GE(facts.numa_node, -1);
  EXPECT_THAT(device().status(), IsOk());
}

TEST_P(DeviceContract, SlabsAreZeroedAlsoWhereAnotherWas) {
  for (int round = 0; round < 3; ++round) {
    const Slab slab = OnDevice(MiB(1) + Bytes(5));
    EXPECT_EQ(slab.tier(), Tier::kDevice);
    EXPECT_EQ(slab.size(), MiB(1) + Bytes(5));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slab.data()) % 256, 0u);
    ASSERT_TRUE(IsZero(Read(slab.data(), slab.size())));
    Write(slab.data(), std::vector(1 << 20, std::byte{0xA5}));
  }
}

TEST_P(DeviceContract, HostSlabsAreZeroedHostMemory) {
  HostSlabFacts facts;
  ASSERT_OK_AND_ASSIGN(Slab made,
                       device().MakeHostSlab(KiB(300) + Bytes(1), {}, &facts));
  EXPECT_EQ(made.tier(), Tier::kHost);
  EXPECT_EQ(made.size(), KiB(300) + Bytes(1));
  EXPECT_TRUE(IsZero(Contents(made)));
}

TEST_P(DeviceContract, FillsBytesOfAnyAlignmentAndNoOthers) {
  const Slab slab = OnDevice(KiB(3));
  const auto lane = device().MakeLane("fill");
  device().Fill(*lane, slab.data() + 3, Bytes(1001), std::byte{0xFF});
  device().Fill(*lane, slab.data(), Bytes(0), std::byte{0xFF});
  device().Zero(*lane, slab.data() + 103, Bytes(100));
  ASSERT_THAT(lane->Drain(), IsOk());
  const std::vector<std::byte> bytes = Read(slab.data(), slab.size());
  for (size_t i = 0; i < bytes.size(); ++i) {
    const bool filled = i >= 3 && i < 1004 && (i < 103 || i >= 203);
    ASSERT_EQ(bytes[i], std::byte{filled ? uint8_t{0xFF} : uint8_t{0}}) << i;
  }
}

TEST_P(DeviceContract, SlabsMayBeEmpty) {
  EXPECT_EQ(OnDevice(Bytes(0)).size(), Bytes(0));
  EXPECT_EQ(OnHost(Bytes(0)).size(), Bytes(0));
}

TEST_P(DeviceContract, RefusesMoreMemoryThanItHasAndGoesOn) {
  const Bytes asked = device().facts().total + MiB(64);
  EXPECT_THAT(device().MakeSlab(asked),
              StatusIs(ErrorCode::kUnavailable, Says(FormatBytes(asked))));
  EXPECT_THAT(device().status(), IsOk());
  const Slab slab = OnDevice(KiB(64));
  EXPECT_TRUE(IsZero(Read(slab.data(), slab.size())));
}

// Each size from and to addresses of every kind, through the device and within
// it; what lies around the target stays.
TEST_P(DeviceContract, CopiesAnySizeFromAndToAnyAddress) {
  int combination = 0;
  constexpr std::byte kAround{0x77};
  const Bytes room = KiB(160);
  const Slab host = OnHost(room);
  const Slab back = OnHost(room);
  const Slab first = OnDevice(room);
  const Slab second = OnDevice(room);
  const auto lane = device().MakeLane("copies");
  FillRandom(Contents(host), 3);
  for (const int64_t size :
       {0, 1, 2, 3, 7, 16, 63, 255, 4096, 4099, 131'072, 131'071, 100'001}) {
    for (const int64_t offset : {0, 1, 3, 8, 17, 256, 4095}) {
      if (combination++ % TestStride() != 0) continue;
      const int64_t other = (offset * 5 + 2) % 4096;
      FillBytes(Contents(back), kAround);
      device().Copy(*lane, second.data(), back.data(), room,
                    CopyKind::kToDevice);
      device().Copy(*lane, first.data() + offset, host.data() + other,
                    Bytes(size), CopyKind::kToDevice);
      device().Copy(*lane, second.data() + other, first.data() + offset,
                    Bytes(size), CopyKind::kWithinDevice);
      device().Copy(*lane, back.data(), second.data(), room,
                    CopyKind::kFromDevice);
      ASSERT_THAT(lane->Drain(), IsOk());
      const auto got = Contents(back);
      const auto whole = static_cast<size_t>(size);
      const auto at = static_cast<size_t>(other);
      ASSERT_TRUE(
          SameBytes(got.subspan(at, whole), Contents(host).subspan(at, whole)))
          << size << " B at " << offset << " and " << other;
      EXPECT_TRUE(OnlyBytes(got.first(at), kAround));
      EXPECT_TRUE(OnlyBytes(got.subspan(at + whole), kAround));
      // From an odd address of the device to an odd one of the host.
      FillBytes(Contents(back), kAround);
      device().Copy(*lane, back.data() + offset, second.data() + other,
                    Bytes(size), CopyKind::kFromDevice);
      ASSERT_THAT(lane->Drain(), IsOk());
      ASSERT_TRUE(SameBytes(got.subspan(static_cast<size_t>(offset), whole),
                            Contents(host).subspan(at, whole)));
    }
  }
}

TEST_P(DeviceContract, CopiesHostMemoryThatIsNotItsOwn) {
  std::vector<std::byte> plain(100'003);
  FillRandom(plain, 4);
  std::vector<std::byte> back(plain.size());
  const Bytes size(static_cast<int64_t>(plain.size()));
  const Slab slab = OnDevice(size);
  const auto lane = device().MakeLane("plain");
  device().Copy(*lane, slab.data(), plain.data(), size, CopyKind::kToDevice);
  device().Copy(*lane, back.data(), slab.data(), size, CopyKind::kFromDevice);
  ASSERT_THAT(lane->Drain(), IsOk());
  EXPECT_TRUE(SameBytes(plain, back));
}

TEST_P(DeviceContract, ZeroesAnySizeAtAnyAddress) {
  const Slab slab = OnDevice(KiB(64));
  std::vector<std::byte> expected(64 << 10);
  FillRandom(expected, 5);
  Write(slab.data(), expected);
  const auto lane = device().MakeLane("zero");
  int64_t at = 1;
  for (const int64_t size : {0, 1, 3, 8, 31, 4096, 10'001}) {
    device().Zero(*lane, slab.data() + at, Bytes(size));
    std::fill_n(expected.begin() + at, size, std::byte{0});
    at += size + 13;
  }
  ASSERT_THAT(lane->Drain(), IsOk());
  EXPECT_TRUE(SameBytes(Read(slab.data(), slab.size()), expected));
}

// How operations fail, who hears of it, and what stays intact.

TEST_P(DeviceContract, AfterAFailureALaneTouchesNoMemory) {
  const Slab slab = OnDevice(KiB(4));
  const Slab host = OnHost(std::vector(4096, std::byte{1}));
  int failures = 0;
  Status heard;
  const auto lane = device().MakeLane("failing", [&](const Status& status) {
    ++failures;
    heard = status;
  });
  device().Copy(*lane, slab.data(), host.data(), KiB(4), CopyKind::kToDevice);
  const Event before = lane->Record();
  lane->Run([] { return IoError("disk gone"); });
  const Event after = lane->Record();
  device().Zero(*lane, slab.data(), KiB(4));
  device().Copy(*lane, host.data(), slab.data(), KiB(4), CopyKind::kFromDevice);
  bool ran = false;
  lane->Run([&] {
    ran = true;
    return OkStatus();
  });
  EXPECT_THAT(lane->Drain(), StatusIs(ErrorCode::kIoError, "disk gone"));
  EXPECT_FALSE(ran);
  EXPECT_THAT(before.Wait(), IsOk());
  EXPECT_THAT(after.Wait(), StatusIs(ErrorCode::kIoError, "disk gone"));
  EXPECT_THAT(lane->Record().Wait(), StatusIs(ErrorCode::kIoError));
  EXPECT_EQ(failures, 1);
  EXPECT_THAT(heard, StatusIs(ErrorCode::kIoError, "disk gone"));
  // The bytes before it are there, those after it are not; the device is well.
  EXPECT_THAT(device().status(), IsOk());
  EXPECT_EQ(Read(slab.data(), KiB(4)), std::vector(4096, std::byte{1}));
}

TEST_P(DeviceContract, AFailureIsToldBeforeLaterEventsAreDone) {
  bool told = false;
  const auto lane =
      device().MakeLane("failing", [&](const Status&) { told = true; });
  lane->Run([] { return IoError("disk gone"); });
  const Event after = lane->Record();
  const EventSource checked;
  after.OnDone([&](const Status&) {
    checked.Complete(told ? OkStatus() : Internal("not told yet"));
  });
  EXPECT_THAT(checked.event().Wait(), IsOk());
}

TEST_P(DeviceContract, FailuresTravelAlongEventsAndNoFurther) {
  const Slab slab = OnDevice(KiB(4));
  const Slab host = OnHost(std::vector(4096, std::byte{1}));
  const auto a = device().MakeLane("a");
  const auto b = device().MakeLane("b");
  const auto c = device().MakeLane("c");
  const auto apart = device().MakeLane("apart");
  const EventSource gate;
  a->Wait(gate.event());
  a->Run([] { return DataLoss("checksum"); });
  b->Wait(a->Record());
  device().Copy(*b, slab.data(), host.data(), KiB(4), CopyKind::kToDevice);
  const Event before = c->Record();
  c->Wait(b->Record());
  device().Copy(*c, slab.data(), host.data(), KiB(4), CopyKind::kToDevice);
  device().Zero(*apart, slab.data(), KiB(4));
  gate.Complete();
  EXPECT_THAT(c->Drain(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  EXPECT_THAT(b->status(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  EXPECT_THAT(before.Wait(), IsOk());
  EXPECT_THAT(apart->Drain(), IsOk());
  EXPECT_THAT(device().status(), IsOk());
  EXPECT_EQ(Read(slab.data(), KiB(4)), std::vector(4096, std::byte{0}));
}

TEST_P(DeviceContract, AFailedEventOfTheHostFailsTheLaneDoneBeforeOrAfter) {
  const auto before = device().MakeLane("before");
  before->Wait(Event::Failed(IoError("disk gone")));
  EXPECT_THAT(before->Drain(), StatusIs(ErrorCode::kIoError, "disk gone"));

  const auto after = device().MakeLane("after");
  const EventSource source;
  after->Wait(source.event());
  bool ran = false;
  after->Run([&] {
    ran = true;
    return OkStatus();
  });
  const Event end = after->Record();
  source.Complete(IoError("disk gone"));
  EXPECT_THAT(end.Wait(), StatusIs(ErrorCode::kIoError, "disk gone"));
  EXPECT_FALSE(ran);
}

// An event recorded later may say that memory is free.
TEST_P(DeviceContract, AFailedLaneStillWaits) {
  const auto lane = device().MakeLane("failed");
  const auto reader = device().MakeLane("reader");
  const EventSource gate;
  reader->Wait(gate.event());
  lane->Run([] { return IoError("disk gone"); });
  ASSERT_THAT(lane->Drain(), StatusIs(ErrorCode::kIoError));
  lane->Wait(reader->Record());
  const Event free = lane->Record();
  lane->Wait(gate.event());
  const Event later = lane->Record();
  EXPECT_FALSE(free.done());
  EXPECT_FALSE(later.done());
  gate.Complete();
  EXPECT_THAT(free.Wait(), StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(later.Wait(), StatusIs(ErrorCode::kIoError));
}

TEST_P(DeviceContract, ABrokenDeviceFailsEveryLaneAndSaysSo) {
  const Slab slab = OnDevice(KiB(4));
  const Slab host = OnHost(std::vector(4096, std::byte{1}));
  const auto first = device().MakeLane("first");
  const auto second = device().MakeLane("second");
  device().Copy(*first, slab.data(), host.data(), KiB(4), CopyKind::kToDevice);
  const Event well = first->Record();
  ASSERT_THAT(well.Wait(), IsOk());
  if (!Break()) GTEST_SKIP() << "this device cannot be broken";

  device().Copy(*first, host.data(), slab.data(), KiB(4),
                CopyKind::kFromDevice);
  const Status failure = first->Drain();
  EXPECT_FALSE(failure.ok());
  EXPECT_FALSE(failure.message().empty());
  EXPECT_EQ(device().status().ToString(), failure.ToString());
  // What was done stays done.
  EXPECT_THAT(well.status(), IsOk());

  device().Zero(*second, slab.data(), KiB(4));
  EXPECT_EQ(second->Drain().ToString(), failure.ToString());
  const auto later = device().MakeLane("later");
  ASSERT_NE(later, nullptr);
  device().Zero(*later, slab.data(), KiB(4));
  EXPECT_EQ(later->Drain().ToString(), failure.ToString());
  EXPECT_EQ(device().MakeSlab(KiB(4)).status().ToString(), failure.ToString());
  EXPECT_EQ(device().MakeHostSlab(KiB(4), {}).status().ToString(),
            failure.ToString());
  EXPECT_EQ(device().AdoptStream(nullptr, "trainer").status().ToString(),
            failure.ToString());
  EXPECT_EQ(device().status().ToString(), failure.ToString());
}

}  // namespace castor
