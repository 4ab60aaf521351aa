// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// What an access costs the host: acquire and release of a chunk that is on the
// device, through the memory manager alone and through the engine; gather and
// release on two ranks. Times are of the calling thread's processor, so that
// what else runs on the machine does not count.

#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/ids.h"
#include "chunk/base/log.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/event.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "offload/memory_manager.h"
#include "offload/tier_pool.h"

namespace castor {
namespace {

constexpr int kAccessesPerStep = 512;

double Seconds(clockid_t clock) {
  timespec now{};
  CASTOR_CHECK_EQ(clock_gettime(clock, &now), 0);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}
double ThreadSeconds() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }
double ProcessSeconds() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }

void PerCall(benchmark::State& state, const char* name, double seconds) {
  const double calls =
      static_cast<double>(state.iterations()) * kAccessesPerStep;
  state.counters[name] = seconds / calls;
}

// Copies are there at once.
class InstantSource final : public ChunkSource {
 public:
  Event Gather(ChunkId, const Slot&, RunCause, int64_t) override { return {}; }
  std::byte* DirectData(ChunkId) override { return &byte_; }
  Event DirectReady(ChunkId) override { return {}; }
  void DirectUsed(ChunkId, Event) override {}

 private:
  std::byte byte_{};
};

// One iteration is a step of kAccessesPerStep accesses by plan; only they are
// timed. All chunks fit and survive the step.
void BM_ManagerAcquireResident(benchmark::State& state) {
  constexpr int kChunks = 16;
  const bool worker = state.range(0) != 0;
  const std::array classes = {SlotClass{KiB(4), kChunks}};
  TierPool device = *TierPool::Create(Tier::kDevice, MiB(1), classes, nullptr);
  InstantSource source;
  SteadyClock clock;
  MemoryManagerOptions options;
  options.device = &device;
  options.source = &source;
  options.clock = &clock;
  options.problem.param_class.assign(kChunks, 0);
  options.problem.grad_class.assign(kChunks, 0);
  options.problem.fetch_cost.assign(kChunks, 1);
  options.problem.survives_step.assign(kChunks, true);
  options.problem.slots = {kChunks};
  MemoryManager manager(std::move(options));
  ThreadPool pool(1);
  ThreadLane thread_lane("compute");
  WorkerLane worker_lane("compute", &pool);
  Lane& lane = worker ? static_cast<Lane&>(worker_lane) : thread_lane;

  double seconds = 0;
  int32_t step = 0;
  for (auto _ : state) {
    manager.BeginStep(++step);
    const double begin = ThreadSeconds();
    for (int i = 0; i < kAccessesPerStep; ++i) {
      Result<ChunkPin> pin = manager.Acquire(ChunkId(i % kChunks), lane);
      benchmark::DoNotOptimize(pin->data());
    }
    const double took = ThreadSeconds() - begin;
    state.SetIterationTime(took);
    seconds += took;
    CASTOR_CHECK(manager.EndStep().ok());
  }
  PerCall(state, "per_call", seconds);
}
BENCHMARK(BM_ManagerAcquireResident)
    ->ArgName("worker_lane")
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime();

struct Engine {
  std::unique_ptr<ZeroEngine> engine;
  std::vector<ParamId> params;
};

// `count` parameters of 1,024 fp32 elements, a chunk each.
Engine OpenEngine(const ZeroOptions& options, Communicator* communicator,
                  int count) {
  Engine made;
  made.engine = *ZeroEngine::Create(options, communicator);
  for (int p = 0; p < count; ++p) {
    made.params.push_back(*made.engine->Register(
        {"p" + std::to_string(p), {1024}, DType::kF32, true}, {}));
  }
  SealOptions declared;
  declared.held = {{{made.params[0]}, {}},
                   {{made.params[0]}, {made.params[0]}}};
  const Status sealed = made.engine->Seal(declared);
  CASTOR_CHECK(sealed.ok());
  return made;
}

Log& Silent() {
  static Log* const log = new Log([](LogLevel, std::string_view) {});
  return *log;
}

ZeroOptions Options(Executor* executor) {
  ZeroOptions options;
  options.executor = executor;
  options.log = &Silent();
  options.chunk_size = KiB(4);
  options.device_budget = MiB(4);
  options.host_budget = MiB(4);
  return options;
}

