// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Budgets, what is refused, what moves, and what is counted.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/zero_engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "offload/kernels/exact_sum.h"
#include "offload/memory/slab.h"
#include "offload/twin/simulated_device.h"
#include "placement/trace/trace_file.h"
#include "tests/support/test_rounds.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

using testing::HasSubstr;

// Nor page-locked, nor by the engine around collectives (defects B2 and B3).
TEST_F(ZeroEngineTest, NothingIsAllocatedOrCopiedInSteadyState) {
  const ToyModel model = MakeToyModel(6, 30, 2000, DType::kF32);
  ToyRun run;
  run.steps = 6;
  int64_t after_two = 0;
  run.after_step = [&](ZeroEngine& engine, int step) {
    const EngineStats stats = engine.stats();
    if (step == 1) {
      after_two = stats.tier_allocations;
    } else if (step > 1) {
      EXPECT_EQ(stats.tier_allocations, after_two);
    }
    EXPECT_EQ(stats.engine_copies, Bytes(0));
    EXPECT_EQ(stats.divergences, 0);
  };
  const ToyResult got = TrainToy(model, run, 2, Tight(3, KiB(64), KiB(200)));
  ASSERT_THAT(got.status, IsOk());
  EXPECT_GT(after_two, 0);
}

int64_t OpenDescriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Memory, descriptors and files go with the engine (defect B16).
TEST_F(OneRankEngineTest, EnginesThatComeAndGoLeaveNothingBehind) {
  SimulatedDeviceOptions simulated;
  simulated.capacity = MiB(4);
  simulated.executor = &pool_;
  SimulatedDevice device(simulated);
  int64_t descriptors = 0;
  for (int round = 0; round < 12; ++round) {
    if (round == 2) descriptors = OpenDescriptors();
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
    ids_.clear();
    ZeroOptions options = Tight(3, KiB(48), KiB(100));
    options.device = &device;
    Open(options, 12);
    if (round % 3 != 0) {
      ASSERT_THAT(engine_->Seal({}), IsOk());
      EXPECT_LT(device.facts().free, MiB(4));
      ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
      Backward({11, 3});
    }
    if (round % 3 == 2) {
      ASSERT_THAT(engine_->Step(0.1), IsOk());
      ASSERT_THAT(engine_->Close(), IsOk());
    }
    engine_.reset();
    EXPECT_EQ(device.facts().free, MiB(4)) << "round " << round;
    EXPECT_TRUE(std::filesystem::is_empty(nvme_.path())) << "round " << round;
    if (round >= 2) {
      EXPECT_EQ(OpenDescriptors(), descriptors) << "round " << round;
    }
  }
}

TEST_F(ZeroEngineTest, PrefetchTurnsGathersOnDemandIntoGathersAhead) {
  const ToyModel model = MakeToyModel(7, 40, 1500, DType::kF32);
  ToyRun run;
  run.steps = 5;
  ZeroOptions options = Tight(3, KiB(96), KiB(800));
  options.prefetch.depth = 0;
  const ToyResult without = TrainToy(model, run, 2, options);
  options.prefetch.depth = 3;
  const ToyResult with = TrainToy(model, run, 2, options);
  ASSERT_THAT(without.status, IsOk());
  ASSERT_THAT(with.status, IsOk());
  EXPECT_EQ(without.digest, with.digest);
  EXPECT_EQ(without.stats.prefetched_gathers, 0);
  // The first of five steps is recorded, all others run by plan.
  EXPECT_GT(with.stats.prefetched_gathers, with.stats.gathers / 3);
}

// Bytes that one rank of two sends in a whole training besides chunks, all of
// it in all-reduces of 64-bit words: on what is sealed and that all can, on
// every step, on what the toy trainer reads of the weights and on their digest.
Bytes AgreementBytes(const ToyModel& model, const ToyRun& run, bool clips) {
  int64_t words = WordsOfInputs() + 3 + 1;
  for (const ParamSpec& spec : model.params) {
    words += (toy::SizeOf(spec) + 1) / 2;
  }
  words += run.steps * (8 + (clips ? int64_t{ExactSum::kWords} : 0));
  return Bytes(8) * words;
}

