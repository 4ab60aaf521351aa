// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Worlds of every size against plain data-parallel arrays, and proof that the
// comparison notices: what a wrong engine would do is done to a right one from
// outside, by communicators and devices that err.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/optimizer.h"
#include "offload/twin/simulated_device.h"
#include "placement/homes/static_policy.h"
#include "tests/support/fakes/altered_communicator.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_rounds.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

// A device on which optimizers do nothing.
class IdleOptimizerDevice final : public Device {
 public:
  explicit IdleOptimizerDevice(Device* device) : device_(device) {}

  DeviceFacts facts() const override { return device_->facts(); }
  Result<Slab> MakeSlab(Bytes size) override { return device_->MakeSlab(size); }
  Result<Slab> MakeHostSlab(Bytes size, const HostSlabOptions& options,
                            HostSlabFacts* facts) override {
    return device_->MakeHostSlab(size, options, facts);
  }
  std::unique_ptr<Lane> MakeLane(std::string name,
                                 Lane::OnFailure on_failure) override {
    return device_->MakeLane(std::move(name), std::move(on_failure));
  }
  Result<std::unique_ptr<Lane>> AdoptStream(
      void* stream, std::string name, Lane::OnFailure on_failure) override {
    return device_->AdoptStream(stream, std::move(name), std::move(on_failure));
  }
  void Copy(Lane& lane, std::byte* to, const std::byte* from, Bytes size,
            CopyKind kind) override {
    device_->Copy(lane, to, from, size, kind);
  }
  void CopyIf(Lane& lane, std::byte* to, const std::byte* from, Bytes size,
              CopyKind kind, Wanted wanted) override {
    device_->CopyIf(lane, to, from, size, kind, std::move(wanted));
  }
  void Fill(Lane& lane, std::byte* to, Bytes size, std::byte value) override {
    device_->Fill(lane, to, size, value);
  }
  void Convert(Lane& lane, const std::byte* from, DType from_dtype,
               std::byte* to, DType to_dtype, Elements count) override {
    device_->Convert(lane, from, from_dtype, to, to_dtype, count);
  }
  void AddInto(Lane& lane, std::byte* total, const std::byte* part, DType dtype,
               Elements count) override {
    device_->AddInto(lane, total, part, dtype, count);
  }
  void Scale(Lane& lane, std::byte* data, DType dtype, Elements count,
             float factor) override {
    device_->Scale(lane, data, dtype, count, factor);
  }
  void AddSquares(Lane& lane, const std::byte* grad, DType dtype,
                  Elements count, uint64_t* words) override {
    device_->AddSquares(lane, grad, dtype, count, words);
  }
  void Optimize(Lane&, const OptimizerBuffers&, Elements,
                const OptimizerScalars&, float) override {}
  Status status() const override { return device_->status(); }

 private:
  Device* const device_;
};

// The optimizer on the host, which the linker puts between it and who calls it
// (--wrap in the BUILD file), does nothing while this is set.
std::atomic<bool> host_optimizer_idle = false;
std::atomic<int64_t> idle_host_passes = 0;

class ZeroEngineWorldsTest : public ZeroEngineTest {
 protected:
  using Altered = AlteredCommunicator::Options;

