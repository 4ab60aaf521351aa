// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_lane.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/event.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

class CudaLaneTest : public CudaFixture {
 protected:
  // A copy on `lane` that puts `mark` into the first byte of `slab`.
  void Mark(Lane& lane, const Slab& slab, int mark) {
    marks_.data()[mark] = static_cast<std::byte>(mark);
    device_->Copy(lane, slab.data(), marks_.data() + mark, Bytes(1),
                  CopyKind::kToDevice);
  }
  // What the host sees of the fake's device memory.
  int Read(const Slab& slab) {
    return static_cast<int>(*cuda_.Reach(slab.data()));
  }

  Lane::Work Note(std::string name, Status status = OkStatus()) {
    return [this, name = std::move(name), status] {
      ran_.push_back(name);
      return status;
    };
  }

  Slab marks_ = OnHost(Bytes(256));
  std::vector<std::string> ran_;
};

TEST_F(CudaLaneTest, AnIdleLaneRecordsADoneEventAndAsksNobody) {
  const auto lane = device_->MakeLane("a");
  const int64_t records = cuda_.calls("EventRecord");
  EXPECT_TRUE(lane->Record().done());
  EXPECT_EQ(cuda_.calls("EventRecord"), records);
  EXPECT_EQ(lane->name(), "a");
}

TEST_F(CudaLaneTest, ARecordIsDoneWhenTheStreamGetsThere) {
  const Slab slab = OnDevice(KiB(4));
  const auto lane = device_->MakeLane("a");
  Mark(*lane, slab, 1);
  const Event first = lane->Record();
  Mark(*lane, slab, 2);
  const Event second = lane->Record();
  EXPECT_FALSE(first.done());
  cuda_.RunOne();
  cuda_.RunOne();
  EXPECT_TRUE(first.done());
  EXPECT_FALSE(second.done());
  EXPECT_EQ(Read(slab), 1);
  EXPECT_THAT(second.Wait(), IsOk());  // as a thread that synchronizes
  EXPECT_EQ(Read(slab), 2);
}

TEST_F(CudaLaneTest, TwoRecordsWithNothingBetweenAreOne) {
  const Slab slab = OnDevice(KiB(4));
  const auto lane = device_->MakeLane("a");
  Mark(*lane, slab, 1);
  const int64_t records = cuda_.calls("EventRecord");
  const Event first = lane->Record();
  const Event second = lane->Record();
  EXPECT_EQ(cuda_.calls("EventRecord"), records + 1);
  Settle();
  EXPECT_TRUE(second.done());
}

TEST_F(CudaLaneTest, LanesOfADeviceWaitForEachOtherWithoutTheHost) {
  const Slab slab = OnDevice(KiB(4));
  const auto a = device_->MakeLane("a");
  const auto b = device_->MakeLane("b");
  Mark(*a, slab, 1);
  b->Wait(a->Record());
  Mark(*b, slab, 2);
  const Event end = b->Record();
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 1);
  EXPECT_EQ(executor_.pending(), 0u);
  // Only the streams move.
  EXPECT_EQ(cuda_.RunAll(), 5);
  EXPECT_EQ(Read(slab), 2);
  EXPECT_TRUE(end.done());
}

TEST_F(CudaLaneTest, WhatIsBehindAWaitForTheHostIsHeldBack) {
  const Slab slab = OnDevice(KiB(4));
  const auto fetch = device_->MakeLane("fetch");
  const auto compute = device_->MakeLane("compute");
  const EventSource drive;
  fetch->Wait(drive.event());
  Mark(*fetch, slab, 1);
  const Event there = fetch->Record();
  compute->Wait(there);
  Mark(*compute, slab, 2);
  const Event end = compute->Record();
  Settle();
  EXPECT_EQ(cuda_.calls("MemcpyAsync"), 0);
  EXPECT_FALSE(there.done());
  drive.Complete();
  EXPECT_EQ(cuda_.calls("MemcpyAsync"), 0);  // not on the drive's thread
  device_->ServeCallbacks();
  device_->ServeCallbacks();
  // Both lanes are on their way, and one waits for the other on the device.
  EXPECT_EQ(cuda_.calls("MemcpyAsync"), 2);
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 1);
  EXPECT_EQ(Read(slab), 0);
  Settle();
  EXPECT_EQ(Read(slab), 2);
  EXPECT_TRUE(end.done());
}

TEST_F(CudaLaneTest, HostWorkRunsOnTheExecutorInTheOrderOfTheStream) {
  const Slab slab = OnDevice(KiB(4));
  const auto lane = device_->MakeLane("a");
  Mark(*lane, slab, 1);
  lane->Run([&] {
    ran_.push_back("saw " + std::to_string(Read(slab)));
    return OkStatus();
  });
  Mark(*lane, slab, 2);
  lane->Run(Note("end"));
  EXPECT_EQ(executor_.pending(), 0u);
  cuda_.RunAll();
  device_->ServeCallbacks();
  EXPECT_EQ(executor_.pending(), 1u);
  EXPECT_EQ(Read(slab), 1);
  Settle();
  EXPECT_THAT(ran_, ElementsAre("saw 1", "end"));
  EXPECT_EQ(Read(slab), 2);
}

TEST_F(CudaLaneTest, AsynchronousWorkThatDropsItsSourceFailsTheLane) {
  const auto lane = device_->MakeLane("a");
  lane->RunAsync([](EventSource) {});
  Settle();
  EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kInternal));
}

