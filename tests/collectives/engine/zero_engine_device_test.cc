// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Engines on a device that the trainer brings: one whose memory the host cannot
// touch, one that is slow, one that several ranks share, one that breaks.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_device.h"
#include "offload/device.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/lanes/timer.h"
#include "offload/lanes/virtual_executor.h"
#include "offload/nvme/queue/simulated_io_queue.h"
#include "offload/twin/simulated_device.h"
#include "offload/twin/simulated_link.h"
#include "placement/tier_model.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/fakes/guarded_device.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DeviceOfTheTrainer : public ZeroEngineTest {
 protected:
  SimulatedDeviceOptions TwinOptions() {
    return {.capacity = MiB(64), .executor = &pool_};
  }

  // The same training on a device made for it, and on `device`.
  void ExpectTheSameOn(Device* device, const ToyModel& model, const ToyRun& run,
                       int world, ZeroOptions options) {
    const ToyResult want = TrainToy(model, run, world, options);
    ASSERT_THAT(want.status, IsOk());
    options.device = device;
    const ToyResult got = TrainToy(model, run, world, options);
    ExpectEqual(got, want);
    EXPECT_EQ(got.digest, want.digest);
    ExpectWithinBudgets(got);
    for (Tier tier : kAllTiers) {
      const size_t t = TierIndex(tier);
      EXPECT_EQ(got.stats.home_bytes[t], want.stats.home_bytes[t]);
      EXPECT_EQ(got.stats.tiers[t].peak, want.stats.tiers[t].peak);
    }
    result_ = got;
  }

  ToyResult result_;
};

// No part of the engine may touch device memory but through the device.
class MemoryOutOfTheHostsReach : public DeviceOfTheTrainer {
 protected:
  SimulatedDevice twin_{TwinOptions()};
  GuardedDevice guarded_{&twin_};
};

TEST_F(MemoryOutOfTheHostsReach, TrainsOverThreeTiersToTheSameBits) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    // The one with masters, where a sanitizer watches.
    if (TestStride() > 1 && dtype == DType::kF32) continue;
    const ToyModel model = MakeToyModel(51, 40, 2000, dtype);
    ToyRun run;
    run.steps = 4;
    run.micro_batches = 2;
    run.skipped = 0.2;
    run.left_open = 0.1;
    run.tied = {3, 5};
    run.worker_lanes = 2;
    run.evaluates = [](const ToyMoment& at) {
      return at.step == 1 && at.point == ToyPoint::kForward && at.param == 4;
    };
    run.abandons = [](const ToyMoment& at) {
      return at.step == 2 && at.attempt == 0 && at.micro_batch == 1 &&
             at.point == ToyPoint::kBackward && at.param == 7;
    };
    ZeroOptions options = Tight(3, KiB(256), KiB(256));
    options.clip_norm = 0.05;
    ExpectTheSameOn(&guarded_, model, run, 1, options);
    for (Tier tier : kAllTiers) {
      EXPECT_GT(result_.stats.home_bytes[TierIndex(tier)], Bytes(0))
          << TierName(tier);
    }
  }
}

TEST_F(MemoryOutOfTheHostsReach, UpdatesOnTheDeviceToTheSameBits) {
  for (const auto& [dtype, moments] :
       {std::pair(DType::kF32, DType::kBF16),
        std::pair(DType::kBF16, DType::kBF16),
        std::pair(DType::kBF16, DType::kBlocks8)}) {
    if (TestStride() > 1 && dtype == DType::kF32) continue;
    const ToyModel model =
        MakeToyModel(52, 24, IsBlocks8(moments) ? 9000 : 2000, dtype);
    ToyRun run;
    run.steps = 4;
    run.unused = {2, 9};
    ZeroOptions options = Roomy(3);
    options.clip_norm = 0.05;
    options.optimizer.moment_dtype = moments;
    options.optimizer.stochastic_rounding = true;
    ExpectTheSameOn(&guarded_, model, run, 1, options);
    EXPECT_EQ(result_.stats.tiers[TierIndex(Tier::kHost)].peak, Bytes(0));
  }
}

TEST_F(MemoryOutOfTheHostsReach, IsGivenBackAndTakenAgain) {
  const ToyModel model = MakeToyModel(53, 24, 2000, DType::kBF16);
  ToyRun run;
  run.steps = 4;
  for (Tier to : {Tier::kHost, Tier::kNvme}) {
    run.between_steps = [&, to](ZeroEngine& engine, int) {
      CASTOR_ASSIGN_OR_RETURN(const ParkResult parked, engine.Park(to));
      EXPECT_EQ(parked.held, Bytes(0));
      return engine.Resume();
    };
    ZeroOptions options = Roomy(3);
    options.nvme = {{nvme_.path(), std::nullopt}};
    options.clip_norm = 0.05;
    ExpectTheSameOn(&guarded_, model, run, 1, options);
    EXPECT_EQ(twin_.facts().free, twin_.facts().total);
  }
}

