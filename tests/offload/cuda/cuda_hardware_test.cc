// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The device contract, its kernels' bits among it, on the GPU of this machine,
// and what only a GPU can show. Where there is none every test is skipped with
// the reason.

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/reduce.h"
#include "offload/lanes/executor.h"
#include "tests/support/contracts/device_contract.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

class GpuUnderTest final : public DeviceUnderTest {
 public:
  static std::unique_ptr<GpuUnderTest> Make(std::string* skip_reason) {
    CudaCalls* const calls = CudaRuntimeCalls();
    auto made = std::make_unique<GpuUnderTest>();
    auto opened = CudaDevice::Open(
        calls, {.executor = &made->executor_, .log = &made->log_});
    if (!opened.ok()) {
      *skip_reason = opened.status().ToString();
      return nullptr;
    }
    made->device_ = *std::move(opened);
    return made;
  }

  Device& device() override { return *device_; }
  CudaDevice& cuda_device() { return *device_; }

 private:
  ThreadPool executor_{2};
  Log log_;
  std::unique_ptr<CudaDevice> device_;
};

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceContract,
                         testing::Values(DeviceBackend{"Cuda0",
                                                       GpuUnderTest::Make}),
                         DeviceBackendName());

class CudaHardwareTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    gpu_ = GpuUnderTest::Make(&reason);
    if (gpu_ == nullptr) GTEST_SKIP() << reason;
    ASSERT_EQ(CudaRuntimeCalls()->StreamCreate(&stream_), kCudaOk);
  }
  void TearDown() override {
    if (gpu_ != nullptr) CudaRuntimeCalls()->StreamDestroy(stream_);
  }

  CudaDevice& device() { return gpu_->cuda_device(); }
  Slab OnDevice(Bytes size) { return device().MakeSlab(size).value(); }
  Slab OnHost(Bytes size) { return device().MakeHostSlab(size, {}).value(); }
  std::unique_ptr<Lane> Adopt() {
    return device().AdoptStream(stream_, "trainer").value();
  }
  // The first float of `slab`, read behind everything on `lane`.
  float First(Lane& lane, const Slab& slab) {
    const Slab host = OnHost(KiB(4));
    const auto reader = device().MakeLane("read");
    lane.Record().Wait().IgnoreError();
    device().Copy(*reader, host.data(), slab.data(), Bytes(4),
                  CopyKind::kFromDevice);
    EXPECT_THAT(reader->Drain(), IsOk());
    return *reinterpret_cast<const float*>(host.data());
  }
  Slab Ones() {
    const Slab host = OnHost(KiB(4));
    std::fill_n(reinterpret_cast<float*>(host.data()), 1024, 1.0f);
    Slab ones = OnDevice(KiB(4));
    const auto lane = device().MakeLane("ones");
    device().Copy(*lane, ones.data(), host.data(), KiB(4), CopyKind::kToDevice);
    EXPECT_THAT(lane->Drain(), IsOk());
    return ones;
  }

  std::unique_ptr<GpuUnderTest> gpu_;
  CudaStream stream_ = nullptr;
};

TEST_F(CudaHardwareTest, ATrainerWaitsForAHostEvent) {
  const Slab ones = Ones();
  const Slab sum = OnDevice(KiB(4));
  const auto lane = Adopt();
  const EventSource drive;
  std::thread completer([&drive] { drive.Complete(); });
  lane->Wait(drive.event());
  completer.join();
  device().AddInto(*lane, sum.data(), ones.data(), DType::kF32, Elements(1024));
  EXPECT_THAT(lane->Drain(), IsOk());
  EXPECT_EQ(First(*lane, sum), 1.0f);
}

// More launches than a stream's queue holds, the first of their kernel among
// them, behind a copy that waits for a drive.
TEST_F(CudaHardwareTest, AnAdoptedStreamWaitsForALateCopy) {
  constexpr int kLaunches = 4096;
  const Slab host = OnHost(KiB(4));
  std::fill_n(reinterpret_cast<float*>(host.data()), 1024, 1.0f);
  const Slab ones = OnDevice(KiB(4));
  const Slab sum = OnDevice(KiB(4));
  const auto lane = Adopt();
  const auto own = device().MakeLane("own");
  const EventSource drive;
  std::thread completer([&drive] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    drive.Complete();
  });
  own->Wait(drive.event());
  device().Copy(*own, ones.data(), host.data(), KiB(4), CopyKind::kToDevice);
  lane->Wait(own->Record());
  for (int launch = 0; launch < kLaunches; ++launch) {
    device().AddInto(*lane, sum.data(), ones.data(), DType::kF32,
                     Elements(1024));
  }
  EXPECT_THAT(lane->Drain(), IsOk());
  completer.join();
  EXPECT_EQ(First(*lane, sum), static_cast<float>(kLaunches));
}

