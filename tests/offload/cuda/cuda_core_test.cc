// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_core.h"

#include <memory>
#include <string>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class CudaCoreTest : public testing::Test {
 protected:
  int CurrentDevice() {
    int device = -1;
    EXPECT_EQ(cuda_.GetDevice(&device), kCudaOk);
    return device;
  }

  FakeCuda cuda_{{.threads = false, .devices = 3}};
  CudaCore core_{&cuda_, 2, "Fake GPU", nullptr, nullptr};
};

TEST_F(CudaCoreTest, AScopeChangesTheCurrentDeviceAndChangesItBack) {
  ASSERT_EQ(cuda_.SetDevice(1), kCudaOk);
  {
    const CudaCore::Scope scope(core_);
    EXPECT_EQ(CurrentDevice(), 2);
    {
      const CudaCore::Scope inner(core_);
      EXPECT_EQ(CurrentDevice(), 2);
    }
    EXPECT_EQ(CurrentDevice(), 2);
  }
  EXPECT_EQ(CurrentDevice(), 1);
  ASSERT_EQ(cuda_.SetDevice(0), kCudaOk);
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
    CudaCore core(&cuda_, 1, "Fake GPU", nullptr, nullptr);
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

}  // namespace
}  // namespace castor
