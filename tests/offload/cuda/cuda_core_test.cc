// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_core.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_lane_control.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/fakes/fake_clock.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class CudaCoreTest : public testing::Test {
 protected:
  FakeCuda cuda_{{.threads = false, .devices = 3}};
  CudaCore core_{&cuda_, 2, cuda_.Retained(2), "Fake GPU", nullptr, nullptr};
};

TEST_F(CudaCoreTest, AScopeBindsTheContextAndGivesBackTheTrainers) {
  cuda_.UseDevice(1);
  {
    const CudaCore::Scope scope(core_);
    EXPECT_EQ(FakeCuda::CurrentDevice(), 2);
    {
      const CudaCore::Scope inner(core_);
      EXPECT_EQ(FakeCuda::CurrentDevice(), 2);
    }
    EXPECT_EQ(FakeCuda::CurrentDevice(), 2);
  }
  EXPECT_EQ(FakeCuda::CurrentDevice(), 1);
}

TEST_F(CudaCoreTest, AScopeLeavesAFreshThreadWithoutAContext) {
  std::thread([this] {
    {
      const CudaCore::Scope scope(core_);
      EXPECT_EQ(FakeCuda::CurrentDevice(), 2);
    }
    EXPECT_EQ(FakeCuda::CurrentDevice(), -1);
  }).join();
  EXPECT_FALSE(cuda_.has_context(0));
}

TEST_F(CudaCoreTest, AScopeRelaxesCaptureAndGivesTheModeBack) {
  auto mode = CudaCaptureMode::kThreadLocal;
  ASSERT_EQ(cuda_.ExchangeCaptureMode(&mode), kCudaOk);
  {
    const CudaCore::Scope scope(core_);
    auto inside = CudaCaptureMode::kRelaxed;
    ASSERT_EQ(cuda_.ExchangeCaptureMode(&inside), kCudaOk);
    EXPECT_EQ(inside, CudaCaptureMode::kRelaxed);
  }
  ASSERT_EQ(cuda_.ExchangeCaptureMode(&mode), kCudaOk);
  EXPECT_EQ(mode, CudaCaptureMode::kThreadLocal);
}

TEST_F(CudaCoreTest, MakeCurrentBindsForGood) {
  std::thread([this] {
    EXPECT_EQ(core_.MakeCurrent(), kCudaOk);
    EXPECT_EQ(core_.MakeCurrent(), kCudaOk);
    EXPECT_EQ(FakeCuda::CurrentDevice(), 2);
    ASSERT_EQ(cuda_.PopContext(), kCudaOk);
    EXPECT_EQ(FakeCuda::CurrentDevice(), -1);
  }).join();
}

TEST_F(CudaCoreTest, AnErrorOfCaptureLeavesTheDeviceAsItWas) {
  EXPECT_THAT(core_.Check(kCudaCaptureUnsupported, "cudaMalloc"),
              StatusIs(ErrorCode::kFailedPrecondition,
                       Says("cudaMalloc", "end the capture")));
  EXPECT_THAT(core_.status(), IsOk());
}

TEST_F(CudaCoreTest, TheFirstFailureSticksAndNamesTheCall) {
  EXPECT_THAT(core_.Check(kCudaOk, "cudaMalloc"), IsOk());
  EXPECT_FALSE(core_.failed());
  EXPECT_THAT(core_.Check(700, "cudaMemcpyAsync"),
              StatusIs(ErrorCode::kIoError,
                       Says("cudaMemcpyAsync of CUDA device 2", "Fake GPU",
                            "cudaError700", "compute-sanitizer")));
  EXPECT_TRUE(core_.failed());
  EXPECT_THAT(core_.Check(719, "cudaEventQuery"),
              StatusIs(ErrorCode::kIoError, Says("cudaMemcpyAsync")));
  EXPECT_THAT(core_.Check(kCudaOk, "cudaFree"), IsOk());
  EXPECT_THAT(core_.status(), StatusIs(ErrorCode::kIoError));
}

TEST_F(CudaCoreTest, EventsAreReusedAndDestroyedAtTheEnd) {
  {
    CudaCore core(&cuda_, 1, cuda_.Retained(1), "Fake GPU", nullptr, nullptr);
    CudaEvent first = nullptr;
    CudaEvent second = nullptr;
    ASSERT_EQ(core.TakeEvent(&first), kCudaOk);
    core.GiveEvent(first);
    ASSERT_EQ(core.TakeEvent(&second), kCudaOk);
    EXPECT_EQ(first, second);
    EXPECT_EQ(core.events_created(), 1);
    core.GiveEvent(second);
    EXPECT_EQ(cuda_.live().events, 1);
  }
  EXPECT_EQ(cuda_.live().events, 0);
}