TEST_F(CudaHardwareTest, BehindAFailedWaitNothingIsQueued) {
  const Slab ones = Ones();
  const Slab sum = OnDevice(KiB(4));
  const auto lane = Adopt();
  device().AddInto(*lane, sum.data(), ones.data(), DType::kF32, Elements(1024));
  const Event before = lane->Record();
  lane->Wait(Event::Failed(IoError("disk gone")));
  device().AddInto(*lane, sum.data(), ones.data(), DType::kF32, Elements(1024));
  const Event after = lane->Record();
  EXPECT_THAT(before.Wait(), IsOk());
  EXPECT_THAT(after.Wait(), StatusIs(ErrorCode::kIoError, "disk gone"));
  EXPECT_EQ(First(*device().MakeLane("own"), sum), 1.0f);
}

TEST_F(CudaHardwareTest, StreamsTellWhenTheyGotThere) {
  const Slab slab = OnDevice(MiB(64));
  const SteadyClock clock;
  for (const bool adopted : {false, true}) {
    const auto lane = adopted ? Adopt() : device().MakeLane("own");
    const int64_t begin = clock.NowNs();
    int64_t first = 0;
    int64_t last = 0;
    lane->NoteTime(&clock, [&](int64_t ns) { first = ns; });
    device().Zero(*lane, slab.data(), MiB(64));
    lane->NoteTime(&clock, [&](int64_t ns) { last = ns; });
    device().FinishTimes();
    const int64_t end = clock.NowNs();
    constexpr int64_t kSlackNs = 1'000'000;
    EXPECT_GT(first, begin - kSlackNs);
    EXPECT_GT(last, first);
    EXPECT_LT(last, end + kSlackNs);
  }
}

// Loaded lazily, a kernel would wait at its first launch for the stream that
// waits for this thread.
TEST_F(CudaHardwareTest, FirstLaunchesWaitForNothing) {
  const Slab ones = Ones();
  const Slab low = OnDevice(KiB(4));
  const Slab words = OnDevice(Bytes(int64_t{8} * ExactSum::kWords));
  std::atomic<bool> go = false;
  ASSERT_EQ(cudaLaunchHostFunc(
                static_cast<cudaStream_t>(stream_),
                [](void* flag) {
                  while (!*static_cast<std::atomic<bool>*>(flag)) {
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  }
                },
                &go),
            cudaSuccess);
  const auto own = device().MakeLane("own");
  const auto* const from = ones.data();
  device().Convert(*own, from, DType::kF32, low.data(), DType::kBF16,
                   Elements(1024));
  device().AddInto(*own, low.data(), low.data(), DType::kBF16, Elements(1024));
  device().AddSquares(*own, from, DType::kF32, Elements(1024),
                      reinterpret_cast<uint64_t*>(words.data()));
  const Event end = own->Record();
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!end.done() && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(end.done());
  go = true;
  EXPECT_EQ(cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)),
            cudaSuccess);
}

TEST_F(CudaHardwareTest, ACaptureOfTheTrainersGoesOnBesideCastor) {
  const auto native = static_cast<cudaStream_t>(stream_);
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeGlobal),
            cudaSuccess);
  std::thread([this] {
    const Slab slab = OnDevice(MiB(1));
    const Slab host = OnHost(MiB(1));
    const auto lane = device().MakeLane("own");
    device().Copy(*lane, slab.data(), host.data(), MiB(1), CopyKind::kToDevice);
    EXPECT_THAT(lane->Drain(), IsOk());
  }).join();
  EXPECT_THAT(device().AdoptStream(stream_, "trainer"),
              StatusIs(ErrorCode::kFailedPrecondition));
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  if (graph != nullptr) {
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }
  EXPECT_THAT(device().status(), IsOk());
}

TEST_F(CudaHardwareTest, HostSlabsAreRegistered) {
  HostSlabFacts facts;
  ASSERT_OK_AND_ASSIGN(const Slab slab,
                       device().MakeHostSlab(MiB(64), {}, &facts));
  EXPECT_TRUE(facts.registered);
}

TEST_F(CudaHardwareTest, NoEventIsCreatedInSteadyState) {
  const Slab slab = OnDevice(MiB(1));
  const Slab host = OnHost(MiB(1));
  const auto to = device().MakeLane("to");
  const auto from = device().MakeLane("from");
  const auto step = [&] {
    for (int i = 0; i < 20; ++i) {
      device().Copy(*to, slab.data(), host.data(), MiB(1), CopyKind::kToDevice);
      from->Wait(to->Record());
      device().Copy(*from, host.data(), slab.data(), MiB(1),
                    CopyKind::kFromDevice);
      to->Wait(from->Record());
    }
    ASSERT_THAT(to->Drain(), IsOk());
  };
  step();
  step();
  const int64_t created = device().events_created();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_EQ(device().events_created(), created);
}