  // As TrainToy, on communicators altered as `alter` says for each rank.
  ToyResult TrainAltered(const ToyModel& model, const ToyRun& run, int world,
                         const ZeroOptions& options,
                         const std::function<Altered(int rank)>& alter) {
    InProcessOptions in_process;
    in_process.world = world;
    in_process.executor = options.executor;
    const std::vector<std::unique_ptr<Communicator>> inner =
        MakeInProcessWorld(in_process);
    std::vector<std::unique_ptr<AlteredCommunicator>> ranks;
    for (int r = 0; r < world; ++r) {
      ranks.push_back(std::make_unique<AlteredCommunicator>(
          inner[static_cast<size_t>(r)].get(), alter(r)));
    }
    std::vector<ToyResult> results(ranks.size());
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks.size(); ++r) {
      threads.emplace_back([&, r] {
        results[r] = TrainToyRank(model, run, options, ranks[r].get());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return std::move(results[0]);
  }
};

// Sums go over ranks in rank order, rounded once, in a world of any size: the
// bits are those of plain arrays, and no bound is needed.
TEST_F(ZeroEngineWorldsTest, BuffersOfRanksThatLeaveNoRoomAreNamed) {
  const ToyModel model = MakeToyModel(3, 4, 500, DType::kF32);
  const ToyResult got =
      TrainAltered(model, ToyRun(), 2, Tight(3, KiB(64), KiB(64)),
                   [](int) { return Altered{.buffers = MiB(4)}; });
  EXPECT_THAT(got.status,
              StatusIs(ErrorCode::kInfeasible,
                       testing::AllOf(testing::HasSubstr("65536 bytes"),
                                      testing::HasSubstr("4 MiB"),
                                      testing::HasSubstr("raise the device"))));
}

TEST_F(ZeroEngineWorldsTest, WorldsOfOneToNineEqualPlainArraysBitByBit) {
  ToyRun run;
  run.steps = 2;
  run.micro_batches = 2;
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    const ToyModel model = MakeToyModel(71, 8, 2500, dtype);
    for (int world = 1; world <= 9; ++world) {
      const int stage = world % 4;
      // Each world once, where a sanitizer watches.
      if (TestStride() > 1 && (world % 2 == 0) != (dtype == DType::kF32)) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " world " << world
                                      << " stage " << stage);
      ZeroOptions options =
          world % 2 == 0 ? Roomy(stage) : Tight(stage, KiB(160), KiB(160));
      options.chunk_size = KiB(12);
      options.clip_norm = 0.05;
      const ToyResult got = TrainToy(model, run, world, options);
      ExpectEqual(got, TrainToyReference(model, run, world, options));
      ExpectWithinBudgets(got);
    }
  }
}

// Where a backend adds in another order. A sum of W gradients of at most 1 is
// off by at most 2 (W - 1) W 2^-24 in fp32. An average over ranks leaves
// 2 (W - 1) 2^-24 of it, and the rate its part of that. The update rounds the
// step and the weight, which is below 2: 2^-24 + 2^-23.
TEST_F(ZeroEngineWorldsTest, AnotherOrderOfSummingStaysWithinItsBound) {
  const ToyModel model = MakeToyModel(72, 6, 3000, DType::kF32);
  ToyRun run;
  run.steps = 1;
  run.lr = 0.5;
  for (int world : {3, 5, 9}) {
    SCOPED_TRACE(testing::Message() << "world " << world);
    ZeroOptions options = Roomy(3);
    options.chunk_size = KiB(16);
    options.optimizer = DefaultOptimizerOptions(OptimizerKind::kSgd);
    const ToyResult got =
        TrainAltered(model, run, world, options, [](int) -> Altered {
          return {.before = {}, .after = {}, .backwards = true};
        });
    ASSERT_THAT(got.status, IsOk());
    const ToyResult want = TrainToyReference(model, run, world, options);
    const double bound = run.lr * 2 * (world - 1) * std::exp2(-24) +
                         std::exp2(-24) + std::exp2(-23);
    int64_t differ = 0;
    for (size_t p = 0; p < want.weights.size(); ++p) {
      for (size_t i = 0; i < want.weights[p].size(); ++i) {
        const float a = got.weights[p][i];
        const float b = want.weights[p][i];
        differ += a != b;
        ASSERT_LE(std::abs(double{a} - double{b}), bound)
            << "parameter " << p << ", element " << i;
      }
    }
    EXPECT_GT(differ, 0) << "the order was the same";
  }
}

// What follows compares with these; expected failures see statics only.
ToyResult* got_result = nullptr;
ToyResult* want_result = nullptr;

void ExpectNoticed(ToyResult got, ToyResult want) {
  ASSERT_THAT(got.status, IsOk());
  got_result = &got;
  want_result = &want;
  EXPECT_FATAL_FAILURE(ExpectEqual(*got_result, *want_result), "parameter");
}

TEST_F(ZeroEngineWorldsTest, WhatIsNotAlteredIsEqual) {
  const ToyModel model = MakeToyModel(73, 8, 1500, DType::kF32);
  ToyRun run;
  ZeroOptions options = Roomy(3);
  ExpectEqual(
      TrainAltered(model, run, 2, options, [](int) { return Altered(); }),
      TrainToyReference(model, run, 2, options));
}

