// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What a training step asks of CUDA where the trainer brings its own stream.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "gtest/gtest.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_device.h"
#include "offload/lane.h"
#include "placement/run_event.h"
#include "tests/support/fakes/fake_cuda.h"
#include "tests/support/status_matchers.h"
#include "tests/support/toys/toy_gpu.h"
#include "tests/support/toys/toy_model.h"
#include "tests/support/toys/toy_trainer.h"
#include "tests/support/zero_engine_fixture.h"

namespace castor {
namespace {

constexpr int kParams = 64;
constexpr int64_t kElements = 2048;
// Of a step: forward, backward, gradients.
constexpr int kAccesses = 3 * kParams;

// Calls of the runtime in a steady step.
struct StepCalls {
  int64_t waits = 0;    // of streams, for events
  int64_t records = 0;  // of events
  int64_t queries = 0;  // of events, by any thread
  int64_t blocks = 0;   // of threads, until an event is done
};

StepCalls operator-(const StepCalls& a, const StepCalls& b) {
  return {a.waits - b.waits, a.records - b.records, a.queries - b.queries,
          a.blocks - b.blocks};
}

// Bytes of every transfer that was recorded.
struct TransferLog final : RunRecorder {
  void AddRank(const RunRankInfo&) override {}
  void Record(const RunEvent& event) override {
    if (event.kind != RunEventKind::kTransfer) return;
    EXPECT_LE(event.begin_ns, event.end_ns);
    moved[TierIndex(event.from)][TierIndex(event.to)] += event.bytes;
  }
  std::array<std::array<std::atomic<int64_t>, 3>, 3> moved = {};
};

class CudaStepTest : public ZeroEngineTest {
 protected:
  StepCalls Measure(ZeroOptions options, bool records = false) {
    FakeCuda runtime;
    auto device =
        CudaDevice::Open(&runtime, {.executor = &pool_, .log = &log_});
    CASTOR_CHECK(device.ok());
    CudaStream stream = nullptr;
    CASTOR_CHECK_EQ(runtime.StreamCreate(&stream), kCudaOk);
    const auto calls = [&runtime] {
      return StepCalls{
          runtime.calls("StreamWaitEvent"), runtime.calls("EventRecord"),
          runtime.calls("EventQuery"), runtime.calls("EventSynchronize")};
    };
    StepCalls made;
    EngineStats stats;
    TransferLog log;
    if (records) options.recorder = &log;
    {
      const auto lane = (*device)->AdoptStream(stream, "trainer").value();
      options.device = device->get();
      const auto world = MakeInProcessWorld({.executor = &pool_});
      auto engine = ZeroEngine::Create(options, world[0].get()).value();
      std::vector<ParamId> ids = Register(*engine);
      EXPECT_THAT(engine->Seal({}), IsOk());
      // The first ones record and plan.
      constexpr int kBefore = 3;
      constexpr int kSteps = 4;
      for (int step = 0; step < kBefore + kSteps; ++step) {
        if (step == kBefore) made = calls();
        Step(*engine, ids, *lane, [&] { runtime.Launch(stream, [] {}); });
      }
      made = calls() - made;
      made = {made.waits / kSteps, made.records / kSteps, made.queries / kSteps,
              made.blocks / kSteps};
      // With what is fetched ahead for the next step still on its way.
      EXPECT_THAT(engine->Close(), IsOk());
      stats = engine->stats();
      engine.reset();
      EXPECT_THAT(lane->Drain(), IsOk());
    }
    runtime.StreamDestroy(stream);
    for (const Tier from : kAllTiers) {
      for (const Tier to : kAllTiers) {
        const size_t f = TierIndex(from), t = TierIndex(to);
        if (!records) continue;
        EXPECT_EQ(log.moved[f][t], stats.moved[f][t].count());
      }
    }
    return made;
  }

 private:
  static std::vector<ParamId> Register(ZeroEngine& engine) {
    std::vector<ParamId> ids;
    for (int p = 0; p < kParams; ++p) {
      ids.push_back(
          engine
              .Register(
                  {"p" + std::to_string(p), {kElements}, DType::kF32, true},
                  [](int64_t begin, int64_t end, float* out) {
                    std::fill(out, out + (end - begin), 1.f);
                  })
              .value());
    }
    return ids;
  }

  static void Step(ZeroEngine& engine, const std::vector<ParamId>& ids,
                   Lane& lane, const std::function<void()>& kernel) {
    const auto use = [&](const ParamId& id) {
      auto lease = engine.Acquire(std::span(&id, 1), lane);
      EXPECT_THAT(lease, IsOk());
      kernel();
    };
    EXPECT_THAT(engine.BeginMicroBatch(true), IsOk());
    for (const ParamId& id : ids) use(id);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      use(*id);
      EXPECT_THAT(engine.Grad(*id, lane), IsOk());
      kernel();
      EXPECT_THAT(engine.GradReady(*id, lane), IsOk());
    }
    EXPECT_THAT(engine.Step(0.01), IsOk());
  }
};

// Streams wait for each other on the device. The host records and asks, which
// takes a microsecond, and never waits; all by the access.
TEST_F(CudaStepTest, NoThreadWaitsInAStepOfDeviceAndHost) {
  ZeroOptions clipped = Roomy(3);
  clipped.device_budget = KiB(128);
  clipped.clip_norm = 0.5;
  ZeroOptions half = Roomy(3);
  half.device_budget = KiB(600);
  for (const ZeroOptions& options : {Roomy(3), half, clipped}) {
    SCOPED_TRACE(testing::Message() << "device " << options.device_budget);
    const StepCalls calls = Measure(options);
    EXPECT_EQ(calls.blocks, 0);
    EXPECT_LE(calls.waits, 4 * kAccesses);
    EXPECT_LE(calls.records, 4 * kAccesses);
    EXPECT_LE(calls.queries, 8 * kAccesses);
  }
}

TEST_F(CudaStepTest, EveryTransferIsRecorded) {
  ZeroOptions host = Roomy(3);
  host.device_budget = KiB(128);
  Measure(host, true);
  Measure(Tight(3, KiB(128), KiB(256)), true);
}

// As torch does: one hardware queue, kernels that are loaded at their first
// launch while copies are under way, more launches than the queue takes, and
// chunks that come late, from a drive.
TEST_F(CudaStepTest, AStreamOfTorchsNeverStandsStill) {
  const ToyModel model = MakeToyModel(61, 24, 2000, DType::kBF16);
  ToyRun run;
  run.micro_batches = 2;
  ZeroOptions options = Tight(3, KiB(128), KiB(256));
  options.clip_norm = 0.05;
  for (const int world : {1, 2}) {
    const ToyResult want = TrainToy(model, run, world, options);
    for (const int queues : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << queues << " queues, " << world);
      ExpectEqual(
          TrainToyOnGpus(
              model, run, world, options,
              {.hardware_queues = queues, .launches = 16, .loads_each = 5}),
          want);
    }
  }
}

}  // namespace
}  // namespace castor
