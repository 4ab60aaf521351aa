// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Other budgets between steps: the same bits, wherever states were and come to
// be, and nothing changed where the budgets do not do.

#include <malloc.h>
#include <sys/mman.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/lanes/executor.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_device.h"
#include "placement/trace.h"
#include "placement/trace/step_trace.h"
#include "placement/trace/trace_file.h"
#include "tests/support/private_mount.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;
using testing::Not;

class ZeroEngineResealTest : public ZeroEngineTest {};

// From tight to roomy, tighter than before, and back.
TEST_F(ZeroEngineResealTest, AnyBudgetsAfterAnyStepEqualPlainArrays) {
  for (const int world : {1, 2, 3}) {
    for (const int stage : {0, 2, 3}) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(testing::Message() << "world " << world << " stage "
                                        << stage << " " << DTypeName(dtype));
        const ToyModel model = MakeToyModel(7, 10, 2500, dtype);
        ToyRun run;
        run.steps = 8;
        run.micro_batches = 2;
        run.between_steps = [](ZeroEngine& engine, int step) -> Status {
          ResealOptions options;
          options.declared.micro_batches = 2;
          if (step == 1) options.device_budget = MiB(4);
          if (step == 3) options.device_budget = KiB(300);
          if (step == 4) options.host_budget = MiB(4);
          if (step == 6) options.device_budget = MiB(2);
          if (step % 2 == 0 && step != 4 && step != 6) return OkStatus();
          return engine.Reseal(options);
        };
        std::vector<Bytes> on_device;
        run.after_step = [&](ZeroEngine& engine, int) {
          if (engine.rank() != 0) return;
          const EngineStats stats = engine.stats();
          on_device.push_back(stats.home_bytes[TierIndex(Tier::kDevice)]);
          for (const Tier tier : kAllTiers) {
            const TierUse& use = stats.tiers[TierIndex(tier)];
            EXPECT_LE(use.peak, use.budget) << TierName(tier);
          }
        };
        ZeroOptions options = Tight(stage, KiB(300), KiB(400));
        options.clip_norm = 0.5;
        options.min_chunk = options.max_chunk = Bytes(0);
        options.chunk_size = KiB(12);
        const ToyResult got = TrainToy(model, run, world, options);
        ExpectEqual(got, TrainToyReference(model, run, world, options));
        if (HasFatalFailure()) return;
        ASSERT_EQ(on_device.size(), 8u);
        // Shards of several ranks are small enough from the start.
        EXPECT_LE(on_device[0], on_device[2]);
        EXPECT_LE(on_device[4], on_device[2]);
        if (world > 1) continue;
        EXPECT_LT(on_device[0], on_device[2]) << "more room";
        EXPECT_LT(on_device[4], on_device[2]) << "less again";
      }
    }
  }
}

// What is planned stays planned, and is fetched ahead in the next step, too.
TEST_F(ZeroEngineResealTest, TheNextStepFollowsThePlanOfTheLast) {
  for (const int world : {1, 2}) {
    for (const bool own_ends : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " own ends " << own_ends);
      const ToyModel model = MakeToyModel(7, 10, 2500, DType::kBF16);
      ToyRun run;
      run.steps = 6;
      std::vector<int64_t> prefetched;
      std::vector<int64_t> divergences;
      std::vector<StepTrace> recorded;
      const auto note = [&](const ZeroEngine& engine) {
        if (engine.rank() != 0) return;
        prefetched.push_back(engine.stats().prefetched_gathers);
        divergences.push_back(engine.stats().divergences);
        recorded.push_back(engine.RecordedTrace().step);
      };
      run.between_steps = [&](ZeroEngine& engine, int step) -> Status {
        if (step == 3) {
          CASTOR_RETURN_IF_ERROR(engine.Reseal({.device_budget = KiB(280)}));
          note(engine);
        }
        return OkStatus();
      };
      run.after_step = [&](ZeroEngine& engine, int) { note(engine); };
      ZeroOptions options = Tight(3, KiB(300), MiB(4));
      options.chunk_size = KiB(12);
      options.own_lease_ends = own_ends;
      options.home_limits = {{{"all", Tier::kDevice, Bytes(0)}}};
      const ToyResult got = TrainToy(model, run, world, options);
      ExpectEqual(got, TrainToyReference(model, run, world, options));
      ASSERT_EQ(prefetched.size(), 7u);
      // Four steps, the reseal, which counts anew, and two more.
      EXPECT_EQ(recorded[4], recorded[3]);
      EXPECT_EQ(divergences.back(), 0);
      const int64_t usual = prefetched[6] - prefetched[5];
      EXPECT_GT(usual, 0);
      EXPECT_EQ(prefetched[5] - prefetched[4], usual);
    }
  }
}

