// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/pinned_slab.h"

#include <cstddef>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/internal/slab_system.h"
#include "offload/slab.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What is asked of the system, in order.
class NotingSystem : public internal::SlabSystem {
 public:
  std::string BindToNode(std::byte*, Bytes, int node) const override {
    calls.push_back("bind to " + std::to_string(node));
    return "";
  }
  std::string BindToCallersNode(std::byte*, Bytes) const override {
    calls.push_back("bind to the caller's");
    return "";
  }
  std::string Lock(std::byte*, Bytes) const override {
    calls.push_back("lock");
    return "";
  }
  mutable std::vector<std::string> calls;
};

class PinnedSlabTest : public CudaFixture {
 protected:
  PinnedSlabTest() : CudaFixture({.threads = false, .numa_node = 3}) {
    Open({.system = &system_});
    system_.calls.clear();
    said_.clear();  // what the machine itself refused the fixture's device
    words_ = cuda_.registered_bytes();  // of lanes
  }
  ~PinnedSlabTest() override { device_ = nullptr; }

  NotingSystem system_;
  int64_t words_;
};

TEST_F(PinnedSlabTest, IsRegisteredOnceAndWholeOnTheDevicesNode) {
  const int64_t registrations = cuda_.calls("HostRegister");
  {
    HostSlabFacts facts;
    Result<Slab> slab = device_->MakeHostSlab(MiB(3) + Bytes(5), {}, &facts);
    ASSERT_THAT(slab, IsOk());
    EXPECT_EQ(slab->size(), MiB(3) + Bytes(5));
    EXPECT_TRUE(cuda_.IsRegistered(slab->data(), slab->size().count()));
    EXPECT_EQ(cuda_.registered_bytes() - words_, (MiB(3) + KiB(4)).count());
    EXPECT_EQ(cuda_.calls("HostRegister"), registrations + 1);
    EXPECT_TRUE(facts.registered);
    EXPECT_TRUE(facts.locked);
    EXPECT_TRUE(facts.bound);
    EXPECT_THAT(system_.calls, ElementsAre("bind to 3"));
  }
  EXPECT_EQ(cuda_.registered_bytes(), words_);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(PinnedSlabTest, TheCallersNodeComesFirst) {
  ASSERT_THAT(device_->MakeHostSlab(KiB(4), {.numa_node = 1}), IsOk());
  EXPECT_THAT(system_.calls, ElementsAre("bind to 1"));
}

TEST_F(PinnedSlabTest, WhereTheDriverRefusesTheMemoryIsLockedAndUsed) {
  for (int i = 0; i < 2; ++i) {
    cuda_.FailCall("HostRegister", 1, kCudaOutOfMemory);
    HostSlabFacts facts;
    Result<Slab> slab = device_->MakeHostSlab(MiB(1), {}, &facts);
    ASSERT_THAT(slab, IsOk());
    EXPECT_FALSE(facts.registered);
    EXPECT_TRUE(facts.locked);
    slab->data()[MiB(1).count() - 1] = std::byte{1};
  }
  EXPECT_THAT(said_, ElementsAre(Says("(1 MiB) of host memory",
                                      "cudaHostRegister", "half the speed")));
  EXPECT_THAT(device_->status(), IsOk());
  EXPECT_EQ(system_.calls.back(), "lock");
}

TEST_F(PinnedSlabTest, MemoryThatIsNotThereIsRefused) {
  EXPECT_THAT(device_->MakeHostSlab(GiB(1 << 20), {}),
              StatusIs(ErrorCode::kUnavailable));
  EXPECT_EQ(cuda_.registered_bytes(), words_);
}

}  // namespace
}  // namespace castor
