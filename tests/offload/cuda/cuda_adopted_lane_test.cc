// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Lanes over the trainer's own streams, on which nothing can be held back.

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
#include "offload/event.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

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
  // The fake's device memory, seen by the host.
  static float* Floats(const Slab& slab) {
    return reinterpret_cast<float*>(slab.data());
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

TEST_F(CudaAdoptedLaneTest, TheTrainersWorkWaitsForTheHostOnTheDevice) {
  const auto lane = Adopt();
  const EventSource drive;
  TrainersKernel("before");
  lane->Wait(drive.event());
  TrainersKernel("behind");
  EXPECT_EQ(executor_.pending(), 0u);
  Settle();
  EXPECT_THAT(ran_, ElementsAre("before"));
  drive.Complete();
  // No thread of Castor is needed.
  cuda_.RunAll();
  EXPECT_THAT(ran_, ElementsAre("before", "behind"));
}

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

TEST_F(CudaAdoptedLaneTest, HostEventsMayEndInAnyOrder) {
  const auto lane = Adopt();
  std::vector<EventSource> sources(4);
  for (size_t i = 0; i < sources.size(); ++i) {
    lane->Wait(sources[i].event());
    TrainersKernel(std::to_string(i));
  }
  sources[1].Complete();
  sources[3].Complete();
  Settle();
  EXPECT_THAT(ran_, IsEmpty());
  sources[0].Complete();
  Settle();
  EXPECT_THAT(ran_, ElementsAre("0", "1"));
  sources[2].Complete();
  Settle();
  EXPECT_THAT(ran_, ElementsAre("0", "1", "2", "3"));
}

TEST_F(CudaAdoptedLaneTest, KernelsBehindAFailedWaitDoNothingThoseBeforeDo) {
  std::vector<Status> failures;
  const auto lane =
      Adopt([&](const Status& status) { failures.push_back(status); });
  const EventSource first;
  const EventSource second;
  lane->Wait(first.event());
  AddOne(*lane);
  const Event between = lane->Record();
  lane->Wait(second.event());
  AddOne(*lane);
  device_->Zero(*lane, values_.data() + 8, Bytes(4));
  TrainersKernel("the trainer's");
  const Event after = lane->Record();
  second.Complete(DataLoss("checksum"));
  EXPECT_THAT(failures,
              ElementsAre(StatusIs(ErrorCode::kDataLoss, "checksum")));
  first.Complete();
  Settle();
  EXPECT_EQ(value(), 1);
  EXPECT_THAT(between.status(), IsOk());
  EXPECT_THAT(after.status(), StatusIs(ErrorCode::kDataLoss, "checksum"));
  EXPECT_THAT(ran_, ElementsAre("the trainer's"));
  // From now on nothing of Castor's is queued.
  const int64_t kernels = cuda_.calls("AddInto");
  AddOne(*lane);
  EXPECT_EQ(cuda_.calls("AddInto"), kernels);
  EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kDataLoss));
}

TEST_F(CudaAdoptedLaneTest, AnEventInDoubtIsWaitedForOnTheHost) {
  const auto trainer = Adopt();
  const auto lane = device_->MakeLane("castor");
  const EventSource drive;
  trainer->Wait(drive.event());
  lane->Wait(trainer->Record());
  device_->Zero(*lane, ones_.data(), KiB(4));
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 0);
  drive.Complete(IoError("disk gone"));
  Settle();
  EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kIoError, "disk gone"));
  EXPECT_EQ(Floats(ones_)[0], 1);
}

TEST_F(CudaAdoptedLaneTest, AnEventOutOfDoubtIsWaitedForOnTheDevice) {
  const auto trainer = Adopt();
  const auto lane = device_->MakeLane("castor");
  const EventSource drive;
  trainer->Wait(drive.event());
  drive.Complete();
  TrainersKernel("kernel");
  lane->Wait(trainer->Record());
  device_->Zero(*lane, ones_.data(), KiB(4));
  EXPECT_EQ(cuda_.calls("StreamWaitEvent"), 1);
  Settle();
  EXPECT_EQ(Floats(ones_)[0], 0);
}

TEST_F(CudaAdoptedLaneTest, ATrainersStreamWaitsForALaneThatIsHeldBack) {
  const auto trainer = Adopt();
  const auto lane = device_->MakeLane("castor");
  const EventSource drive;
  lane->Wait(drive.event());
  device_->Zero(*lane, ones_.data(), KiB(4));
  trainer->Wait(lane->Record());
  AddOne(*trainer);
  Settle();
  EXPECT_EQ(cuda_.calls("StreamWaitValue32"), 2);  // one at the start
  drive.Complete();
  Settle();
  EXPECT_EQ(value(), 0);
  EXPECT_THAT(trainer->Drain(), IsOk());
}

TEST_F(CudaAdoptedLaneTest, HostWorkStopsTheTrainersStreamButNotTheTrainer) {
  const auto lane = Adopt();
  TrainersKernel("before");
  lane->Run([this] {
    ran_.push_back("host");
    return OkStatus();
  });
  TrainersKernel("behind");
  EXPECT_THAT(ran_, IsEmpty());
  Settle();
  EXPECT_THAT(ran_, ElementsAre("before", "host", "behind"));
}

TEST_F(CudaAdoptedLaneTest, TheStreamStaysWhenItsLaneGoes) {
  const int64_t streams = cuda_.live().streams;
  Adopt();
  EXPECT_EQ(cuda_.live().streams, streams);
  TrainersKernel("afterwards");
  Settle();
  EXPECT_THAT(ran_, ElementsAre("afterwards"));
}

TEST_F(CudaAdoptedLaneTest, ManyLanesTakeMorePagesOfWords) {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<EventSource> sources(150);
  for (const EventSource& source : sources) {
    lanes.push_back(device_->MakeLane("a"));
    lanes.back()->Wait(source.event());
  }
  EXPECT_GE(cuda_.live().registrations, 3);
  for (const EventSource& source : sources) source.Complete();
  Settle();
  for (const auto& lane : lanes) EXPECT_THAT(lane->Drain(), IsOk());
}

// Without cuStreamWaitValue32.
class CudaBlockingLaneTest : public CudaFixture {
 protected:
  CudaBlockingLaneTest()
      : CudaFixture({.threads = true, .wait_value = false}) {}
};

TEST_F(CudaBlockingLaneTest, IsSaidOnce) {
  EXPECT_FALSE(device_->waits_for_flags());
  Open({});
  EXPECT_THAT(said_, ElementsAre(Says("cannot wait for the host",
                                      "cuStreamWaitValue32")));
}

TEST_F(CudaBlockingLaneTest, ATrainersStreamBlocksTheTrainer) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Lane> lane,
                       device_->AdoptStream(nullptr, "trainer"));
  const EventSource drive;
  std::thread completer([&drive] { drive.Complete(IoError("disk gone")); });
  lane->Wait(drive.event());
  EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kIoError, "disk gone"));
  completer.join();
}

TEST_F(CudaBlockingLaneTest, CastorsOwnLanesDoNot) {
  const auto lane = device_->MakeLane("castor");
  const EventSource drive;
  lane->Wait(drive.event());
  const Event end = lane->Record();
  EXPECT_FALSE(end.done());
  drive.Complete();
  device_->ServeCallbacks();
  EXPECT_THAT(end.Wait(), IsOk());
}

}  // namespace
}  // namespace castor
