// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// A trainer beside Castor: threads without a context, graphs that are being
// captured, kernels that were not loaded, children of fork().

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/pinned_arena.h"
#include "offload/memory/slab.h"
#include "tests/offload/cuda/cuda_fixture.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class CudaNeighboursTest : public CudaFixture {
 protected:
  CudaNeighboursTest()
      : CudaFixture({.threads = false, .devices = 2}, /*ordinal=*/1) {}

  // A stream of the trainer's.
  CudaStream MakeStream() {
    CudaStream stream = nullptr;
    cuda_.UseDevice(1);
    CASTOR_CHECK_EQ(cuda_.StreamCreate(&stream), kCudaOk);
    return stream;
  }
};

TEST_F(CudaNeighboursTest, AFreshThreadMakesNoContextOnDeviceZero) {
  std::thread([this] {
    const Slab slab = OnDevice(MiB(1));
    const Slab host = OnHost(MiB(1));
    const auto lane = device_->MakeLane("a");
    device_->Copy(*lane, slab.data(), host.data(), MiB(1), CopyKind::kToDevice);
    const Event copied = lane->Record();
    EXPECT_FALSE(copied.done());
    EXPECT_THAT(copied.Wait(), IsOk());
    lane->Record().OnDone([](const Status&) {});
    device_->ServeCallbacks();
    EXPECT_GT(device_->facts().free, Bytes(0));
    EXPECT_EQ(FakeCuda::CurrentDevice(), -1);
  }).join();
  EXPECT_FALSE(cuda_.has_context(0));
  EXPECT_TRUE(cuda_.has_context(1));
}

TEST_F(CudaNeighboursTest, AFreshThreadQueuesOnAnAdoptedStream) {
  const CudaStream stream = MakeStream();
  const auto lane = device_->AdoptStream(stream, "trainer").value();
  const EventSource drive;
  Event after;
  std::thread queues([&] {
    lane->Wait(drive.event());
    after = lane->Record();
  });
  drive.Complete();
  queues.join();
  cuda_.RunAll();
  EXPECT_THAT(after.Wait(), IsOk());
  EXPECT_FALSE(cuda_.has_context(0));
  ASSERT_EQ(cuda_.StreamDestroy(stream), kCudaOk);
}

TEST_F(CudaNeighboursTest, TheContextIsReleasedWithTheLastOfTheDevice) {
  Slab slab = OnDevice(KiB(4));
  EXPECT_EQ(cuda_.live().contexts, 1);
  device_ = nullptr;
  EXPECT_EQ(cuda_.live().contexts, 1);
  slab = Slab();
  EXPECT_EQ(cuda_.live().contexts, 0);
}

TEST_F(CudaNeighboursTest, ADeviceWithoutAContextIsRefused) {
  cuda_.FailCall("RetainContext", 1, kCudaOutOfMemory);
  EXPECT_THAT(CudaDevice::Open(&cuda_, {.executor = &executor_}),
              StatusIs(ErrorCode::kUnavailable, Says("no CUDA device")));
}

// Were a kernel loaded at its first launch, that launch would wait for what the
// trainer's kernel waits for: the launching thread.
TEST_F(CudaNeighboursTest, AKernelsFirstLaunchWaitsForNothing) {
  const CudaStream stream = MakeStream();
  const Slab values = OnDevice(KiB(4));
  const Slab ones = OnDevice(KiB(4));
  const auto own = device_->MakeLane("own");
  std::atomic<bool> launched = false;
  cuda_.Launch(
      stream, [] {}, [&launched] { return launched.load(); });
  device_->AddInto(*own, values.data(), ones.data(), DType::kF32, Elements(1));
  EXPECT_THAT(own->Record().Wait(), IsOk());
  launched = true;
  Settle();
  ASSERT_EQ(cuda_.StreamDestroy(stream), kCudaOk);
}

TEST_F(CudaNeighboursTest, KernelsThatCannotBeLoadedAreSaidAtOnce) {
  cuda_.FailCall("LoadKernels", 1, 209);
  EXPECT_THAT(CudaDevice::Open(&cuda_, {.executor = &executor_}),
              StatusIs(ErrorCode::kUnavailable, Says("cudaError209", "sm_80")));
}

