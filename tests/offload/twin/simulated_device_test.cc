// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The contract of every device, on the twin in each of its guises; and what is
// the twin's own: its capacity, its account of the links, how it breaks.
// simulated_device_time_test.cc has the time that transfers take.

#include "offload/twin/simulated_device.h"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/device.h"
#include "offload/host/available_memory.h"
#include "offload/host/slab_system.h"
#include "offload/kernels/optimizer.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/lanes/executor.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_link.h"
#include "offload/worker_pool.h"
#include "placement/tier_model.h"
#include "tests/support/contracts/device_contract.h"
#include "tests/support/fakes/manual_executor.h"
#include "tests/support/fakes/shuffling_executor.h"
#include "tests/support/status_matchers.h"

namespace castor {
namespace {

constexpr Bytes kCapacity = MiB(64);

// Fast enough for a test of thousands of transfers, and never at once.
SimulatedLinkModels Throttled(Duplex duplex) {
  return {.to_device = LinkModel{20'000'000'000, 2'000},
          .from_device = LinkModel{10'000'000'000, 1'000},
          .within_device = LinkModel{200'000'000'000, 0},
          .duplex = duplex};
}

class Twin final : public DeviceUnderTest {
 public:
  // `timer` may be null.
  Twin(std::unique_ptr<Executor> executor, std::unique_ptr<Timer> timer,
       const SimulatedLinkModels& links)
      : executor_(std::move(executor)), timer_(std::move(timer)) {
    MakeDevice(executor_.get(), timer_.get(), links);
  }
  // In a world whose time is counted.
  Twin(bool takes_part, const SimulatedLinkModels& links)
      : world_(std::make_unique<VirtualExecutor>()) {
    if (takes_part) participant_.emplace(world_.get());
    MakeDevice(world_.get(), world_.get(), links);
  }

  Device& device() override { return *device_; }
  bool Break() override {
    device_->InjectFailure(Unavailable("the device fell off the bus"));
    return true;
  }

 private:
  void MakeDevice(Executor* executor, Timer* timer,
                  const SimulatedLinkModels& links) {
    device_ = std::make_unique<SimulatedDevice>(
        SimulatedDeviceOptions{.capacity = kCapacity,
                               .links = links,
                               .executor = executor,
                               .timer = timer});
  }

  std::unique_ptr<VirtualExecutor> world_;
  std::optional<VirtualParticipant> participant_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<SimulatedDevice> device_;
};

template <typename MakeExecutor>
DeviceBackend Unthrottled(const std::string& name, MakeExecutor make) {
  return {name, [make](std::string*) {
            return std::make_unique<Twin>(make(), nullptr,
                                          SimulatedLinkModels());
          }};
}

std::unique_ptr<Executor> Threads(int threads) {
  return std::make_unique<ThreadPool>(threads);
}

DeviceBackend OnRealClock(const std::string& name, Duplex duplex) {
  return {name, [duplex](std::string*) {
            return std::make_unique<Twin>(
                Threads(2), std::make_unique<SteadyTimer>(), Throttled(duplex));
          }};
}

DeviceBackend OnVirtualClock(const std::string& name, bool takes_part) {
  return {name, [takes_part](std::string*) {
            return std::make_unique<Twin>(takes_part, Throttled(Duplex::kFull));
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Simulated, DeviceContract,
    testing::Values(
        Unthrottled("Threads2", [] { return Threads(2); }),
        Unthrottled("Threads1", [] { return Threads(1); }),
        Unthrottled("OutOfOrder",
                    [] { return std::make_unique<ShufflingExecutor>(17); }),
        OnRealClock("ThrottledFull", Duplex::kFull),
        OnRealClock("ThrottledHalf", Duplex::kHalf),
        OnVirtualClock("Virtual", false),
        OnVirtualClock("VirtualStepped", true)),
    DeviceBackendName());

class SimulatedDeviceTest : public testing::Test {
 protected:
  SimulatedDeviceOptions Options() {
    return {.capacity = kCapacity, .executor = &executor_};
  }

  ManualExecutor executor_;
};

TEST_F(SimulatedDeviceTest, FactsFollowItsSlabs) {
  SimulatedDevice device(Options());
  EXPECT_EQ(device.facts().name, "simulated device");
  EXPECT_EQ(device.facts().total, kCapacity);
  EXPECT_EQ(device.facts().free, kCapacity);
  EXPECT_TRUE(device.facts().host_addressable);
  {
    const Result<Slab> slab = device.MakeSlab(MiB(24));
    EXPECT_EQ(device.facts().free, MiB(40));
    // Host memory is not the device's.
    const Result<Slab> host = device.MakeHostSlab(MiB(1), {});
    EXPECT_EQ(device.facts().free, MiB(40));
  }
  EXPECT_EQ(device.facts().free, kCapacity);
}

TEST_F(SimulatedDeviceTest, OptimizesOnManyThreadsToTheBitsOfOne) {
  constexpr int64_t kCount = 5 * WorkerPool::kRange / 2;
  const OptimizerScalars scalars = ComputeOptimizerScalars({}, 3);
  WorkerPool workers({.threads = 3});
  std::vector<std::vector<std::byte>> results;
  for (WorkerPool* pool : {static_cast<WorkerPool*>(nullptr), &workers}) {
    SimulatedDeviceOptions options = Options();
    options.workers = pool;
    SimulatedDevice device(options);
    // Gradient, parameter and moments: the host may touch them.
    const Slab slab = *device.MakeSlab(Bytes(4 * kCount * 4));
    auto* const floats = reinterpret_cast<float*>(slab.data());
    for (int64_t i = 0; i < 4 * kCount; ++i) {
      floats[i] = static_cast<float>(i % 1009) / 997;
    }
    OptimizerBuffers buffers;
    buffers.grad = floats;
    buffers.param = floats + kCount;
    buffers.exp_avg = floats + 2 * kCount;
    buffers.exp_avg_sq = floats + 3 * kCount;
    const float before = floats[2 * kCount - 1];
    ThreadLane lane("optimize");
    device.Optimize(lane, buffers, Elements(kCount), scalars, 0.5f);
    EXPECT_NE(floats[2 * kCount - 1], before);
    const std::span<std::byte> bytes = Contents(slab);
    results.emplace_back(bytes.begin(), bytes.end());
  }
  EXPECT_TRUE(results[0] == results[1]);
}

TEST_F(SimulatedDeviceTest, RefusesWhatIsNotFreeWithTheNumbers) {
  SimulatedDevice device(Options());
  ASSERT_OK_AND_ASSIGN(const Slab held, device.MakeSlab(MiB(60)));
  EXPECT_THAT(device.MakeSlab(MiB(4) + Bytes(1)),
              StatusIs(ErrorCode::kUnavailable,
                       Says("4.01 MiB of device memory",
                            "4 MiB of the 64 MiB of simulated device are free",
                            "lower the device")));
  EXPECT_EQ(device.facts().free, MiB(4));
  EXPECT_THAT(device.MakeSlab(MiB(4)), IsOk());
}

TEST_F(SimulatedDeviceTest, WhatTheMachineLacksIsNotTaken) {
  class FullSystem final : public internal::SlabSystem {
    std::optional<internal::AvailableMemory> Available() const override {
      return internal::AvailableMemory{KiB(1), "a full machine"};
    }
  };
  const FullSystem full;
  SimulatedDeviceOptions options = Options();
  options.system = &full;
  SimulatedDevice device(options);
  EXPECT_THAT(device.MakeSlab(MiB(1)),
              StatusIs(ErrorCode::kUnavailable, Says("a full machine")));
  EXPECT_EQ(device.facts().free, kCapacity);
}

TEST_F(SimulatedDeviceTest, ASlabMayOutliveIt) {
  std::optional<SimulatedDevice> device(Options());
  ASSERT_OK_AND_ASSIGN(Slab slab, device->MakeSlab(MiB(1)));
  device.reset();
  slab.data()[0] = std::byte{1};
}

// The race of MakeSlab with MakeSlab and with the end of a slab.
TEST_F(SimulatedDeviceTest, ManyThreadsNeverGetMoreThanItHas) {
  SimulatedDeviceOptions options = Options();
  options.capacity = KiB(64);
  SimulatedDevice device(options);
  std::atomic<int64_t> held = 0;
  std::atomic<int64_t> most = 0;
  std::atomic<int> refused = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const Bytes size = KiB(8 + (t * 7 + i * 5) % 24);
        const Result<Slab> slab = device.MakeSlab(size);
        if (!slab.ok()) {
          ++refused;
          continue;
        }
        const int64_t now = held += size.count();
        int64_t before = most;
        while (now > before && !most.compare_exchange_weak(before, now)) {
        }
        std::this_thread::yield();
        held -= size.count();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, KiB(64).count());
  EXPECT_LT(refused, 800);
  EXPECT_EQ(device.facts().free, KiB(64));
}

TEST_F(SimulatedDeviceTest, WorksOnATrainersOwnLane) {
  SimulatedDevice device(Options());
  const Result<Slab> slab = device.MakeSlab(KiB(1));
  std::vector<std::byte> host(1024, std::byte{5});
  ThreadLane lane("trainer");
  device.Copy(lane, slab->data(), host.data(), KiB(1), CopyKind::kToDevice);
  EXPECT_EQ(slab->data()[1023], std::byte{5});
  device.Zero(lane, slab->data(), KiB(1));
  EXPECT_EQ(slab->data()[1023], std::byte{0});
  EXPECT_THAT(lane.status(), IsOk());
}

TEST_F(SimulatedDeviceTest, CountsWhatItsLinksCarried) {
  SimulatedDevice device(Options());
  const Result<Slab> slab = device.MakeSlab(KiB(8));
  std::vector<std::byte> host(8192);
  const auto lane = device.MakeLane("lane");
  device.Copy(*lane, slab->data(), host.data(), KiB(8), CopyKind::kToDevice);
  device.Copy(*lane, host.data(), slab->data(), KiB(2), CopyKind::kFromDevice);
  device.Copy(*lane, host.data(), slab->data(), KiB(1), CopyKind::kFromDevice);
  // Read and written.
  device.Copy(*lane, slab->data(), slab->data() + 4096, KiB(1),
              CopyKind::kWithinDevice);
  device.Zero(*lane, slab->data(), KiB(4));
  device.Convert(*lane, slab->data(), DType::kF32, slab->data() + 4096,
                 DType::kBF16, Elements(100));
  EXPECT_EQ(device.link_use(CopyKind::kToDevice), LinkUse());
  executor_.RunAll();
  EXPECT_EQ(device.link_use(CopyKind::kToDevice).bytes, KiB(8));
  EXPECT_EQ(device.link_use(CopyKind::kFromDevice).transfers, 2);
  EXPECT_EQ(device.link_use(CopyKind::kFromDevice).bytes, KiB(3));
  EXPECT_EQ(device.link_use(CopyKind::kWithinDevice).bytes,
            KiB(6) + Bytes(600));
}

TEST_F(SimulatedDeviceTest, AnOperationOnNothingIsNoTransfer) {
  SimulatedDevice device(Options());
  const auto lane = device.MakeLane("lane");
  device.Copy(*lane, nullptr, nullptr, Bytes(0), CopyKind::kToDevice);
  device.Zero(*lane, nullptr, Bytes(0));
  device.AddSquares(*lane, nullptr, DType::kF32, Elements(0), nullptr);
  executor_.RunAll();
  EXPECT_EQ(device.link_use(CopyKind::kToDevice), LinkUse());
  EXPECT_EQ(device.link_use(CopyKind::kWithinDevice), LinkUse());
}

TEST_F(SimulatedDeviceTest, BreaksAfterAsManyOperationsAsItWasTold) {
  SimulatedDevice device(Options());
  const Result<Slab> slab = device.MakeSlab(KiB(4));
  const auto lane = device.MakeLane("lane");
  device.InjectFailure(IoError("fell off the bus"), 2);
  // Nothing of it shows before.
  EXPECT_THAT(device.status(), IsOk());
  EXPECT_THAT(device.MakeSlab(KiB(4)), IsOk());
  std::vector<Event> events;
  for (int i = 0; i < 4; ++i) {
    device.Zero(*lane, slab->data(), KiB(4));
    events.push_back(lane->Record());
  }
  executor_.RunAll();
  EXPECT_THAT(events[1].status(), IsOk());
  EXPECT_THAT(events[2].status(),
              StatusIs(ErrorCode::kIoError, "fell off the bus"));
  EXPECT_THAT(device.status(),
              StatusIs(ErrorCode::kIoError, "fell off the bus"));
  // The first failure stays.
  device.InjectFailure(DataLoss("later"));
  const auto other = device.MakeLane("other");
  device.Zero(*other, slab->data(), KiB(4));
  executor_.RunAll();
  EXPECT_THAT(other->status(), StatusIs(ErrorCode::kIoError));
}

// The break comes between the queueing of an operation and its turn, and while
// another lane waits for it.
TEST_F(SimulatedDeviceTest, ABreakMeetsWhatIsQueuedAndWhoWaits) {
  SimulatedDevice device(Options());
  const Result<Slab> slab = device.MakeSlab(KiB(4));
  const auto a = device.MakeLane("a");
  const auto b = device.MakeLane("b");
  device.Zero(*a, slab->data(), KiB(4));
  const Event zeroed = a->Record();
  b->Wait(zeroed);
  bool ran = false;
  b->Run([&] {
    ran = true;
    return OkStatus();
  });
  executor_.RunOne(1);  // b's turn: it waits
  device.InjectFailure(IoError("fell off the bus"));
  executor_.RunAll();
  EXPECT_THAT(zeroed.status(), StatusIs(ErrorCode::kIoError));
  EXPECT_THAT(b->status(), StatusIs(ErrorCode::kIoError, "fell off the bus"));
  EXPECT_FALSE(ran);
}

using SimulatedDeviceDeathTest = SimulatedDeviceTest;

TEST_F(SimulatedDeviceDeathTest, AThrottledLinkNeedsATimer) {
  SimulatedDeviceOptions options = Options();
  options.links.to_device = LinkModel{1'000'000, 0};
  EXPECT_DEATH(SimulatedDevice{options}, "timer");
}

TEST_F(SimulatedDeviceDeathTest, ConvertsFromOrToFp32) {
  SimulatedDevice device(Options());
  const auto lane = device.MakeLane("lane");
  EXPECT_DEATH(device.Convert(*lane, nullptr, DType::kBF16, nullptr,
                              DType::kBF16, Elements(1)),
               "kF32");
}

}  // namespace
}  // namespace castor
