// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_control_pool.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <vector>

#include "chunk/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class CudaControlPoolTest : public testing::Test {
 protected:
  FakeCuda cuda_{{.threads = false}};
  std::shared_ptr<CudaCore> core_ =
      std::make_shared<CudaCore>(&cuda_, 0, "Fake GPU", nullptr, nullptr);
  std::shared_ptr<CudaControlPool> pool_ =
      std::make_shared<CudaControlPool>(core_, HostSlabOptions{});
};

TEST_F(CudaControlPoolTest, WordsAreFreshApartAndReused) {
  std::set<void*> seen;
  {
    std::vector<CudaControlPool::Words> all;
    for (int i = 0; i < 64; ++i) {
      Result<CudaControlPool::Words> words = pool_->Take();
      ASSERT_THAT(words, IsOk());
      EXPECT_EQ(words->on_host->flag, 0u);
      EXPECT_EQ(words->on_host->poison, std::numeric_limits<uint64_t>::max());
      EXPECT_NE(words->on_device, nullptr);
      EXPECT_NE(words->on_device, words->on_host.get());
      words->on_host->flag = 7;
      words->on_host->poison = 8;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(words->on_host.get()) % 64, 0u);
      seen.insert(words->on_host.get());
      all.push_back(*words);
    }
    EXPECT_EQ(seen.size(), 64u);
    EXPECT_EQ(cuda_.live().registrations, 1);
    ASSERT_THAT(pool_->Take(), IsOk());
    EXPECT_EQ(cuda_.live().registrations, 2);
  }
  const Result<CudaControlPool::Words> again = pool_->Take();
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->on_host->flag, 0u);
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
  const Result<CudaControlPool::Words> words = pool_->Take();
  ASSERT_THAT(words, IsOk());
  EXPECT_EQ(words->on_device, nullptr);
  EXPECT_EQ(words->on_host->flag, 0u);
}

}  // namespace
}  // namespace castor