TEST_F(ZeroEngineTest, WireBytesFollowTheStage) {
  // The model has M bytes. In a step one rank of two sends M / 2 to reduce
  // gradients, and M / 2 each time that parameters are gathered.
  const ToyModel model = MakeToyModel(8, 24, 2000, DType::kF32);
  for (int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ToyRun run;
    run.steps = 4;
    ZeroOptions options = Tight(stage, KiB(48), MiB(1));
    options.clip_norm = 1;
    options.prefetch.depth = 0;
    const ToyResult got = TrainToy(model, run, 2, options);
    ASSERT_THAT(got.status, IsOk());
    const int64_t chunks = got.stats.chunks;
    const Bytes half = got.layout.allocated_bytes() / 2;
    Bytes expected = half * 2 * run.steps;
    if (stage == 3) {
      // Forward and backward; only the few copies that have a slot are kept.
      EXPECT_LE(got.stats.gathers, run.steps * 2 * chunks);
      EXPECT_GE(got.stats.gathers,
                run.steps * (2 * chunks - got.stats.gathered_slots));
      expected =
          half * run.steps + got.stats.chunk_bytes / 2 * got.stats.gathers;
    }
    EXPECT_EQ(got.stats.wire_sent, expected + AgreementBytes(model, run, true));
    EXPECT_EQ(got.stats.reduce_scatters, run.steps * chunks);
  }
}

TEST_F(ZeroEngineTest, RefusesBudgetsThatCannotServeWhatIsDeclared) {
  const ToyModel model = MakeToyModel(9, 20, 2000, DType::kF32);
  ToyRun run;
  ZeroOptions options = Roomy(3);
  options.device_budget = KiB(15);
  EXPECT_THAT(TrainToy(model, run, 2, options).status,
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("raise the device budget by")));
  options = Roomy(3);
  options.device_budget = KiB(64);
  options.host_budget = KiB(64);
  EXPECT_THAT(TrainToy(model, run, 2, options).status,
              StatusIs(ErrorCode::kInfeasible,
                       HasSubstr("give an NVMe directory with")));
  options.nvme = {{nvme_.path(), KiB(32)}};
  EXPECT_THAT(
      TrainToy(model, run, 2, options).status,
      StatusIs(ErrorCode::kInfeasible, HasSubstr("raise the NVMe size by")));
  EXPECT_TRUE(std::filesystem::is_empty(nvme_.path()) ||
              std::distance(std::filesystem::directory_iterator(nvme_.path()),
                            std::filesystem::directory_iterator()) <= 1)
      << "a refused configuration leaves no run directory behind";
}

TEST_F(OneRankEngineTest, AnUndeclaredNeedFailsAtTheAcquireThatShowsIt) {
  ZeroOptions options = Roomy(3);
  options.device_budget = KiB(40);
  options.prefetch.depth = 0;
  Open(options, 16);
  SealOptions declared;
  declared.held = {{{ids_[0]}, {}}, {{ids_[0]}, {ids_[0], ids_[1]}}};
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  std::vector<ParamLease> leases;
  Status status;
  for (const ParamId& id : ids_) {
    Result<ParamLease> lease = engine_->Acquire(std::span(&id, 1), lane_);
    status = lease.status();
    if (!lease.ok()) break;
    leases.push_back(*std::move(lease));
  }
  EXPECT_THAT(status, StatusIs(ErrorCode::kInfeasible,
                               HasSubstr("held: chunk 1 (parameters of ")));
  // What is held stays good, and room made serves the next.
  EXPECT_EQ(leases[0].f32(0)[5], 5.0f);
  for (int of_last_chunk = 0; of_last_chunk < 2; ++of_last_chunk) {
    leases.pop_back();
  }
  EXPECT_THAT(engine_->Acquire(std::span(&ids_[15], 1), lane_), IsOk());
}

TEST_F(OneRankEngineTest, LeasesAreBorrowedWithinWhatWasDeclared) {
  Open(Roomy(3), 4);
  SealOptions declared;
  declared.largest_lease = KiB(8);
  ASSERT_THAT(engine_->Seal(declared), IsOk());
  Result<MemoryLease> a = engine_->Borrow(KiB(4), lane_);
  Result<MemoryLease> b = engine_->Borrow(KiB(4), lane_);
  ASSERT_THAT(a, IsOk());
  ASSERT_THAT(b, IsOk());
  EXPECT_GE(std::abs(a->data() - b->data()), 4096);
  EXPECT_THAT(engine_->Borrow(Bytes(1), lane_).status(),
              StatusIs(ErrorCode::kTierFull, HasSubstr("on lease")));
  EXPECT_THAT(engine_->Borrow(Bytes(-4096), lane_).status(),
              StatusIs(ErrorCode::kInvalidArgument));
  a->Release();
  EXPECT_THAT(engine_->Borrow(KiB(3), lane_), IsOk());
  EXPECT_THAT(engine_->Close(),
              StatusIs(ErrorCode::kFailedPrecondition, HasSubstr("held")));
  b->Release();
  EXPECT_THAT(engine_->Close(), IsOk());
}

