// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// How operations fail, who hears of it, and what stays intact.

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "offload/event.h"
#include "tests/support/device_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {

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
