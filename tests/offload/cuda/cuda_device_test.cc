// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

#include "offload/cuda/cuda_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/host/slab_system.h"
#include "offload/lane.h"
#include "offload/memory/slab.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CudaDeviceTest : public CudaFixture {
 protected:
  CudaDeviceTest()
      : CudaFixture({.threads = false,
                     .devices = 2,
                     .total_bytes = MiB(64).count(),
                     .numa_node = 0}) {}

  Status OpenWith(const CudaDeviceOptions& options) {
    CudaDeviceOptions complete = options;
    complete.executor = &executor_;
    complete.completion = CudaEventWatcher::Thread::kNone;
    return CudaDevice::Open(&cuda_, complete).status();
  }
};

TEST_F(CudaDeviceTest, SaysWhatTheDeviceIs) {
  const DeviceFacts facts = device_->facts();
  EXPECT_EQ(facts.name, "Fake GPU 0");
  EXPECT_EQ(facts.total, MiB(64));
  EXPECT_EQ(facts.free, MiB(64));
  EXPECT_EQ(facts.numa_node, 0);
  EXPECT_FALSE(facts.host_addressable);
  const Slab slab = OnDevice(MiB(16));
  EXPECT_EQ(device_->facts().free, MiB(48));
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(CudaDeviceTest, AMachineWithoutADriverIsRefusedWithTheRemedy) {
  cuda_.FailCall("GetDeviceCount", 1, kCudaInsufficientDriver);
  EXPECT_THAT(OpenWith({}),
              StatusIs(ErrorCode::kUnavailable, Says("cudaError35", "driver")));
  cuda_.FailCall("GetDeviceCount", 1, kCudaNoDevice);
  EXPECT_THAT(OpenWith({}),
              StatusIs(ErrorCode::kUnavailable,
                       Says("cudaError100", "CUDA_VISIBLE_DEVICES")));
}

TEST_F(CudaDeviceTest, ADeviceThatIsNotThereIsRefused) {
  EXPECT_THAT(OpenWith({.ordinal = 2}),
              StatusIs(ErrorCode::kUnavailable,
                       Says("no CUDA device 2: 2 can be used")));
  EXPECT_THAT(OpenWith({.ordinal = -1}), StatusIs(ErrorCode::kUnavailable));
}

TEST_F(CudaDeviceTest, AFailedStartLeavesNothingBehind) {
  device_ = nullptr;
  for (const char* call : {"StreamCreate", "GetProperties", "GetDeviceCount"}) {
    cuda_.FailCall(call, 1, 46);
    EXPECT_FALSE(OpenWith({}).ok()) << call;
    EXPECT_EQ(cuda_.live(), FakeCuda::Live()) << call;
  }
}

TEST_F(CudaDeviceTest, ASlabIsOneAllocationZeroedAndFreed) {
  const int64_t allocations = cuda_.calls("Malloc");
  {
    const Slab slab = OnDevice(MiB(1) + Bytes(3));
    EXPECT_EQ(cuda_.calls("Malloc"), allocations + 1);
    EXPECT_EQ(slab.tier(), Tier::kDevice);
    const std::byte* const data = cuda_.Reach(slab.data());
    EXPECT_TRUE(std::all_of(data, data + slab.size().count(),
                            [](std::byte b) { return b == std::byte{0}; }));
  }
  EXPECT_EQ(cuda_.live().allocations, 0);
}

TEST_F(CudaDeviceTest, MemoryThatTheDeviceLacksIsRefusedWithBothNumbers) {
  const Slab most = OnDevice(MiB(60));
  const int64_t allocations = cuda_.calls("Malloc");
  EXPECT_THAT(
      device_->MakeSlab(MiB(5)),
      StatusIs(ErrorCode::kUnavailable, Says("5 MiB were asked", "4 MiB free",
                                             "lower the device budget")));
  EXPECT_EQ(cuda_.calls("Malloc"), allocations);
  // Enough is free, but not in one piece.
  cuda_.FailCall("Malloc", 1, kCudaOutOfMemory);
  EXPECT_THAT(device_->MakeSlab(MiB(4)), StatusIs(ErrorCode::kUnavailable));
  EXPECT_THAT(device_->status(), IsOk());
  EXPECT_THAT(device_->MakeSlab(MiB(4)), IsOk());
}

TEST_F(CudaDeviceTest, ASlabThatCannotBeZeroedIsFreedAgain) {
  cuda_.FailCall("MemsetAsync", 1, 700);
  EXPECT_THAT(device_->MakeSlab(MiB(1)), StatusIs(ErrorCode::kIoError));
  EXPECT_EQ(cuda_.live().allocations, 0);
  // The failure was the device's.
  EXPECT_THAT(device_->MakeSlab(MiB(1)), StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(device_->MakeHostSlab(MiB(1), {}), StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(device_->AdoptStream(nullptr, "trainer"),
              StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(device_->MakeLane("a")->status(), StatusIs(ErrorCode::kIoError));
}

TEST_F(CudaDeviceTest, TheTrainersCurrentDeviceStaysCurrent) {
  Open({.ordinal = 1});
  cuda_.UseDevice(0);
  const Slab slab = OnDevice(MiB(1));
  const Slab host = OnHost(MiB(1));
  const auto lane = device_->MakeLane("a");
  device_->Zero(*lane, slab.data(), MiB(1));
  device_->Copy(*lane, host.data(), slab.data(), MiB(1), CopyKind::kFromDevice);
  lane->Record();
  EXPECT_EQ(FakeCuda::CurrentDevice(), 0);
  Settle();
}

TEST_F(CudaDeviceTest, NothingOfNothingIsQueued) {
  const auto lane = device_->MakeLane("a");
  EXPECT_THAT(device_->MakeSlab(Bytes(0)), IsOk());
  EXPECT_THAT(device_->MakeHostSlab(Bytes(0), {}), IsOk());
  device_->Zero(*lane, nullptr, Bytes(0));
  device_->Copy(*lane, nullptr, nullptr, Bytes(0), CopyKind::kWithinDevice);
  device_->AddSquares(*lane, nullptr, DType::kF32, Elements(0), nullptr);
  EXPECT_TRUE(lane->Record().done());
}

TEST_F(CudaDeviceTest, ALaneOfAnotherDeviceIsADefect) {
  CudaDeviceOptions options{.executor = &executor_,
                            .completion = CudaEventWatcher::Thread::kNone};
  ASSERT_OK_AND_ASSIGN(auto other, CudaDevice::Open(&cuda_, options));
  const auto lane = other->MakeLane("other");
  EXPECT_DEATH(device_->Zero(*lane, nullptr, Bytes(4)), "own");
}

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
    ASSERT_OK_AND_ASSIGN(Slab slab,
                         device_->MakeHostSlab(MiB(3) + Bytes(5), {}, &facts));
    EXPECT_EQ(slab.size(), MiB(3) + Bytes(5));
    EXPECT_TRUE(cuda_.IsRegistered(slab.data(), slab.size().count()));
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

TEST_F(PinnedSlabTest, IsUnregisteredBeforePagesGoAndRegisteredAgain) {
  ASSERT_OK_AND_ASSIGN(const Slab slab, device_->MakeHostSlab(MiB(1), {}));
  slab.data()[0] = slab.data()[KiB(8).count()] = std::byte{7};
  slab.pages()->Loosen();
  EXPECT_FALSE(cuda_.IsRegistered(slab.data(), 1));
  EXPECT_FALSE(slab.pages()->locked());
  slab.pages()->Drop(slab.data(), KiB(4));
  slab.pages()->Settle();
  EXPECT_TRUE(cuda_.IsRegistered(slab.data(), slab.size().count()));
  EXPECT_TRUE(slab.pages()->locked());
  EXPECT_EQ(slab.data()[0], std::byte{0});
  EXPECT_EQ(slab.data()[KiB(8).count()], std::byte{7});
  // One that is loose from the start is registered when it settles.
  const int64_t registrations = cuda_.calls("HostRegister");
  ASSERT_OK_AND_ASSIGN(
      const Slab loose,
      device_->MakeHostSlab(MiB(1), {.coming = {.loose = true}}));
  EXPECT_EQ(cuda_.calls("HostRegister"), registrations);
  loose.pages()->Settle();
  EXPECT_TRUE(cuda_.IsRegistered(loose.data(), loose.size().count()));
}

TEST_F(PinnedSlabTest, WhereTheDriverRefusesTheMemoryIsLockedAndUsed) {
  for (int i = 0; i < 2; ++i) {
    cuda_.FailCall("HostRegister", 1, kCudaOutOfMemory);
    HostSlabFacts facts;
    ASSERT_OK_AND_ASSIGN(Slab slab, device_->MakeHostSlab(MiB(1), {}, &facts));
    EXPECT_FALSE(facts.registered);
    EXPECT_TRUE(facts.locked);
    slab.data()[MiB(1).count() - 1] = std::byte{1};
  }
  EXPECT_THAT(said_, ElementsAre(Says("1 MiB of host memory",
                                      "cudaHostRegister", "half the speed")));
  EXPECT_THAT(device_->status(), IsOk());
  EXPECT_EQ(system_.calls.back(), "lock");
}

}  // namespace
}  // namespace castor