// Keeps every event.
class EventList final : public RunRecorder {
 public:
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    std::lock_guard lock(mutex_);
    events_.push_back(event);
  }
  std::vector<RunEvent> OfRank(int rank) const {
    std::lock_guard lock(mutex_);
    std::vector<RunEvent> own;
    for (const RunEvent& event : events_) {
      if (event.rank == rank) own.push_back(event);
    }
    return own;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<RunEvent> events_;  // guarded by mutex_
};

TEST_F(ZeroEngineTest, RecordedEventsAddUpToTheCounters) {
  ToyModel model = MakeToyModel(15, 16, 2500, DType::kBF16);
  for (size_t p = 0; p < model.params.size(); ++p) {
    model.params[p].trainable = p % 5 != 4;
  }
  for (int world : {1, 2}) {
    for (int stage : {0, 1, 3}) {
      SCOPED_TRACE(testing::Message()
                   << "world " << world << " stage " << stage);
      EventList recorded;
      ToyRun run;
      run.micro_batches = 2;
      run.worker_lanes = 1;
      ZeroOptions options = Tight(stage, KiB(96), KiB(120));
      options.recorder = &recorded;
      const ToyResult got = TrainToy(model, run, world, options);
      ASSERT_THAT(got.status, IsOk());
      EngineStats sum;
      Bytes wire;
      for (const RunEvent& event : recorded.OfRank(0)) {
        ASSERT_LE(event.begin_ns, event.end_ns);
        switch (event.kind) {
          case RunEventKind::kTransfer:
            sum.moved[TierIndex(event.from)][TierIndex(event.to)] +=
                Bytes(event.bytes);
            break;
          case RunEventKind::kGather:
            wire += Bytes(event.bytes);
            break;
          case RunEventKind::kReduceScatter:
            wire += Bytes(event.bytes);
            ++sum.reduce_scatters;
            break;
          case RunEventKind::kRelease:
            ++sum.releases;
            break;
          case RunEventKind::kStall:
            ++sum.stalls;
            sum.stall_ns += event.end_ns - event.begin_ns;
            break;
          default:
            break;
        }
      }
      for (Tier from : kAllTiers) {
        for (Tier to : kAllTiers) {
          EXPECT_EQ(sum.moved[TierIndex(from)][TierIndex(to)],
                    got.stats.moved[TierIndex(from)][TierIndex(to)])
              << TierName(from) << " to " << TierName(to);
        }
      }
      EXPECT_EQ(sum.releases, got.stats.releases);
      EXPECT_EQ(sum.reduce_scatters, got.stats.reduce_scatters);
      EXPECT_EQ(sum.stalls, got.stats.stalls);
      EXPECT_EQ(sum.stall_ns, got.stats.stall_ns);
      if (world == 1) {
        EXPECT_EQ(wire, Bytes(0));
        EXPECT_EQ(got.stats.wire_sent, Bytes(0));
        continue;
      }
      EXPECT_EQ(wire + AgreementBytes(model, run, false), got.stats.wire_sent);
    }
  }
}

// Each event has the moment of the step to which the event belongs, fetches
// before the step and the step's end too.
TEST_F(ZeroEngineTest, EverythingOfAStepIsRecordedWithItsMoment) {
  const ToyModel model = MakeToyModel(16, 16, 2500, DType::kBF16);
  for (int stage : {1, 3}) {
    for (bool early : {false, true}) {
      SCOPED_TRACE(testing::Message()
                   << "stage " << stage << " early " << early);
      EventList recorded;
      ToyRun run;
      run.updates_early = early;
      ZeroOptions options = Tight(stage, KiB(96), KiB(120));
      options.recorder = &recorded;
      int64_t last = 0;
      run.after_step = [&](ZeroEngine& engine, int) {
        last = std::ssize(engine.RecordedTrace().step.accesses) - 1;
      };
      const ToyResult got = TrainToy(model, run, 2, options);
      ASSERT_THAT(got.status, IsOk());
      int64_t before_the_end = 0;
      int64_t at_the_end = 0;
      int64_t refreshed = 0;
      for (const RunEvent& event : recorded.OfRank(0)) {
        const bool of_step = event.kind == RunEventKind::kGather ||
                             event.kind == RunEventKind::kReduceScatter ||
                             event.kind == RunEventKind::kUpdate;
        if (!of_step || event.step > run.steps) continue;
        EXPECT_GE(event.moment, 0)
            << RunEventKindName(event.kind) << " of chunk " << event.chunk;
        EXPECT_LE(event.moment, last);
        refreshed += event.cause == RunCause::kRefresh;
        if (event.kind != RunEventKind::kUpdate) continue;
        ++(event.moment < last ? before_the_end : at_the_end);
      }
      EXPECT_EQ(before_the_end + at_the_end, run.steps * got.stats.chunks);
      EXPECT_EQ(before_the_end > 0, early) << "shown where it is made";
      EXPECT_EQ(refreshed, stage == 1 ? run.steps * got.stats.chunks : 0);
      EXPECT_EQ(got.stats.early_updates > 0, early);
    }
  }
}

