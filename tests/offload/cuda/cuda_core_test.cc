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
#include "offload/cuda/cuda_control_pool.h"
#include "offload/cuda/cuda_lane_control.h"
#include "tests/support/fake_cuda.h"
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

class CudaControlPoolTest : public testing::Test {
 protected:
  FakeCuda cuda_{{.threads = false}};
  std::shared_ptr<CudaCore> core_ = std::make_shared<CudaCore>(
      &cuda_, 0, cuda_.Retained(0), "Fake GPU", nullptr, nullptr);
  std::shared_ptr<CudaControlPool> pool_ =
      std::make_shared<CudaControlPool>(core_, HostSlabOptions{});
};

TEST_F(CudaControlPoolTest, WordsAreFreshApartAndReused) {
  std::set<void*> seen;
  {
    std::vector<CudaControlPool::Words> all;
    for (int i = 0; i < 64; ++i) {
      ASSERT_OK_AND_ASSIGN(CudaControlPool::Words words, pool_->Take());
      EXPECT_EQ(words.on_host->flag, 0u);
      EXPECT_EQ(words.on_host->poison, std::numeric_limits<uint64_t>::max());
      EXPECT_NE(words.on_device, nullptr);
      EXPECT_NE(words.on_device, words.on_host.get());
      words.on_host->flag = 7;
      words.on_host->poison = 8;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(words.on_host.get()) % 64, 0u);
      seen.insert(words.on_host.get());
      all.push_back(words);
    }
    EXPECT_EQ(seen.size(), 64u);
    EXPECT_EQ(cuda_.live().registrations, 1);
    ASSERT_THAT(pool_->Take(), IsOk());
    EXPECT_EQ(cuda_.live().registrations, 2);
  }
  ASSERT_OK_AND_ASSIGN(const CudaControlPool::Words again, pool_->Take());
  EXPECT_EQ(again.on_host->flag, 0u);
  EXPECT_EQ(cuda_.live().registrations, 2);
}

TEST_F(CudaControlPoolTest, WordsKeepThePoolAndThePageGoesWithTheLast) {
  CudaControlPool::Words words = pool_->Take().value();
  pool_ = nullptr;
  EXPECT_EQ(cuda_.live().registrations, 1);
  words.on_host->flag = 1;
  words = {};
  EXPECT_EQ(cuda_.live().registrations, 0);
}

TEST_F(CudaControlPoolTest, WithoutRegistrationTheDeviceSeesNoWords) {
  cuda_.FailCall("HostRegister", 1, kCudaNotSupported);
  ASSERT_OK_AND_ASSIGN(const CudaControlPool::Words words, pool_->Take());
  EXPECT_EQ(words.on_device, nullptr);
  EXPECT_EQ(words.on_host->flag, 0u);
}

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

class CudaLaneControlTest : public testing::Test {
 protected:
  std::shared_ptr<CudaControlWords> words_ =
      std::make_shared<CudaControlWords>();
  std::vector<Status> heard_;
  CudaLaneControl control_{words_, words_.get(), [this](const Status& status) {
                             heard_.push_back(status);
                           }};
};

TEST_F(CudaLaneControlTest, AFailureConcernsWhatComesAfterIt) {
  control_.Fail(7, IoError("late"));
  EXPECT_THAT(control_.StatusAt(7), IsOk());
  EXPECT_THAT(control_.StatusAt(8), StatusIs(ErrorCode::kIoError, "late"));
  EXPECT_EQ(words_->poison, 7u);
  // One that comes to light afterwards, but was queued before.
  control_.Fail(3, DataLoss("early"));
  EXPECT_THAT(control_.StatusAt(3), IsOk());
  EXPECT_THAT(control_.StatusAt(5), StatusIs(ErrorCode::kDataLoss, "early"));
  EXPECT_EQ(words_->poison, 3u);
  control_.Fail(9, Aborted("later still"));
  EXPECT_EQ(words_->poison, 3u);
  EXPECT_THAT(control_.first_failure(), StatusIs(ErrorCode::kIoError, "late"));
  EXPECT_THAT(heard_,
              testing::ElementsAre(StatusIs(ErrorCode::kIoError, "late")));
}

TEST_F(CudaLaneControlTest, TheFlagStandsAtTheLastWaitWithNoneOpenBeforeIt) {
  EXPECT_EQ(control_.BeginWait(10), 1u);
  EXPECT_EQ(control_.BeginWait(20), 2u);
  EXPECT_EQ(control_.BeginWait(30), 3u);
  control_.EndWait(20, OkStatus());
  EXPECT_EQ(words_->flag, 0u);
  control_.EndWait(10, OkStatus());
  EXPECT_EQ(words_->flag, 2u);
  control_.EndWait(30, OkStatus());
  EXPECT_EQ(words_->flag, 3u);
  EXPECT_EQ(control_.BeginWait(40), 4u);
  EXPECT_EQ(words_->flag, 3u);
}

TEST_F(CudaLaneControlTest, WhatIsBehindAnOpenWaitIsInDoubt) {
  EXPECT_FALSE(control_.InDoubt(kNever));
  control_.BeginWait(10);
  control_.BeginWait(20);
  EXPECT_FALSE(control_.InDoubt(10));
  EXPECT_TRUE(control_.InDoubt(11));
  control_.EndWait(10, OkStatus());
  EXPECT_FALSE(control_.InDoubt(15));
  EXPECT_TRUE(control_.InDoubt(21));
  control_.EndWait(20, IoError("disk gone"));
  EXPECT_FALSE(control_.InDoubt(21));
  EXPECT_EQ(words_->poison, 20u);
  EXPECT_THAT(control_.StatusAt(21), StatusIs(ErrorCode::kIoError));
}

}  // namespace
}  // namespace castor