TEST_F(ZeroEngineResealTest, AStepDeclaredAtSealIsFollowedFromTheFirst) {
  const ToyModel model = MakeToyModel(7, 30, 2500, DType::kBF16);
  int chunks = 0;
  for (const GradMode mode : {GradMode::kSeparate, GradMode::kReuse}) {
    SCOPED_TRACE(GradModeName(mode));
    ToyRun run;
    ZeroOptions options = Tight(3, KiB(300), MiB(4));
    options.chunk_size = KiB(12);
    options.grad_mode = mode;
    options.home_limits = {{{"all", Tier::kDevice, Bytes(0)}}};
    StepTrace recorded;
    std::vector<int64_t> prefetched;
    run.after_step = [&](ZeroEngine& engine, int) {
      recorded = engine.RecordedTrace().step;
      prefetched.push_back(engine.stats().prefetched_gathers);
    };
    const ToyResult once = TrainToy(model, run, 2, options);
    ASSERT_THAT(once.status, IsOk());
    chunks = static_cast<int>(once.layout.chunks().size());
    const std::vector<int64_t> on_demand = std::exchange(prefetched, {});
    run.step = recorded;
    const ToyResult planned = TrainToy(model, run, 2, options);
    ExpectEqual(planned, once);
    EXPECT_EQ(planned.stats.divergences, 0);
    EXPECT_EQ(recorded, *run.step);
    // What is fetched after a step is of the next one.
    const int64_t usual = on_demand[2] - on_demand[1];
    EXPECT_LT(on_demand[0], usual);
    EXPECT_GT(prefetched[0], usual);
    EXPECT_EQ(prefetched[2] - prefetched[1], usual);

    // Of another model, of another mode.
    run.step->accesses.push_back({AccessKind::kUse, ChunkId(1000)});
    EXPECT_THAT(TrainToy(model, run, 2, options).status,
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("the step that is declared at Seal()")));
    if (mode == GradMode::kReuse) continue;
    run.step = recorded;
    run.step->accesses.clear();
    for (const AccessKind kind :
         {AccessKind::kGradOpen, AccessKind::kUse, AccessKind::kUseEnd,
          AccessKind::kGradClose}) {
      run.step->accesses.push_back({kind, ChunkId(0)});
    }
    options.grad_mode = GradMode::kReuse;
    EXPECT_THAT(TrainToy(model, run, 2, options).status,
                StatusIs(ErrorCode::kInvalidArgument,
                         HasSubstr("of another gradient mode than reuse")));
  }
  StepTrace wide;
  for (const AccessKind kind : {AccessKind::kUse, AccessKind::kUseEnd}) {
    for (int c = 0; c < chunks; ++c) {
      wide.accesses.push_back({kind, ChunkId(c)});
    }
  }
  ToyRun run;
  run.step = wide;
  ZeroOptions options = Tight(3, KiB(60), MiB(4));
  options.chunk_size = KiB(12);
  EXPECT_THAT(TrainToy(model, run, 1, options).status,
              StatusIs(ErrorCode::kInfeasible));
  // Nor does a reseal take such a step, and nothing has changed then.
  run.step.reset();
  run.between_steps = [&](ZeroEngine& engine, int) {
    ResealOptions reseal;
    reseal.declared.step = wide;
    EXPECT_THAT(engine.Reseal(reseal), StatusIs(ErrorCode::kInfeasible));
    return OkStatus();
  };
  ExpectEqual(TrainToy(model, run, 1, options),
              TrainToyReference(model, run, 1, options));
}

