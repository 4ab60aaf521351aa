// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Lanes over the trainer's own streams, on which nothing can be held back.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;

class CudaAdoptedLaneTest : public CudaFixture {
 protected:
  CudaAdoptedLaneTest() {
    CASTOR_CHECK_EQ(cuda_.StreamCreate(&stream_), kCudaOk);
    values_ = OnDevice(KiB(4));
    ones_ = OnDevice(KiB(4));
    for (int i = 0; i < 1024; ++i) Floats(ones_)[i] = 1;
  }
  ~CudaAdoptedLaneTest() override {
    ones_ = Slab();
    values_ = Slab();
    Settle();
    cuda_.StreamDestroy(stream_);
  }

  std::unique_ptr<Lane> Adopt(Lane::OnFailure on_failure = {}) {
    Result<std::unique_ptr<Lane>> lane =
        device_->AdoptStream(stream_, "trainer", std::move(on_failure));
    CASTOR_CHECK(lane.ok());
    return *std::move(lane);
  }
  // The fake's device memory, as its streams see it.
  float* Floats(const Slab& slab) {
    return reinterpret_cast<float*>(cuda_.Reach(slab.data()));
  }
  // A kernel that adds one to the first value.
  void AddOne(Lane& lane) {
    device_->AddInto(lane, values_.data(), ones_.data(), DType::kF32,
                     Elements(1));
  }
  float value() { return Floats(values_)[0]; }
  void TrainersKernel(std::string name) {
    cuda_.Launch(stream_,
                 [this, name = std::move(name)] { ran_.push_back(name); });
  }

  CudaStream stream_ = nullptr;
  Slab values_;
  Slab ones_;
  std::vector<std::string> ran_;
};

TEST_F(CudaAdoptedLaneTest, ARecordCoversTheTrainersOwnWork) {
  const auto lane = Adopt();
  const Event idle = lane->Record();
  TrainersKernel("kernel");
  const Event after = lane->Record();
  EXPECT_FALSE(after.done());
  Settle();
  EXPECT_TRUE(idle.done());
  EXPECT_TRUE(after.done());
}

TEST_F(CudaAdoptedLaneTest, TheTrainerWaitsForTheHost) {
  const auto lane = Adopt();
  const EventSource drive;
  TrainersKernel("before");
  std::atomic<bool> completed = false;
  std::thread completer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    completed = true;
    drive.Complete();
  });
  lane->Wait(drive.event());
  EXPECT_TRUE(completed);
  TrainersKernel("behind");
  completer.join();
  EXPECT_EQ(executor_.pending(), 0u);
  Settle();
  EXPECT_THAT(ran_, ElementsAre("before", "behind"));
}

TEST_F(CudaAdoptedLaneTest, BehindAFailedWaitNothingOfCastorsIsQueued) {
  std::vector<Status> failures;
  const auto lane =
      Adopt([&](const Status& status) { failures.push_back(status); });
  AddOne(*lane);
  const Event before = lane->Record();
  lane->Wait(Event::Failed(DataLoss("checksum")));
  EXPECT_THAT(failures,
              ElementsAre(StatusIs(ErrorCode::kDataLoss, "checksum")));
  AddOne(*lane);
  device_->Zero(*lane, values_.data(), Bytes(4));
  TrainersKernel("the trainer's");
  const Event after = lane->Record();
  Settle();
  EXPECT_EQ(value(), 1);
  EXPECT_THAT(before.status(), IsOk());
  EXPECT_THAT(after.status(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  EXPECT_THAT(ran_, ElementsAre("the trainer's"));
  EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kDataLoss));
}

// Until its work is on its stream, and no longer.
TEST_F(CudaAdoptedLaneTest, TheTrainerWaitsForALaneThatIsHeldBack) {
  const auto trainer = Adopt();
  const auto lane = device_->MakeLane("castor");
  const EventSource drive;
  lane->Wait(drive.event());
  device_->Zero(*lane, ones_.data(), KiB(4));
  const Event zeroed = lane->Record();
  std::atomic<bool> completed = false;
  std::thread completer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    completed = true;
    drive.Complete();
    device_->ServeCallbacks();
  });
  trainer->Wait(zeroed);
  EXPECT_TRUE(completed);
  completer.join();
  EXPECT_FALSE(zeroed.done());
  AddOne(*trainer);
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 1);
  Settle();
  EXPECT_EQ(value(), 0);
  EXPECT_THAT(trainer->Drain(), IsOk());
}

// As a program that hears Ctrl-C.
TEST_F(CudaAdoptedLaneTest, WhoEndsWaitsEndsTheWaitForALaneThatIsHeldBack) {
  struct Ender final : EventWaiter {
    void WaitFor(const Event& event) override {
      ++waits;
      drive.Complete(Aborted("interrupted"));
      while (!event.done()) device->ServeCallbacks();
    }
    EventSource drive;
    CudaDevice* device = nullptr;
    int waits = 0;
  } ender;
  ender.device = device_.get();
  const auto trainer = Adopt();
  const auto lane = device_->MakeLane("castor");
  lane->Wait(ender.drive.event());
  const Event end = lane->Record();
  EventWaiter* const before = EventWaiter::Exchange(&ender);
  trainer->Wait(end);
  EventWaiter::Exchange(before);
  EXPECT_EQ(ender.waits, 1);
  EXPECT_THAT(trainer->status(), StatusIs(ErrorCode::kAborted, "interrupted"));
}