TEST_F(CudaNeighboursTest, ATrainersCaptureAndCastorLeaveEachOtherAlone) {
  const CudaStream stream = MakeStream();
  cuda_.BeginCapture(stream);
  std::thread([this] {
    const Slab slab = OnDevice(MiB(1));
    const Slab host = OnHost(MiB(1));
    const auto lane = device_->MakeLane("a");
    device_->Copy(*lane, slab.data(), host.data(), MiB(1), CopyKind::kToDevice);
    EXPECT_THAT(lane->Record().Wait(), IsOk());
    device_->ServeCallbacks();
  }).join();
  // The capturing thread itself, too.
  EXPECT_THAT(device_->MakeSlab(MiB(1)), IsOk());
  EXPECT_EQ(cuda_.EndCapture(stream), kCudaOk);
  EXPECT_THAT(device_->status(), IsOk());
  ASSERT_EQ(cuda_.StreamDestroy(stream), kCudaOk);
}

TEST_F(CudaNeighboursTest, ACapturingStreamIsNotAdopted) {
  const CudaStream stream = MakeStream();
  cuda_.BeginCapture(stream);
  EXPECT_THAT(device_->AdoptStream(stream, "trainer"),
              StatusIs(ErrorCode::kFailedPrecondition, Says("capture")));
  EXPECT_EQ(cuda_.EndCapture(stream), kCudaOk);
  EXPECT_THAT(device_->AdoptStream(stream, "trainer"), IsOk());
  Settle();
  ASSERT_EQ(cuda_.StreamDestroy(stream), kCudaOk);
}

class CudaCaptureTest : public CudaNeighboursTest,
                        public testing::WithParamInterface<int> {};

// A wait, a kernel, host work and a record.
TEST_P(CudaCaptureTest, WorkForACapturingStreamFailsItsLaneAlone) {
  const CudaStream stream = MakeStream();
  const Slab values = OnDevice(KiB(4));
  {
    const auto lane = device_->AdoptStream(stream, "trainer").value();
    const EventSource drive;
    cuda_.BeginCapture(stream);
    Event end;
    bool ran = false;
    switch (GetParam()) {
      case 0:
        lane->Wait(drive.event());
        break;
      case 1:
        device_->Zero(*lane, values.data(), KiB(4));
        break;
      case 2:
        lane->Run([&ran] {
          ran = true;
          return OkStatus();
        });
        break;
      default:
        end = lane->Record();
        EXPECT_THAT(end.Wait(), StatusIs(ErrorCode::kFailedPrecondition));
    }
    EXPECT_THAT(lane->status(), StatusIs(ErrorCode::kFailedPrecondition));
    EXPECT_EQ(cuda_.EndCapture(stream), kCudaOk);
    Settle();
    EXPECT_FALSE(ran);
    EXPECT_THAT(lane->Record().Wait(),
                StatusIs(ErrorCode::kFailedPrecondition));
    drive.Complete();
  }
  EXPECT_THAT(device_->status(), IsOk());
  const auto other = device_->AdoptStream(stream, "again").value();
  device_->Zero(*other, values.data(), KiB(4));
  EXPECT_THAT(other->Record().Wait(), IsOk());
  Settle();
  ASSERT_EQ(cuda_.StreamDestroy(stream), kCudaOk);
}

INSTANTIATE_TEST_SUITE_P(Each, CudaCaptureTest, testing::Range(0, 4));

// VmFlags of the mapping that begins at `data` or holds it.
std::string FlagsOf(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char dash = 0;
    if (fields >> std::hex >> begin >> dash >> end && dash == '-') {
      inside = begin <= address && address < end;
    } else if (inside && line.starts_with("VmFlags:")) {
      return line + " ";
    }
  }
  return "";
}

TEST_F(CudaNeighboursTest, PinnedMemoryStaysOutOfChildrenOfFork) {
  const Slab host = OnHost(MiB(1));
  EXPECT_THAT(FlagsOf(host.data()), testing::HasSubstr(" dc "));
  // What a program may pin itself.
  const auto arena = MakePinnedArena({.budget = MiB(1)}).value();
  const PinnedBuffer buffer = arena->Allocate(KiB(4), Bytes(64)).value();
  EXPECT_THAT(FlagsOf(buffer.data()), testing::HasSubstr(" dc "));
  const Slab plain = MakeHostSlab(MiB(1), {.lock = false}).value();
  EXPECT_THAT(FlagsOf(plain.data()),
              testing::AllOf(testing::HasSubstr("VmFlags"),
                             testing::Not(testing::HasSubstr(" dc "))));
}

}  // namespace
}  // namespace castor