TEST_F(CudaLaneTest, OnFailureMayQueueOnItsLane) {
  Lane* self = nullptr;
  Event cleanup;
  const auto lane =
      device_->MakeLane("a", [&](const Status&) { cleanup = self->Record(); });
  self = lane.get();
  lane->Run(Note("fails", IoError("disk")));
  Settle();
  EXPECT_THAT(cleanup.status(), StatusIs(ErrorCode::kIoError, "disk"));
}

TEST_F(CudaLaneTest, ARefusedCallFailsTheLaneAndThenTheDevice) {
  const Slab slab = OnDevice(KiB(4));
  std::vector<Status> failures;
  const auto a = device_->MakeLane(
      "a", [&](const Status& status) { failures.push_back(status); });
  const auto b = device_->MakeLane("b");
  Mark(*b, slab, 1);
  const Event before = b->Record();
  cuda_.FailCall("MemcpyAsync", 1, 700);
  Mark(*a, slab, 2);
  EXPECT_THAT(a->status(),
              StatusIs(ErrorCode::kIoError,
                       Says("cudaMemcpyAsync", "Fake GPU 0", "cudaError700")));
  EXPECT_EQ(device_->status().ToString(), a->status().ToString());
  EXPECT_EQ(failures.size(), 1u);
  // The other lane meets it at its next operation.
  EXPECT_THAT(b->status(), IsOk());
  device_->Zero(*b, slab.data(), KiB(4));
  EXPECT_EQ(b->status().ToString(), a->status().ToString());
  Settle();
  EXPECT_EQ(Read(slab), 1);
  EXPECT_THAT(before.status(), IsOk());
}

TEST_F(CudaLaneTest, AFaultOnTheDeviceIsKnownAtTheNextEvent) {
  const Slab slab = OnDevice(KiB(4));
  int failures = 0;
  const auto a = device_->MakeLane("a", [&](const Status&) { ++failures; });
  const auto b = device_->MakeLane("b");
  cuda_.FailWork("MemcpyAsync", 1, 719);
  Mark(*a, slab, 1);
  const Event after = a->Record();
  EXPECT_THAT(device_->status(), IsOk());
  cuda_.RunAll();
  EXPECT_THAT(after.Wait(), StatusIs(ErrorCode::kIoError, Says("719")));
  EXPECT_EQ(failures, 1);
  Mark(*b, slab, 2);
  EXPECT_THAT(b->status(), StatusIs(ErrorCode::kIoError, Says("719")));
  EXPECT_THAT(b->Record().Wait(), StatusIs(ErrorCode::kIoError));
}

TEST_F(CudaLaneTest, ALaneHeldBackByTheHostEndsAlsoOnADeadDevice) {
  const Slab slab = OnDevice(KiB(4));
  const auto a = device_->MakeLane("a");
  const auto b = device_->MakeLane("b");
  const EventSource drive;
  b->Wait(drive.event());
  Mark(*b, slab, 2);
  const Event end = b->Record();
  cuda_.FailWork("MemcpyAsync", 1, 719);
  Mark(*a, slab, 1);
  cuda_.RunAll();
  EXPECT_FALSE(a->Drain().ok());
  EXPECT_FALSE(end.done());
  drive.Complete();
  Settle();
  EXPECT_THAT(end.status(), StatusIs(ErrorCode::kIoError, Says("719")));
}

TEST_F(CudaLaneTest, WhereTheDeviceRefusesAStreamTheLaneIsFailedFromTheStart) {
  cuda_.FailCall("StreamCreate", 1, kCudaOutOfMemory);
  Status heard;
  const auto lane =
      device_->MakeLane("a", [&](const Status& status) { heard = status; });
  EXPECT_THAT(heard,
              StatusIs(ErrorCode::kUnavailable, Says("cudaStreamCreate")));
  EXPECT_THAT(device_->status(), IsOk());
  const Slab slab = OnDevice(KiB(4));
  Mark(*lane, slab, 1);
  lane->Run(Note("never"));
  // It still says when those it waits for are done.
  const EventSource gate;
  lane->Wait(gate.event());
  const Event end = lane->Record();
  Settle();
  EXPECT_FALSE(end.done());
  gate.Complete();
  EXPECT_THAT(end.Wait(), StatusIs(ErrorCode::kUnavailable));
  EXPECT_EQ(Read(slab), 0);
  EXPECT_THAT(ran_, testing::IsEmpty());
}

TEST_F(CudaLaneTest, EventsComeFromAPool) {
  const Slab slab = OnDevice(KiB(4));
  const auto a = device_->MakeLane("a");
  const auto b = device_->MakeLane("b");
  const auto step = [&] {
    for (int i = 0; i < 10; ++i) {
      Mark(*a, slab, 1);
      b->Wait(a->Record());
      Mark(*b, slab, 2);
      a->Wait(b->Record());
    }
    a->Run(Note("host"));
    const Event end = a->Record();
    Settle();
    ASSERT_TRUE(end.done());
  };
  step();
  step();
  const int64_t created = device_->events_created();
  EXPECT_LE(created, 30);
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(device_->events_created(), created);
  EXPECT_EQ(cuda_.calls("EventCreate"), created);
}

TEST_F(CudaLaneTest, ADoneEventMayOutliveItsDevice) {
  Event event;
  {
    const Slab slab = OnDevice(KiB(4));
    const auto lane = device_->MakeLane("a");
    Mark(*lane, slab, 1);
    event = lane->Record();
    Settle();
  }
  device_ = nullptr;
  int calls = 0;
  event.OnDone([&](const Status& status) {
    EXPECT_THAT(status, IsOk());
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace castor