TEST_F(ZeroEngineTest, PoisonChangesNoBitOfATrainerThatReleasesInTime) {
  int combination = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(5, 24, 2000, dtype);
    ToyRun run;
    run.micro_batches = 2;
    for (const int world : {1, 2}) {
      const ToyResult want =
          TrainToyReference(model, run, world, 0.02, OptimizerOptions());
      for (int stage = 0; stage <= 3; ++stage) {
        if (combination++ % TestStride() != 0) continue;
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " world "
                                        << world << " stage " << stage);
        ZeroOptions options = Tight(stage, KiB(48), KiB(200));
        options.clip_norm = 0.02;
        options.poison = true;
        ExpectEqual(TrainToy(model, run, world, options), want);
      }
    }
  }
}

TEST_F(OneRankEngineTest, WhoReadsWhatWasReleasedSeesNaNWherePoisonIsOn) {
  for (const bool poison : {false, true}) {
    // Memory that is there still when the engine has given it back.
    std::deque<std::vector<std::byte>> slabs;
    ZeroOptions options = Tight(3, KiB(72), KiB(200));
    options.poison = poison;
    options.make_device_slab = [&slabs](Bytes size) -> Result<Slab> {
      std::vector<std::byte>& memory = slabs.emplace_back();
      memory.resize(static_cast<size_t>(size.count()) + 512);
      void* data = memory.data();
      size_t room = memory.size();
      std::align(512, static_cast<size_t>(size.count()), data, room);
      return Slab(Tier::kDevice, static_cast<std::byte*>(data), size,
                  [](std::byte*, Bytes) {});
    };
    ids_.clear();
    Open(options, 16);
    SealOptions declared;
    declared.held = {{{ids_[0]}, {ids_[0]}}};
    declared.largest_lease = KiB(4);
    ASSERT_THAT(engine_->Seal(declared), IsOk());
    const float* lent = nullptr;
    {
      Result<MemoryLease> lease = engine_->Borrow(KiB(4), lane_);
      ASSERT_THAT(lease, IsOk());
      float* const values = reinterpret_cast<float*>(lease->data());
      std::fill(values, values + 1024, 1.5f);
      lent = values;
    }
    {
      // The same bytes again: the lane waits until they are free.
      Result<MemoryLease> lease = engine_->Borrow(KiB(4), lane_);
      ASSERT_THAT(lease, IsOk());
      ASSERT_EQ(reinterpret_cast<float*>(lease->data()), lent);
      EXPECT_EQ(std::isnan(lent[0]), poison);
      EXPECT_EQ(std::isnan(lent[1023]), poison);
    }
    ASSERT_THAT(engine_->BeginMicroBatch(true), IsOk());
    const float* param = nullptr;
    {
      Result<ParamLease> lease = Acquire(15);
      ASSERT_THAT(lease, IsOk());
      param = lease->f32(0);
      EXPECT_EQ(param[1], 15 * 1024 + 1);
    }
    Result<void*> grad = engine_->Grad(ids_[15], lane_);
    ASSERT_THAT(grad, IsOk());
    const auto* const gradient = static_cast<const float*>(*grad);
    EXPECT_EQ(gradient[3], 0);
    ASSERT_THAT(engine_->GradReady(ids_[15], lane_), IsOk());
    ASSERT_THAT(engine_->Step(0.1), IsOk());
    ASSERT_THAT(engine_->Close(), IsOk());
    EXPECT_EQ(std::isnan(param[1]), poison);
    EXPECT_EQ(std::isnan(gradient[3]), poison);
    engine_.reset();
    // A world has one engine of each rank.
    InProcessOptions in_process;
    in_process.executor = &pool_;
    world_ = MakeInProcessWorld(in_process);
  }
}

}  // namespace
}  // namespace castor