TEST_F(MemoryOutOfTheHostsReach, IsRefusedWhereRanksExchangeThroughTheHost) {
  ZeroOptions options = Roomy(3);
  options.device = &guarded_;
  const ToyModel model = MakeToyModel(54, 6, 900, DType::kF32);
  const ToyResult got = TrainToy(model, ToyRun(), 2, options);
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kUnavailable,
                       AllOf(HasSubstr("the 2 ranks exchange chunks"),
                             HasSubstr("guarded simulated device"),
                             HasSubstr("train on one rank"))));
  EXPECT_EQ(twin_.facts().free, twin_.facts().total);
}

TEST_F(DeviceOfTheTrainer, MayBeSlowAndSharedByRanks) {
  SteadyTimer timer;
  SimulatedDeviceOptions slow = TwinOptions();
  slow.timer = &timer;
  slow.links.to_device = LinkModel{500'000'000, 2'000};
  slow.links.from_device = LinkModel{500'000'000, 2'000};
  SimulatedDevice twin(slow);
  const ToyModel model = MakeToyModel(55, 24, 1500, DType::kF32);
  ToyRun run;
  run.worker_lanes = 1;
  ZeroOptions options = Tight(3, KiB(64), KiB(200));
  options.clip_norm = 0.05;
  ExpectTheSameOn(&twin, model, run, 2, options);
  EXPECT_EQ(twin.facts().free, twin.facts().total);
  // What rank 0 moved, and as much or so of the other's.
  EXPECT_GE(
      twin.link_use(CopyKind::kToDevice).bytes,
      result_.stats.moved[TierIndex(Tier::kHost)][TierIndex(Tier::kDevice)]);
  EXPECT_GT(twin.link_use(CopyKind::kFromDevice).busy_ns, 0);
}

// On a clock that counts modelled time and nothing else.
// And links work at the same time: a step takes less than all of them one after
// the other (OSLO's overlap is none, defect B18).
TEST_F(DeviceOfTheTrainer, TakesTheTimeOfItsLinksTheSameEveryTime) {
  const ToyModel model = MakeToyModel(59, 24, 2000, DType::kF32);
  ToyRun run;
  run.steps = 4;
  constexpr int64_t kLatencyNs = 10'000;
  TierModel machine;
  machine.host_to_device = LinkModel{1'000'000'000, kLatencyNs};
  machine.device_to_host = LinkModel{500'000'000, kLatencyNs};
  machine.nvme_read = LinkModel{300'000'000, kLatencyNs};
  machine.nvme_write = LinkModel{200'000'000, kLatencyNs};
  std::vector<int64_t> times;
  for (int round = 0; round < 2; ++round) {
    VirtualExecutor world;
    VirtualParticipant participant(&world);
    SimulatedDeviceOptions counted = TwinOptions();
    counted.executor = &world;
    counted.timer = &world;
    counted.links = LinkModelsOf(machine, Duplex::kFull);
    SimulatedDevice twin(counted);
    SimulatedLinks drive(DriveModelOf(machine));
    const auto ranks = MakeInProcessWorld({.executor = &world});
    ZeroOptions options = Tight(3, KiB(96), KiB(200));
    options.clip_norm = 0.05;
    options.make_nvme_queue = [&](size_t) {
      return MakeSimulatedIoQueue(
          {.links = &drive, .executor = &world, .timer = &world});
    };
    options.nvme_checksums = &world;
    options.executor = &world;
    options.clock = &world;
    options.device = &twin;
    const ToyResult got = TrainToyRank(model, run, options, ranks[0].get());
    ASSERT_THAT(got.status, IsOk());
    times.push_back(world.NowNs());
    const LinkUse in = twin.link_use(CopyKind::kToDevice);
    const LinkUse out = twin.link_use(CopyKind::kFromDevice);
    const LinkUse read = drive.use(CopyKind::kToDevice);
    const LinkUse write = drive.use(CopyKind::kFromDevice);
    EXPECT_EQ(in.bytes, got.stats.moved[1][0]);
    // And the norm in every step.
    EXPECT_EQ(out.bytes, got.stats.moved[0][1] + Bytes(552) * run.steps);
    EXPECT_EQ(read.bytes, got.stats.moved[2][1]);
    EXPECT_EQ(write.bytes, got.stats.moved[1][2]);
    EXPECT_GT(write.bytes, Bytes(0));
    // Nothing else takes time.
    EXPECT_GE(world.NowNs(), std::max({in.busy_ns, out.busy_ns,
                                       read.busy_ns + write.busy_ns}));
    int64_t all_ns = 0;
    for (const LinkUse& use : {in, out, read, write}) {
      all_ns += use.busy_ns + kLatencyNs * use.transfers;
    }
    EXPECT_LT(world.NowNs(), all_ns);
  }
  EXPECT_EQ(times[0], times[1]);
}

// Without a GPU: the runtime is a fake, and so is what would be its memory.
TEST_F(DeviceOfTheTrainer, MayBeACudaDevice) {
  FakeCuda runtime;
  Result<std::unique_ptr<CudaDevice>> cuda =
      CudaDevice::Open(&runtime, {.executor = &pool_, .log = &log_});
  ASSERT_THAT(cuda, IsOk());
  for (const Bytes budget : {KiB(256), MiB(8)}) {
    // With copies, where a sanitizer watches.
    if (TestStride() > 1 && budget == MiB(8)) continue;
    const ToyModel model = MakeToyModel(58, 40, 2000, DType::kBF16);
    ToyRun run;
    run.micro_batches = 2;
    run.worker_lanes = 2;
    ZeroOptions options = Tight(3, budget, KiB(256));
    options.clip_norm = 0.05;
    ExpectTheSameOn(cuda->get(), model, run, 1, options);
  }
}

TEST_F(DeviceOfTheTrainer, WithTooLittleMemoryIsRefusedAtSeal) {
  SimulatedDeviceOptions small = TwinOptions();
  small.capacity = KiB(40);
  SimulatedDevice twin(small);
  ZeroOptions options = Roomy(3);
  options.device = &twin;
  EXPECT_THAT(
      TrainToy(MakeToyModel(56, 24, 2000, DType::kF32), ToyRun(), 1, options)
          .status,
      StatusIs(ErrorCode::kUnavailable, HasSubstr("lower the device budget")));
}

TEST_F(DeviceOfTheTrainer, EndsTheTrainingWhereverItBreaks) {
  const ToyModel model = MakeToyModel(57, 24, 2000, DType::kF32);
  ToyRun run;
  run.micro_batches = 2;
  run.worker_lanes = 1;
  for (const bool guarded : {false, true}) {
    if (TestStride() > 1 && !guarded) continue;  // a sanitizer is a guard too
    int64_t operations = 0;
    Status status;
    // In seal, in the first step, later, and never.
    do {
      SCOPED_TRACE(testing::Message() << "after " << operations);
      SimulatedDevice twin(TwinOptions());
      GuardedDevice out_of_reach(&twin);
      twin.InjectFailure(Unavailable("the device fell off the bus"),
                         operations);
      ZeroOptions options = Tight(3, KiB(128), KiB(200));
      options.clip_norm = 0.05;
      options.device = guarded ? static_cast<Device*>(&out_of_reach) : &twin;
      status = TrainToy(model, run, 1, options).status;
      if (!status.ok()) {
        EXPECT_THAT(status, StatusIs(ErrorCode::kUnavailable,
                                     HasSubstr("fell off the bus")));
      }
      EXPECT_EQ(twin.facts().free, twin.facts().total);
      operations = operations * 2 + 1;
    } while (!status.ok());
    EXPECT_GT(operations, 500);
  }
}

class BreakingDevice : public OneRankEngineTest {
 protected:
  SimulatedDevice twin_{{.capacity = MiB(16), .executor = &pool_}};
};

TEST_F(BreakingDevice, StepSaysSoAndSoDoesWhatComesAfter) {
  ZeroOptions options = Roomy(3);
  options.device = &twin_;
  options.clip_norm = 1;
  Open(options, 8);
  ASSERT_THAT(engine_->Seal({}), IsOk());
  for (int step = 0; step < 2; ++step) {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    Backward({0, 3, 5});
    if (step == 1) {
      twin_.InjectFailure(Unavailable("an uncorrectable error was found"));
    }
    const Result<StepResult> stepped = engine_->Step(0.1);
    if (step == 0) {
      ASSERT_THAT(stepped, IsOk());
      continue;
    }
    const auto broken = StatusIs(ErrorCode::kUnavailable,
                                 HasSubstr("an uncorrectable error was found"));
    EXPECT_THAT(stepped.status(), broken);
    EXPECT_THAT(Acquire(1).status(), broken);
    EXPECT_THAT(engine_->WeightDigest().status(), broken);
    EXPECT_THAT(engine_->Close(), broken);
  }
}

}  // namespace
}  // namespace castor