// Far more elements than a grid has threads, and exponents of every size.
TEST_F(CudaHardwareTest, ALargeSumOfSquaresHasTheHostsDigits) {
  constexpr int64_t kCount = (int64_t{1} << 24) + 37;
  const Slab host = OnHost(Bytes(kCount * 4));
  auto* const values = reinterpret_cast<float*>(host.data());
  uint32_t state = 1;
  for (int64_t i = 0; i < kCount; ++i) {
    state = state * 1664525 + 1013904223;
    values[i] = static_cast<float>(static_cast<int32_t>(state)) *
                (i % 7 == 0 ? 1e-30f : 1e-9f);
  }
  ExactSum expected;
  AddSquares(values, DType::kF32, kCount, &expected);

  const Slab grads = OnDevice(Bytes(kCount * 4));
  constexpr Bytes kWords(int64_t{8} * ExactSum::kWords);
  const Slab words = OnDevice(kWords);
  const Slab back = OnHost(kWords);
  const auto lane = device().MakeLane("norm");
  device().Copy(*lane, grads.data(), host.data(), host.size(),
                CopyKind::kToDevice);
  device().AddSquares(*lane, grads.data(), DType::kF32, Elements(kCount),
                      reinterpret_cast<uint64_t*>(words.data()));
  device().Copy(*lane, back.data(), words.data(), kWords,
                CopyKind::kFromDevice);
  ASSERT_THAT(lane->Drain(), IsOk());
  ExactSum got;
  std::copy_n(reinterpret_cast<const uint64_t*>(back.data()), ExactSum::kWords,
              got.words().begin());
  EXPECT_TRUE(std::ranges::equal(got.words(), expected.words()));
  EXPECT_EQ(got.Total(), expected.Total());
}

// What a reduction in rank order adds, wherever the own part lies among them.
TEST_F(CudaHardwareTest, PartsOfRanksAddUpToTheHostsBits) {
  constexpr int64_t kCount = 4099;
  constexpr int64_t kStride = 4224;
  constexpr int kParts = 4;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const Bytes size = BytesOf(Elements(kStride * kParts), dtype);
    const int64_t stride = BytesOf(Elements(kStride), dtype).count();
    const Slab host = OnHost(size);
    uint32_t state = 7;
    for (int64_t i = 0; i < size.count() / 2; ++i) {
      state = state * 1664525 + 1013904223;
      // Half an fp32, or a bf16, of no large exponent.
      reinterpret_cast<uint16_t*>(host.data())[i] =
          static_cast<uint16_t>((state >> 16 & 0x83FF) | 0x3C00);
    }
    const Slab parts = OnDevice(size);
    const Slab back = OnHost(size);
    for (int own = 0; own < kParts; ++own) {
      // The host's last part lies where the own one is.
      std::vector<const void*> sources;
      for (int slot = 0; slot + 1 < kParts; ++slot) {
        sources.push_back(host.data() + slot * stride);
      }
      sources.insert(sources.begin() + own,
                     host.data() + (kParts - 1) * stride);
      std::vector<std::byte> expected(
          static_cast<size_t>(BytesOf(Elements(kCount), dtype).count()));
      SumInOrder(sources, dtype, kCount, expected.data());

      const auto lane = device().MakeLane("parts");
      device().Copy(*lane, parts.data(), host.data(), size,
                    CopyKind::kToDevice);
      ASSERT_THAT(lane->Drain(), IsOk());
      std::byte* const at = parts.data() + (kParts - 1) * stride;
      ASSERT_EQ(CudaRuntimeCalls()->SumParts(stream_,
                                             {.others = parts.data(),
                                              .stride = kStride,
                                              .own = at,
                                              .own_index = own,
                                              .parts = kParts},
                                             dtype, kCount, at),
                kCudaOk);
      ASSERT_EQ(CudaRuntimeCalls()->StreamSynchronize(stream_), kCudaOk);
      device().Copy(*lane, back.data(), at, Bytes(std::ssize(expected)),
                    CopyKind::kFromDevice);
      ASSERT_THAT(lane->Drain(), IsOk());
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), back.data()))
          << DTypeName(dtype) << ", own part " << own;
    }
  }
}

TEST(CudaRuntimeCallsTest, ErrorsHaveTheRuntimesNames) {
  EXPECT_THAT(CudaRuntimeCalls()->ErrorText(kCudaOutOfMemory),
              Says("cudaErrorMemoryAllocation", "(2)"));
}

TEST(CudaRuntimeCallsTest, SaysWhetherThereIsADevice) {
  int count = -1;
  const int error = CudaRuntimeCalls()->GetDeviceCount(&count);
  if (error == kCudaOk) {
    EXPECT_GT(count, 0);
    CudaDeviceProperties properties;
    ASSERT_EQ(CudaRuntimeCalls()->GetProperties(0, &properties), kCudaOk);
    EXPECT_FALSE(properties.name.empty());
    EXPECT_GT(properties.total_bytes, 0);
    EXPECT_GE(properties.numa_node, -1);
  } else {
    EXPECT_TRUE(error == kCudaInsufficientDriver || error == kCudaNoDevice)
        << CudaRuntimeCalls()->ErrorText(error);
  }
}

}  // namespace
}  // namespace castor