TEST_F(ZeroEngineResealTest, WhatDoesNotFitChangesNothing) {
  const ToyModel model = MakeToyModel(7, 10, 2500, DType::kF32);
  ToyRun run;
  run.steps = 3;
  run.between_steps = [](ZeroEngine& engine, int) -> Status {
    ResealOptions options;
    // One rank alone lacks it.
    options.device_budget = engine.rank() == 1 ? KiB(8) : MiB(8);
    const Status refused = engine.Reseal(options);
    EXPECT_THAT(refused, StatusIs(ErrorCode::kInfeasible,
                                  HasSubstr("raise the device budget by")));
    options.device_budget.reset();
    options.declared.micro_batches = 0;
    EXPECT_THAT(engine.Reseal(options), StatusIs(ErrorCode::kInvalidArgument,
                                                 HasSubstr("micro-batches")));
    // Ranks that declare other things.
    options.declared.micro_batches = 1 + engine.rank();
    EXPECT_THAT(engine.Reseal(options),
                StatusIs(ErrorCode::kInvalidArgument, HasSubstr("declared")));
    EXPECT_EQ(engine.stats().tiers[TierIndex(Tier::kDevice)].budget, KiB(200));
    return OkStatus();
  };
  const ZeroOptions options = Tight(3, KiB(200), KiB(400));
  ExpectEqual(TrainToy(model, run, 2, options),
              TrainToyReference(model, run, 2, options));
}

TEST_F(OneRankEngineTest, ResealsBetweenStepsAndWithNothingHeld) {
  Open(Roomy(3), 4);
  const auto not_now = [](const std::string& why) {
    return StatusIs(ErrorCode::kFailedPrecondition, HasSubstr(why));
  };
  EXPECT_THAT(engine_->Reseal({}), not_now("not sealed"));
  SealOptions declared;
  declared.largest_lease = KiB(4);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  {
    const Result<MemoryLease> lease = engine_->Borrow(KiB(1), lane_);
    ASSERT_THAT(lease, IsOk());
    EXPECT_THAT(engine_->Reseal({}), not_now("release every lease"));
  }
  ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
  EXPECT_THAT(engine_->Reseal({}), not_now("half done"));
  Backward({3, 2, 1, 0});
  ASSERT_THAT(engine_->Step(0.1), IsOk());
  ASSERT_THAT(engine_->Park(Tier::kHost), IsOk());
  EXPECT_THAT(engine_->Reseal({}), not_now("parked"));
  ASSERT_THAT(engine_->Resume(), IsOk());

  // A save that is under way ends first, and what it wrote is whole.
  TempDir folder;
  ASSERT_THAT(
      engine_->Save({.directory = folder.path().string(), .wait = false}),
      IsOk());
  const Result<uint64_t> digest = engine_->WeightDigest();
  ASSERT_THAT(engine_->Reseal({.device_budget = MiB(2)}), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), *digest);
  EXPECT_THAT(engine_->FinishSave(), IsOk());
  ASSERT_THAT(engine_->Load({.directory = folder.path().string()}), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), *digest);
  // Its working set is now what Reseal was told: no lease.
  EXPECT_THAT(engine_->Borrow(KiB(1), lane_).status(),
              StatusIs(ErrorCode::kTierFull));
  ASSERT_THAT(engine_->Park(Tier::kHost), IsOk());
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), *digest);
  EXPECT_THAT(engine_->Close(), IsOk());
}

// Anonymous memory of this process.
Bytes Resident() {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("RssAnon:", 0) == 0) {
      return KiB(std::stoll(line.substr(line.find(':') + 1)));
    }
  }
  return Bytes(-1);
}

// The most that `work` made of it, looked at all the time.
template <typename Work>
Bytes PeakOf(const Work& work) {
  std::atomic<bool> over = false;
  Bytes peak = Resident();
  std::thread watch([&] {
    while (!over) peak = std::max(peak, Resident());
  });
  work();
  over = true;
  watch.join();
  return peak;
}

// An engine of 96 MiB of states on `rank`, sealed. What tests before it freed
// goes back to the system: malloc would do so at a moment that a peak is
// measured over.
std::unique_ptr<ZeroEngine> LargeEngine(ZeroOptions options,
                                        Communicator* rank) {
  malloc_trim(0);
  options.chunk_size = MiB(2);
  auto engine = ZeroEngine::Create(options, rank).value();
  for (int p = 0; p < 12; ++p) {
    EXPECT_THAT(engine->Register(
                    {"p" + std::to_string(p), {512, 1024}, DType::kF32, true},
                    [p](int64_t begin, int64_t end, float* out) {
                      for (int64_t i = begin; i < end; ++i) {
                        *out++ = static_cast<float>(p * 7919 + i % 1021);
                      }
                    }),
                IsOk());
  }
  EXPECT_THAT(engine->Seal({}), IsOk());
  return engine;
}