// Arg 0: the home of the parameter is the device. Arg 1: it is host memory, and
// a gathered copy is there.
void BM_EngineAcquireResident(benchmark::State& state) {
  constexpr int kParams = 8;
  const bool gathered = state.range(0) != 0;
  ThreadPool pool(1);
  InProcessOptions in_process;
  in_process.executor = &pool;
  auto world = MakeInProcessWorld(in_process);
  ZeroOptions options = Options(&pool);
  if (gathered) options.device_budget = KiB(4) * 4;
  Engine rank = OpenEngine(options, world[0].get(), kParams);
  ThreadLane lane("compute");
  ParamId param;
  const auto use = [&] {
    Result<ParamLease> lease = rank.engine->Acquire({&param, 1}, lane);
    benchmark::DoNotOptimize(lease->data(0));
  };
  // The first whose use gathers or not, as asked for.
  for (const ParamId id : rank.params) {
    const int64_t before = rank.engine->stats().gathers;
    param = id;
    use();
    if ((rank.engine->stats().gathers > before) == gathered) break;
  }

  double seconds = 0;
  for (auto _ : state) {
    CASTOR_CHECK(rank.engine->BeginMicroBatch(true).ok());
    use();
    const int64_t before = rank.engine->stats().gathers;
    const double begin = ThreadSeconds();
    for (int i = 0; i < kAccessesPerStep; ++i) use();
    const double took = ThreadSeconds() - begin;
    CASTOR_CHECK_EQ(rank.engine->stats().gathers, before);
    state.SetIterationTime(took);
    seconds += took;
    CASTOR_CHECK(rank.engine->Step(0.1).ok());
  }
  PerCall(state, "per_call", seconds);
  CASTOR_CHECK(rank.engine->Close().ok());
}
BENCHMARK(BM_EngineAcquireResident)
    ->ArgName("gathered")
    ->Arg(0)
    ->Arg(1)
    ->UseManualTime();

// Chunks of 4 KiB, so that what is measured is the work per gather and not per
// byte: of the thread that asks, and of all threads of both ranks together,
// per gather of one rank.
void BM_GatherAndReleaseOnTwoRanks(benchmark::State& state) {
  constexpr int kParams = 64;
  ThreadPool pool(2);
  InProcessOptions in_process;
  in_process.world = 2;
  in_process.executor = &pool;
  auto world = MakeInProcessWorld(in_process);
  ZeroOptions options = Options(&pool);
  options.prefetch_depth = static_cast<int>(state.range(0));
  options.device_budget = KiB(4) * 8;
  double seconds = 0;
  double process_seconds = 0;
  int64_t gathers = 0;
  std::array<Engine, 2> ranks;
  std::array<std::unique_ptr<WorkerLane>, 2> lanes;
  const auto on_both = [&](const auto& body) {
    std::thread other([&] { body(size_t{1}); });
    body(size_t{0});
    other.join();
  };
  on_both([&](size_t r) {
    ranks[r] = OpenEngine(options, world[r].get(), kParams);
    lanes[r] = std::make_unique<WorkerLane>("compute", &pool);
  });
  const int64_t before = ranks[0].engine->stats().gathers;
  for (auto _ : state) {
    on_both([&](size_t r) {
      CASTOR_CHECK(ranks[r].engine->BeginMicroBatch(true).ok());
      const double process_begin = ProcessSeconds();
      const double begin = ThreadSeconds();
      for (int i = 0; i < kAccessesPerStep; ++i) {
        const ParamId id = ranks[r].params[static_cast<size_t>(i % kParams)];
        Result<ParamLease> lease =
            ranks[r].engine->Acquire({&id, 1}, *lanes[r]);
        benchmark::DoNotOptimize(lease->data(0));
      }
      const double took = ThreadSeconds() - begin;
      CASTOR_CHECK(lanes[r]->Drain().ok());
      if (r == 0) {
        state.SetIterationTime(took);
        seconds += took;
        process_seconds += ProcessSeconds() - process_begin;
      }
      CASTOR_CHECK(ranks[r].engine->Step(0.1).ok());
    });
  }
  gathers = ranks[0].engine->stats().gathers - before;
  PerCall(state, "caller", seconds);
  PerCall(state, "process", process_seconds);
  state.counters["gathers_per_access"] =
      static_cast<double>(gathers) /
      (static_cast<double>(state.iterations()) * kAccessesPerStep);
  on_both([&](size_t r) { CASTOR_CHECK(ranks[r].engine->Close().ok()); });
}
BENCHMARK(BM_GatherAndReleaseOnTwoRanks)
    ->ArgName("prefetch")
    ->Arg(0)
    ->Arg(3)
    ->UseManualTime();

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