class CudaLaneControlTest : public testing::Test {
 protected:
  std::vector<Status> heard_;
  CudaLaneControl control_{
      [this](const Status& status) { heard_.push_back(status); }};
};

TEST_F(CudaLaneControlTest, AFailureConcernsWhatComesAfterIt) {
  control_.Fail(7, IoError("late"));
  EXPECT_THAT(control_.StatusAt(7), IsOk());
  EXPECT_THAT(control_.StatusAt(8), StatusIs(ErrorCode::kIoError, "late"));
  // One that comes to light afterwards, but was queued before.
  control_.Fail(3, DataLoss("early"));
  EXPECT_THAT(control_.StatusAt(3), IsOk());
  EXPECT_THAT(control_.StatusAt(5), StatusIs(ErrorCode::kDataLoss, "early"));
  control_.Fail(9, Aborted("later still"));
  EXPECT_THAT(control_.first_failure(), StatusIs(ErrorCode::kIoError, "late"));
  EXPECT_THAT(heard_,
              testing::ElementsAre(StatusIs(ErrorCode::kIoError, "late")));
}

class CudaTimesTest : public CudaFixture {
 protected:
  CudaTimesTest() : lane_(device_->MakeLane("lane")) {}

  void Note(std::string name) {
    lane_->NoteTime(&clock_, [this, name = std::move(name)](int64_t ns) {
      noted_.push_back(name);
      at_ns_.push_back(ns);
    });
  }

  FakeClock clock_{5'000'000'000};
  std::vector<std::string> noted_;
  std::vector<int64_t> at_ns_;
  std::unique_ptr<Lane> lane_;
};

TEST_F(CudaTimesTest, AreToldInOrderAndNotBeforeSomebodyAsks) {
  Note("first");
  Note("second");
  cuda_.RunAll();
  EXPECT_TRUE(noted_.empty());
  EXPECT_EQ(cuda_.calls("EventQuery"), 0);
  device_->FinishTimes();
  EXPECT_THAT(noted_, testing::ElementsAre("first", "second"));
  EXPECT_GE(at_ns_[0], 5'000'000'000);
  EXPECT_LE(at_ns_[0], at_ns_[1]);
}

TEST_F(CudaTimesTest, FinishWaitsForTheStream) {
  Note("first");
  device_->FinishTimes();
  EXPECT_THAT(noted_, testing::ElementsAre("first"));
}

TEST_F(CudaTimesTest, OldOnesAreReadAsNewOnesComeAndEventsAreUsedAgain) {
  for (int i = 0; i < 1000; ++i) {
    Note(std::to_string(i));
    cuda_.RunAll();
  }
  EXPECT_GT(noted_.size(), 900u);
  EXPECT_LT(cuda_.calls("EventCreate"), 80);
  device_->FinishTimes();
  ASSERT_EQ(noted_.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(noted_[static_cast<size_t>(i)], std::to_string(i));
  }
}

TEST_F(CudaTimesTest, TheHostsClockIsAskedAgainAfterAWhile) {
  Note("first");
  const int64_t waits = cuda_.calls("EventSynchronize");
  clock_.AdvanceNs(9'000'000'000);
  Note("soon");
  EXPECT_EQ(cuda_.calls("EventSynchronize"), waits);
  clock_.AdvanceNs(2'000'000'000);
  Note("later");
  EXPECT_EQ(cuda_.calls("EventSynchronize"), waits + 1);
  device_->FinishTimes();
  ASSERT_EQ(noted_.size(), 3u);
  EXPECT_LT(at_ns_[1], 6'000'000'000);
  EXPECT_GE(at_ns_[2], 16'000'000'000);
}

TEST_F(CudaTimesTest, OfALaneThatFailedNobodyIsTold) {
  lane_->Wait(Event::Failed(IoError("disk gone")));
  Settle();
  Note("never");
  device_->FinishTimes();
  EXPECT_TRUE(noted_.empty());
}

TEST_F(CudaTimesTest, ALaneThatIsHeldBackTellsWhenItGoesOn) {
  const EventSource drive;
  lane_->Wait(drive.event());
  Note("behind");
  device_->FinishTimes();
  EXPECT_TRUE(noted_.empty());
  drive.Complete();
  Settle();
  device_->FinishTimes();
  EXPECT_THAT(noted_, testing::ElementsAre("behind"));
}

}  // namespace
}  // namespace castor