// From the drive to memory and back.
TEST_F(ZeroEngineResealTest, MemoryNeverHoldsTheOldAndTheNew) {
  InProcessOptions in_process;
  in_process.executor = &pool_;
  const auto world = MakeInProcessWorld(in_process);
  const auto engine = LargeEngine(Tight(3, MiB(20), MiB(50)), world[0].get());
  const uint64_t digest = *engine->WeightDigest();
  const std::pair<Bytes, Bytes> budgets[] = {{MiB(60), MiB(90)},
                                             {MiB(90), MiB(60)},
                                             {MiB(20), MiB(50)},
                                             {MiB(60), MiB(12)}};
  // What the rest of the process holds at some moment is not the engine's: of
  // three rounds, that with the least counts.
  std::vector<Bytes> above(std::size(budgets), MiB(1024));
  for (size_t i = 0; i < 3 * std::size(budgets); ++i) {
    const auto [device, host] = budgets[i % std::size(budgets)];
    SCOPED_TRACE(testing::Message() << device << " and " << host);
    const Bytes before = Resident();
    Status resealed;
    const Bytes peak = PeakOf([&, device = device, host = host] {
      resealed = engine->Reseal({.device_budget = device, .host_budget = host});
    });
    ASSERT_THAT(resealed, IsOk());
    const Bytes after = Resident();
    Bytes& least = above[i % std::size(budgets)];
    least = std::min(least, peak - std::max(before, after));
    EXPECT_EQ(*engine->WeightDigest(), digest);
    // Nothing is left to come in the next step.
    Bytes held;
    for (const Tier tier : {Tier::kDevice, Tier::kHost}) {
      held += engine->stats().tiers[TierIndex(tier)].in_use;
    }
    EXPECT_GE(after, held);
  }
  EXPECT_THAT(engine->Close(), IsOk());
  if (TestStride() != 1) return;  // sanitizers take memory of their own
  for (const Bytes least : above) EXPECT_LE(least, MiB(2) + MiB(2));
}

// What is written in the file system that `directory` is the root of.
Bytes UsedOf(const std::string& directory) {
  struct statvfs now;
  EXPECT_EQ(::statvfs(directory.c_str(), &now), 0);
  return Bytes(static_cast<int64_t>(now.f_blocks - now.f_bfree)) *
         static_cast<int64_t>(now.f_frsize);
}

// Of 96 MiB of states, 60 are on a drive of 76, or 50 within a limit of 52.
TEST_F(ZeroEngineResealTest, DrivesNeverHoldTheOldAndTheNew) {
  if (TestStride() > 1) {
    GTEST_SKIP() << "ThreadSanitizer bears no threads after a fork";
  }
  for (const bool limited : {false, true}) {
    SCOPED_TRACE(testing::Message() << "limited " << limited);
    const PrivateMount mount = {.type = "tmpfs",
                                .options = limited ? "size=200m" : "size=76m"};
    RunWithPrivateMount(mount, nvme_.path(), [&] {
      ThreadPool pool(2);  // this process has no thread of its parent
      InProcessOptions in_process;
      in_process.executor = &pool;
      const auto world = MakeInProcessWorld(in_process);
      ZeroOptions options = Tight(3, MiB(20), MiB(50));
      options.executor = &pool;
      if (limited) options.nvme[0].size = MiB(52);
      const auto engine = LargeEngine(options, world[0].get());
      const uint64_t digest = *engine->WeightDigest();
      const auto on_drive = [&] {
        return engine->stats().home_bytes[TierIndex(Tier::kNvme)];
      };
      const std::pair<Bytes, Bytes> budgets[] = {
          {MiB(24), MiB(52)}, {MiB(18), MiB(48)}, {MiB(22), MiB(50)}};
      for (const auto& [device, host] : budgets) {
        SCOPED_TRACE(testing::Message() << device << " and " << host);
        EXPECT_GT(on_drive() * 2, limited ? MiB(52) : MiB(76));
        std::atomic<bool> over = false;
        Bytes peak;
        std::thread watch([&] {
          while (!over) peak = std::max(peak, UsedOf(nvme_.path()));
        });
        const Status resealed =
            engine->Reseal({.device_budget = device, .host_budget = host});
        over = true;
        watch.join();
        ASSERT_THAT(resealed, IsOk());
        EXPECT_LE(peak, (limited ? MiB(52) : MiB(76)) + KiB(64));
        // All of the space is there for the steps that come.
        EXPECT_GE(UsedOf(nvme_.path()), on_drive());
        EXPECT_EQ(*engine->WeightDigest(), digest);
      }
      // More than there is.
      EXPECT_THAT(
          engine->Reseal({.device_budget = MiB(10), .host_budget = MiB(20)}),
          Not(IsOk()));
      EXPECT_EQ(*engine->WeightDigest(), digest);
      EXPECT_THAT(engine->Close(), IsOk());
    });
  }
}