TEST_F(CudaAdoptedLaneTest, AFailureOfALaneThatIsHeldBackIsTheTrainersToo) {
  const auto trainer = Adopt();
  const auto lane = device_->MakeLane("castor");
  lane->Wait(Event::Failed(IoError("disk gone")));
  device_->ServeCallbacks();
  device_->Zero(*lane, ones_.data(), KiB(4));
  trainer->Wait(lane->Record());
  EXPECT_THAT(trainer->status(), StatusIs(ErrorCode::kIoError, "disk gone"));
  Settle();
  EXPECT_EQ(Floats(ones_)[0], 1);
}

TEST_F(CudaAdoptedLaneTest, EventsOfOtherStreamsAreWaitedForOneByOne) {
  const auto trainer = Adopt();
  const auto first = device_->MakeLane("first");
  const auto second = device_->MakeLane("second");
  device_->Zero(*first, ones_.data(), KiB(4));
  device_->Zero(*second, values_.data(), KiB(4));
  const Event events[] = {first->Record(), second->Record(), Event()};
  const Event both = AllOf(events);
  trainer->Wait(both);
  const int64_t queries = cuda_.calls("EventQuery");
  AddOne(*trainer);
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 2);
  EXPECT_EQ(cuda_.calls("EventQuery"), queries);
  EXPECT_FALSE(both.done());
  Settle();
  EXPECT_TRUE(both.done());
}

TEST_F(CudaAdoptedLaneTest, HostWorkIsTheCallersOnceTheStreamIsThere) {
  const auto lane = Adopt();
  TrainersKernel("before");
  std::thread::id by;
  lane->Run([&] {
    by = std::this_thread::get_id();
    ran_.push_back("host");
    return OkStatus();
  });
  EXPECT_EQ(by, std::this_thread::get_id());
  TrainersKernel("behind");
  Settle();
  EXPECT_THAT(ran_, ElementsAre("before", "host", "behind"));
  lane->Run([] { return IoError("no"); });
  EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kIoError, "no"));
  lane->Run([&] {
    ran_.push_back("never");
    return OkStatus();
  });
  EXPECT_EQ(ran_.size(), 3u);
}

TEST_F(CudaAdoptedLaneTest, TheStreamStaysWhenItsLaneGoes) {
  const int64_t streams = cuda_.live().streams;
  Adopt();
  EXPECT_EQ(cuda_.live().streams, streams);
  TrainersKernel("afterwards");
  Settle();
  EXPECT_THAT(ran_, ElementsAre("afterwards"));
}

// Any number of streams on one hardware queue: nothing in front waits for what
// is queued behind.
TEST(CudaHardwareQueueTest, ATrainersStreamNeverHoldsUpWhatItWaitsFor) {
  for (const int queues : {1, 2, 4, 8}) {
    FakeCuda cuda({.hardware_queues = queues});
    ThreadPool pool(2);
    auto device = CudaDevice::Open(&cuda, {.executor = &pool}).value();
    const Slab slab = device->MakeSlab(KiB(4)).value();
    CudaStream stream = nullptr;
    ASSERT_EQ(cuda.StreamCreate(&stream), kCudaOk);
    {
      const auto trainer = device->AdoptStream(stream, "trainer").value();
      std::vector<std::unique_ptr<Lane>> lanes;
      for (int i = 0; i < 9; ++i) {
        lanes.push_back(device->MakeLane("castor"));
        WorkerLane drive("drive", &pool);
        drive.Wait(trainer->Record());
        drive.Run([] { return OkStatus(); });
        lanes.back()->Wait(drive.Record());
        device->Zero(*lanes.back(), slab.data(), KiB(4));
        cuda.Launch(stream, [] {});
        trainer->Wait(lanes.back()->Record());
        cuda.Launch(stream, [] {});
      }
      EXPECT_THAT(trainer->Drain(), IsOk());
    }
    cuda.StreamDestroy(stream);
  }
}

// The launching thread waits in the driver, with the context's lock, while a
// late copy is to be queued by another.
TEST(CudaHardwareQueueTest, AFullLaunchQueueHoldsUpNobodyForGood) {
  for (const int queues : {1, 8}) {
    FakeCuda cuda({.hardware_queues = queues});
    ThreadPool pool(2);
    auto device = CudaDevice::Open(&cuda, {.executor = &pool}).value();
    const Slab slab = device->MakeSlab(KiB(4)).value();
    CudaStream stream = nullptr;
    ASSERT_EQ(cuda.StreamCreate(&stream), kCudaOk);
    {
      const auto trainer = device->AdoptStream(stream, "trainer").value();
      const auto lane = device->MakeLane("castor");
      const EventSource drive;
      lane->Wait(drive.event());
      device->Zero(*lane, slab.data(), KiB(4));
      const Event zeroed = lane->Record();
      std::atomic<bool> slow_ended = false;
      cuda.Launch(stream, [&slow_ended] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        slow_ended = true;
      });
      std::thread completer([&drive] {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        drive.Complete();
      });
      for (int i = 0; i < 4096; ++i) cuda.Launch(stream, [] {});
      EXPECT_TRUE(slow_ended) << "the queue was never full";
      trainer->Wait(zeroed);
      EXPECT_THAT(trainer->Drain(), IsOk());
      completer.join();
    }
    cuda.StreamDestroy(stream);
  }
}

}  // namespace
}  // namespace castor