// A single gradient of a single rank, in a single step.
TEST_F(ZeroEngineWorldsTest, ADroppedGradientIsNoticed) {
  const ToyModel model = MakeToyModel(73, 8, 1500, DType::kF32);
  ToyRun run;
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Roomy(stage);
    int reductions = 0;
    ExpectNoticed(
        TrainAltered(
            model, run, 2, options,
            [&](int rank) {
              Altered altered;
              if (rank == 0) return altered;
              altered.before = [&](std::byte* data, DType dtype, int64_t count,
                                   const CollectiveTag& tag) {
                if (tag.chunk != ChunkId(1)) return;
                if (reductions++ != 1) return;
                std::memset(data, 0,
                            static_cast<size_t>(
                                BytesOf(Elements(count), dtype).count()));
              };
              return altered;
            }),
        TrainToyReference(model, run, 2, options));
    EXPECT_EQ(reductions, run.steps);
  }
}

// Adam forgets the size of a gradient, but for its bits.
TEST_F(ZeroEngineWorldsTest, AMissingDivisionByTheRanksIsNoticed) {
  const ToyModel model = MakeToyModel(74, 8, 1500, DType::kF32);
  const ToyRun run;
  for (OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
    for (int world : {2, 3}) {
      SCOPED_TRACE(testing::Message()
                   << OptimizerName(kind) << " world " << world);
      ZeroOptions options = Roomy(2);
      options.optimizer = DefaultOptimizerOptions(kind);
      options.clip_norm = 1e9;  // so that there is a norm, and no clip
      ToyResult got = TrainAltered(model, run, world, options, [world](int) {
        Altered altered;
        altered.after = [world](std::byte* data, DType dtype, int64_t count,
                                const CollectiveTag&) {
          std::vector<float> sum(static_cast<size_t>(count));
          ConvertToFloat(data, dtype, count, sum.data());
          for (float& each : sum) each *= static_cast<float>(world);
          ConvertFromFloat(sum.data(), count, dtype, data);
        };
        return altered;
      });
      ASSERT_THAT(got.status, IsOk());
      const ToyResult want = TrainToyReference(model, run, world, options);
      EXPECT_NE(got.norms, want.norms);
      ExpectNoticed(std::move(got), want);
    }
  }
}

TEST_F(ZeroEngineWorldsTest, AnOptimizerThatDoesNothingIsNoticed) {
  const ToyModel model = MakeToyModel(75, 8, 1500, DType::kF32);
  const ToyRun run;
  for (int stage : {0, 1, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    SimulatedDeviceOptions simulated;
    simulated.capacity = MiB(32);
    simulated.executor = &pool_;
    SimulatedDevice device(simulated);
    ZeroOptions options = Roomy(stage);
    options.device = &device;
    const ToyResult want = TrainToyReference(model, run, 2, options);
    ExpectEqual(TrainToy(model, run, 2, options), want);
    IdleOptimizerDevice idle(&device);
    options.device = &idle;
    ExpectNoticed(TrainToy(model, run, 2, options), want);
  }
}

TEST_F(ZeroEngineWorldsTest, AnOptimizerOnTheHostThatDoesNothingIsNoticed) {
  const ToyModel model = MakeToyModel(76, 8, 1500, DType::kF32);
  const ToyRun run;
  for (int stage : {0, 1, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << stage);
    ZeroOptions options = Roomy(stage);
    // Parameters and all else of them.
    options.home_limits = {{{"all", Tier::kDevice, Bytes(0)}}};
    const ToyResult want = TrainToyReference(model, run, 2, options);
    ExpectEqual(TrainToy(model, run, 2, options), want);
    idle_host_passes = 0;
    host_optimizer_idle = true;
    ToyResult got = TrainToy(model, run, 2, options);
    host_optimizer_idle = false;
    EXPECT_GT(idle_host_passes, 0);
    ExpectNoticed(std::move(got), want);
  }
}

}  // namespace

extern "C" {
// Their names are the linker's, for castor::OptimizerStep.
void __real__ZN6castor13OptimizerStepERKNS_16OptimizerBuffersElRKNS_16OptimizerScalarsEf(  // NOLINT
    const OptimizerBuffers& buffers, int64_t count,
    const OptimizerScalars& scalars, float grad_factor);
void __wrap__ZN6castor13OptimizerStepERKNS_16OptimizerBuffersElRKNS_16OptimizerScalarsEf(  // NOLINT
    const OptimizerBuffers& buffers, int64_t count,
    const OptimizerScalars& scalars, float grad_factor) {
  if (host_optimizer_idle) {
    ++idle_host_passes;
    return;
  }
  __real__ZN6castor13OptimizerStepERKNS_16OptimizerBuffersElRKNS_16OptimizerScalarsEf(
      buffers, count, scalars, grad_factor);
}
}  // extern "C"

}  // namespace castor