// A device's memory that is not this process's own: pages that are shared do
// not count as anonymous.
Result<Slab> SharedSlab(Bytes size) {
  const auto length = static_cast<size_t>(size.count());
  void* const data = mmap(nullptr, length, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return Unavailable("no shared memory");
  return Slab(Tier::kDevice, static_cast<std::byte*>(data), size,
              [length](std::byte* start, Bytes) { munmap(start, length); });
}

// Of the rank of this thread: its next slab of the device is refused.
thread_local bool t_refuses_slab = false;

// One rank alone cannot have the new memory, after it has begun to build: in
// the steps that follow, all ranks reduce in the turns of before.
TEST_F(ZeroEngineResealTest, WhatOneRankCannotHaveChangesNothing) {
  const ToyModel model = MakeToyModel(8, 10, 2500, DType::kF32);
  ToyRun run;
  run.steps = 8;
  // Some gradients are missing, so the order of turns differs from the declared
  // order.
  run.tied = {8, 9};
  run.skipped = 0.5;
  run.seed = 3;
  run.between_steps = [&model](ZeroEngine& engine, int) -> Status {
    ResealOptions options;
    options.device_budget = MiB(16);
    HeldTogether& all = options.declared.held.emplace_back();
    for (size_t p = 0; p < model.params.size(); ++p) {
      all.params.emplace_back(static_cast<int32_t>(p));
      all.grads.emplace_back(static_cast<int32_t>(p));
    }
    t_refuses_slab = engine.rank() == 1;
    EXPECT_THAT(engine.Reseal(options), StatusIs(ErrorCode::kUnavailable));
    EXPECT_FALSE(t_refuses_slab) << "nobody asked for a slab";
    return OkStatus();
  };
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE(stage);
    ZeroOptions options = Roomy(stage);
    options.make_device_slab = [](Bytes size) -> Result<Slab> {
      if (std::exchange(t_refuses_slab, false)) {
        return Unavailable("the device has no room");
      }
      return SharedSlab(size);
    };
    ExpectEqual(TrainToy(model, run, 2, options),
                TrainToyReference(model, run, 2, options));
  }
}

// What leaves a given device meanwhile goes behind its shards too.
TEST_F(ZeroEngineResealTest, HostMemoryHoldsItsBudgetThoughADeviceIsLeft) {
  InProcessOptions in_process;
  in_process.executor = &pool_;
  const auto world = MakeInProcessWorld(in_process);
  const Bytes before = Resident();
  ZeroOptions options = Roomy(3);
  options.device_budget = MiB(90);
  options.host_budget = MiB(110);
  options.make_device_slab = SharedSlab;
  const auto engine = LargeEngine(options, world[0].get());
  const uint64_t digest = *engine->WeightDigest();
  for (const Bytes device : {MiB(20), MiB(90)}) {
    Status resealed;
    const Bytes peak =
        PeakOf([&] { resealed = engine->Reseal({.device_budget = device}); });
    ASSERT_THAT(resealed, IsOk());
    if (TestStride() == 1) {  // sanitizers take memory of their own
      EXPECT_LE(peak, before + options.host_budget + MiB(4));
    }
    EXPECT_EQ(*engine->WeightDigest(), digest);
  }
  EXPECT_THAT(engine->Close(), IsOk());
}

// Device memory that somebody makes, as torch's allocator, and its most bytes.
struct MadeSlabs {
  Bytes held;
  Bytes peak;
  Bytes most = MiB(64);  // none is made beyond

  std::function<Result<Slab>(Bytes)> Maker() {
    return [this](Bytes size) -> Result<Slab> {
      if (held + size > most) return Unavailable("the GPU is full");
      CASTOR_ASSIGN_OR_RETURN(Slab memory, MakeSimulatedDeviceSlab(size));
      held += size;
      peak = std::max(peak, held);
      auto kept = std::make_shared<Slab>(std::move(memory));
      std::byte* const data = kept->data();
      return Slab(Tier::kDevice, data, size,
                  [this, kept](std::byte*, Bytes gone) mutable {
                    kept = nullptr;
                    held -= gone;
                  });
    };
  }
};

class GivenDeviceResealTest : public OneRankEngineTest {
 protected:
  GivenDeviceResealTest() {
    SimulatedDeviceOptions simulated;
    simulated.capacity = MiB(64);
    simulated.executor = &pool_;
    device_ = std::make_unique<SimulatedDevice>(std::move(simulated));
  }
  ~GivenDeviceResealTest() override { engine_.reset(); }

  void Begin(Bytes device_budget, Bytes host_budget) {
    ZeroOptions options = Roomy(3);
    options.device = device_.get();
    options.make_device_slab = slabs_.Maker();
    options.device_budget = device_budget;
    options.host_budget = host_budget;
    Open(options, 40);
    ASSERT_THAT(engine_->Seal({}), IsOk());
    Train();
  }

  void Train() {
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    std::vector<int> all(40);
    std::iota(all.begin(), all.end(), 0);
    Backward(all);
    ASSERT_THAT(engine_->Step(0.1), IsOk());
  }

  MadeSlabs slabs_;
  std::unique_ptr<SimulatedDevice> device_;
};

TEST_F(GivenDeviceResealTest, TheDeviceNeverHoldsTheOldAndTheNew) {
  Begin(KiB(400), MiB(4));
  const uint64_t digest = *engine_->WeightDigest();
  for (const Bytes budget : {KiB(700), KiB(300), KiB(900)}) {
    const Bytes before = slabs_.held;
    slabs_.peak = Bytes(0);
    ASSERT_THAT(engine_->Reseal({.device_budget = budget}), IsOk());
    EXPECT_LE(slabs_.peak, std::max(before, slabs_.held));
    EXPECT_LE(slabs_.peak, budget);
    EXPECT_EQ(*engine_->WeightDigest(), digest);
  }
  Train();
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(GivenDeviceResealTest, WhereTheNewMemoryIsNotThereTheOldIsTakenAgain) {
  Begin(KiB(400), MiB(4));
  const uint64_t digest = *engine_->WeightDigest();
  slabs_.most = slabs_.held;
  const Bytes before = slabs_.held;
  EXPECT_THAT(engine_->Reseal({.device_budget = KiB(900)}),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("the GPU is full")));
  EXPECT_EQ(slabs_.held, before);
  EXPECT_EQ(engine_->stats().tiers[TierIndex(Tier::kDevice)].budget, KiB(400));
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  Train();
  // Nor is the old one, since somebody else has taken it.
  slabs_.most = Bytes(0);
  const uint64_t trained = *engine_->WeightDigest();
  EXPECT_THAT(engine_->Reseal({.device_budget = KiB(900)}),
              StatusIs(ErrorCode::kUnavailable, HasSubstr("stays parked")));
  slabs_.most = MiB(64);
  ASSERT_THAT(engine_->Resume(), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), trained);
  Train();
  EXPECT_THAT(engine_->Close(), IsOk());
}

TEST_F(GivenDeviceResealTest,
       WithoutRoomElsewhereBothAreHeldOrTheErrorSaysBytes) {
  // No host memory to go to.
  Begin(MiB(4), KiB(4));
  const uint64_t digest = *engine_->WeightDigest();
  ASSERT_THAT(engine_->Reseal({.device_budget = MiB(5)}), IsOk());
  EXPECT_EQ(*engine_->WeightDigest(), digest);
  slabs_.most = slabs_.held;
  EXPECT_THAT(
      engine_->Reseal({.device_budget = MiB(6)}),
      StatusIs(ErrorCode::kUnavailable,
               testing::AllOf(HasSubstr("of states remain on the device"),
                              HasSubstr("raise the host budget by"))));
  Train();
  EXPECT_THAT(engine_->Close(), IsOk());
}

}  // namespace
}  // namespace castor
