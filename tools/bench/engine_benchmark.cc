// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The engine on a device: what an access costs the host where the chunk is on
// the device, and where ranks gather it; what pinned memory, host work between
// a stream's and the issue of a copy cost; and training steps of a billion bf16
// parameters whose states all live on the host. The trainer computes nothing,
// so a step takes as long as its transfers and updates. Accesses and the issue
// of copies are timed by the calling thread's processor, so that what else runs
// does not count. bench_device.h says which device; on the simulated one memory
// to pin and steps are small, to see that they run: those figures mean nothing.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/clock.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/options/option_words.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/lanes/event.h"
#include "offload/memory/slab.h"
#include "offload/memory/tier_pool.h"
#include "offload/memory_manager.h"
#include "offload/record/record_writer.h"
#include "tools/bench/support/bench_device.h"
#include "tools/measure/samples.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

double Since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

double Seconds(clockid_t clock) {
  timespec now{};
  CASTOR_CHECK_EQ(clock_gettime(clock, &now), 0);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}
double ThreadSeconds() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }
double ProcessSeconds() { return Seconds(CLOCK_PROCESS_CPUTIME_ID); }

// What one of `calls` took, in the median of the iterations.
class PerCall {
 public:
  explicit PerCall(int calls) : calls_(calls) {}
  void Add(double seconds) { samples_.push_back(seconds / calls_); }
  void Add(benchmark::State& state, double seconds) {
    state.SetIterationTime(seconds);
    Add(seconds);
  }
  double median() const { return MedianOf(samples_); }

 private:
  const int calls_;
  std::vector<double> samples_;
};

// On a lane of Castor's own, and over a stream of the trainer's.
void OnBothLanes(benchmark::internal::Benchmark* run) {
  run->ArgName("adopted")->Arg(0)->Arg(1)->UseManualTime()->Unit(
      benchmark::kMillisecond);
}

// Pages made, zeroed and pinned.
void BM_Pin(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench = BenchDevice::Open(state);
  if (bench == nullptr) return;
  const Bytes size = BenchDevice::IsSimulated() ? MiB(64) : GiB(state.range(0));
  HostSlabFacts facts;
  for (auto _ : state) {
    const auto begin = steady_clock::now();
    Result<Slab> slab = bench->device().MakeHostSlab(size, {}, &facts);
    if (!slab.ok()) {
      state.SkipWithError(slab.status().ToString().c_str());
      return;
    }
    const double took = Since(begin);
    state.SetIterationTime(took);
    state.counters["B/s"] = static_cast<double>(size.count()) / took;
  }
  state.counters["pinned"] = facts.registered ? 1 : 0;
}
BENCHMARK(BM_Pin)
    ->ArgName("GiB")
    ->Arg(1)
    ->Arg(16)
    ->Arg(64)
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

// Host work between two points of a stream: from the stream's getting there to
// its going on.
void BM_HostHop(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench =
      BenchDevice::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  constexpr int kHops = 200;
  PerCall hop(kHops);
  for (auto _ : state) {
    const auto begin = steady_clock::now();
    for (int i = 0; i < kHops; ++i) {
      bench->lane().Run([] { return OkStatus(); });
    }
    bench->Drain();
    hop.Add(state, Since(begin));
  }
  state.counters["per_call"] = hop.median();
}
BENCHMARK(BM_HostHop)->Apply(OnBothLanes)->Iterations(5);

// What queueing a copy and recording its end takes of the calling thread.
void BM_IssueCopy(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench =
      BenchDevice::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  constexpr int kCopies = 256;
  PerCall issue(kCopies);
  const Bytes size = KiB(64);
  const Slab to = bench->device().MakeSlab(size).value();
  const Slab from = bench->device().MakeHostSlab(size, {}).value();
  for (auto _ : state) {
    const double begin = ThreadSeconds();
    for (int i = 0; i < kCopies; ++i) {
      bench->device().Copy(bench->lane(), to.data(), from.data(), size,
                           CopyKind::kToDevice);
      benchmark::DoNotOptimize(bench->lane().Record());
    }
    issue.Add(state, ThreadSeconds() - begin);
    bench->Drain();
  }
  state.counters["per_call"] = issue.median();
}
BENCHMARK(BM_IssueCopy)->Apply(OnBothLanes)->Iterations(20);

// Layers of the same matrices. Each layer is held as one.
struct Model {
  int layers = 0;
  std::vector<std::pair<int64_t, int64_t>> matrices;
  DType dtype = DType::kBF16;

  int64_t parameters() const {
    int64_t layer = 0;
    for (const auto& [rows, columns] : matrices) layer += rows * columns;
    return layer * layers;
  }
};

// 12 d^2 parameters a layer.
Model Transformer(int layers, int64_t d) {
  return {layers, {{3 * d, d}, {d, d}, {4 * d, d}, {d, 4 * d}}};
}

constexpr Bytes kSmallChunk = KiB(4);

// Of fp32, a chunk each.
Model SmallChunks(int count) { return {count, {{1024, 1}}, DType::kF32}; }

struct Training {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<FileRecorder> recorder;
  std::unique_ptr<ZeroEngine> engine;
  std::vector<std::vector<ParamId>> layers;

  Status Seal(const Model& model, const ZeroOptions& options) {
    CASTOR_ASSIGN_OR_RETURN(engine,
                            ZeroEngine::Create(options, communicator.get()));
    SealOptions declared;
    for (int i = 0; i < model.layers; ++i) {
      std::vector<ParamId>& layer = layers.emplace_back();
      for (const auto& [rows, columns] : model.matrices) {
        CASTOR_ASSIGN_OR_RETURN(
            const ParamId id,
            engine->Register(
                {std::to_string(i) + "." + std::to_string(layer.size()),
                 {rows, columns},
                 model.dtype,
                 true},
                {}));
        layer.push_back(id);
      }
      declared.held.push_back({layer, {}});
    }
    for (size_t i = layers.size(); i-- > 0;) {
      declared.held.push_back({layers[i], layers[i]});
    }
    return engine->Seal(declared);
  }

  Status Forward(Lane& lane) {
    for (const std::vector<ParamId>& layer : layers) {
      CASTOR_RETURN_IF_ERROR(engine->Acquire(layer, lane).status());
    }
    return OkStatus();
  }

  Status Step(Lane& lane) {
    CASTOR_RETURN_IF_ERROR(engine->BeginMicroBatch(true));
    CASTOR_RETURN_IF_ERROR(Forward(lane));
    for (size_t i = layers.size(); i-- > 0;) {
      CASTOR_ASSIGN_OR_RETURN(ParamLease held,
                              engine->Acquire(layers[i], lane));
      for (const ParamId id : layers[i]) {
        CASTOR_RETURN_IF_ERROR(engine->Grad(id, lane).status());
      }
      held.Release();
      for (const ParamId id : layers[i]) {
        CASTOR_RETURN_IF_ERROR(engine->GradReady(id, lane));
      }
    }
    return engine->Step(1e-4).status();
  }

  // Bytes from the host to the device.
  double fetched() const {
    const EngineStats stats = engine->stats();
    return static_cast<double>(
        stats.moved[TierIndex(Tier::kHost)][TierIndex(Tier::kDevice)].count());
  }
};

// Bytes per second of large copies to the device.
double BareRate(BenchDevice& bench) {
  const Bytes size = MiB(256);
  const Slab to = bench.device().MakeSlab(size).value();
  const Slab from = bench.device().MakeHostSlab(size, {}).value();
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto begin = steady_clock::now();
    for (int j = 0; j < 4; ++j) {
      bench.device().Copy(bench.lane(), to.data(), from.data(), size,
                          CopyKind::kToDevice);
    }
    bench.Drain();
    best = std::max(best, static_cast<double>(4 * size.count()) / Since(begin));
  }
  return best;
}

ZeroOptions HostOptions(const Model& model, Bytes chunk) {
  const Bytes parameters(model.parameters());
  ZeroOptions options;
  options.chunk_size = chunk;
  // Two chunks and their gradients, and what is fetched ahead: far less than
  // the parameters, where chunks allow it.
  options.device_budget = std::max(chunk * 6, parameters * 2 / 4) + MiB(1);
  options.host_budget = parameters * 24;
  CASTOR_CHECK(ParseLimit("all@device=0%", &options.home_limits).ok());
  return options;
}

// `link_use`: of the link to the device, in forward sweeps without updates.
Status RunSteps(benchmark::State& state, BenchDevice& bench, const Model& model,
                ZeroOptions options, Training* training) {
  const double bare = BareRate(bench);
  CASTOR_RETURN_IF_ERROR(training->Seal(model, options));
  for (int i = 0; i < 2; ++i) {
    CASTOR_RETURN_IF_ERROR(training->Step(bench.lane()));
  }
  const double fetched_before = training->fetched();
  int steps = 0;
  double seconds = 0;
  for (auto _ : state) {
    const auto begin = steady_clock::now();
    CASTOR_RETURN_IF_ERROR(training->Step(bench.lane()));
    state.SetIterationTime(Since(begin));
    seconds += Since(begin);
    ++steps;
  }
  const double fetched = training->fetched() - fetched_before;
  double link = 0;
  {
    constexpr int kSweeps = 4;
    CASTOR_ASSIGN_OR_RETURN(const EvaluateScope scope,
                            training->engine->Evaluate());
    CASTOR_RETURN_IF_ERROR(training->Forward(bench.lane()));
    CASTOR_RETURN_IF_ERROR(bench.lane().Drain());
    const double before = training->fetched();
    const auto begin = steady_clock::now();
    for (int i = 0; i < kSweeps; ++i) {
      CASTOR_RETURN_IF_ERROR(training->Forward(bench.lane()));
    }
    CASTOR_RETURN_IF_ERROR(bench.lane().Drain());
    link = (training->fetched() - before) / Since(begin);
  }
  const EngineStats stats = training->engine->stats();
  state.counters["link_use"] = link / bare;
  state.counters["link_B/s"] = link;
  state.counters["bare_B/s"] = bare;
  state.counters["step_fetched_B"] = fetched / steps;
  state.counters["parameters/s"] =
      static_cast<double>(model.parameters()) * steps / seconds;
  state.counters["stall_ms"] = static_cast<double>(stats.stall_ns) / 1e6;
  state.counters["chunks"] = static_cast<double>(stats.chunks);
  return training->engine->Close();
}

void BM_EngineStep(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench =
      BenchDevice::Open(state, state.range(1) != 0);
  if (bench == nullptr) return;
  // A billion parameters on a GPU.
  const Model model =
      BenchDevice::IsSimulated() ? Transformer(24, 128) : Transformer(51, 1280);
  ZeroOptions options = HostOptions(
      model, BenchDevice::IsSimulated() ? KiB(256) : MiB(state.range(0)));
  options.executor = &bench->pool;
  options.device = &bench->device();
  Training training;
  training.communicator =
      std::move(MakeInProcessWorld({.executor = &bench->pool})[0]);
  const std::string record =
      std::filesystem::temp_directory_path() /
      ("castor-engine-benchmark-" + std::to_string(::getpid()));
  if (state.range(2) != 0) {
    training.recorder = FileRecorder::Create(record).value();
    options.recorder = training.recorder.get();
  }
  const Status status = RunSteps(state, *bench, model, options, &training);
  if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  training.engine = nullptr;
  training.recorder = nullptr;
  std::filesystem::remove(record);
}
BENCHMARK(BM_EngineStep)
    ->ArgNames({"MiB", "adopted", "recorded"})
    ->Args({16, 0, 0})
    ->Args({64, 0, 0})
    ->Args({64, 1, 0})
    ->Args({64, 1, 1})
    ->Args({256, 0, 0})
    ->UseManualTime()
    ->Iterations(4)
    ->Unit(benchmark::kMillisecond);

constexpr int kAccessesPerStep = 512;

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
void BM_ManagerAcquire(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench =
      BenchDevice::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  constexpr int kChunks = 16;
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
  PerCall acquire(kAccessesPerStep);
  int32_t step = 0;
  for (auto _ : state) {
    manager.BeginStep(++step);
    const double begin = ThreadSeconds();
    for (int i = 0; i < kAccessesPerStep; ++i) {
      Result<ChunkPin> pin =
          manager.Acquire(ChunkId(i % kChunks), bench->lane());
      benchmark::DoNotOptimize(pin->data());
    }
    acquire.Add(state, ThreadSeconds() - begin);
    CASTOR_CHECK(manager.EndStep().ok());
  }
  state.counters["per_call"] = acquire.median();
}
BENCHMARK(BM_ManagerAcquire)->Apply(OnBothLanes)->Iterations(100);

ZeroOptions SmallOptions(BenchDevice& bench) {
  ZeroOptions options;
  options.executor = &bench.pool;
  options.device = &bench.device();
  options.chunk_size = kSmallChunk;
  options.device_budget = MiB(4);
  options.host_budget = MiB(4);
  return options;
}

// The same through the engine. `gathered`: the home of the parameter is host
// memory, and a copy of it is on the device.
void BM_Acquire(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench =
      BenchDevice::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  const bool gathered = state.range(1) != 0;
  Training training;
  training.communicator =
      std::move(MakeInProcessWorld({.executor = &bench->pool})[0]);
  ZeroOptions options = SmallOptions(*bench);
  if (gathered) options.device_budget = kSmallChunk * 4;
  const Status sealed = training.Seal(SmallChunks(8), options);
  if (!sealed.ok()) return state.SkipWithError(sealed.ToString().c_str());
  ParamId param;
  const auto use = [&] {
    Result<ParamLease> lease =
        training.engine->Acquire({&param, 1}, bench->lane());
    benchmark::DoNotOptimize(lease->data(0));
  };
  const auto gathers = [&] { return training.engine->stats().gathers; };
  // The first whose use gathers or not, as asked for.
  for (const std::vector<ParamId>& layer : training.layers) {
    const int64_t before = gathers();
    param = layer[0];
    use();
    if ((gathers() > before) == gathered) break;
  }
  PerCall acquire(kAccessesPerStep);
  for (auto _ : state) {
    CASTOR_CHECK(training.engine->BeginMicroBatch(true).ok());
    use();
    const int64_t before = gathers();
    const double begin = ThreadSeconds();
    for (int i = 0; i < kAccessesPerStep; ++i) use();
    acquire.Add(state, ThreadSeconds() - begin);
    CASTOR_CHECK_EQ(gathers(), before);
    CASTOR_CHECK(training.engine->Step(1e-4).ok());
  }
  state.counters["per_call"] = acquire.median();
  CASTOR_CHECK(training.engine->Close().ok());
}
BENCHMARK(BM_Acquire)
    ->ArgNames({"adopted", "gathered"})
    ->ArgsProduct({{0, 1}, {0, 1}})
    ->UseManualTime()
    ->Iterations(100)
    ->Unit(benchmark::kMillisecond);

// Chunks of 4 KiB, so that what is measured is the work per gather and not per
// byte: of the thread that asks, and of all threads of both ranks together,
// per gather of one rank. Skipped where the host cannot address the device's
// memory, in which ranks of one process meet.
void BM_GatherAndReleaseOnTwoRanks(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench = BenchDevice::Open(state);
  if (bench == nullptr) return;
  ZeroOptions options = SmallOptions(*bench);
  options.prefetch.depth = static_cast<int>(state.range(0));
  options.device_budget = kSmallChunk * 8;
  auto world = MakeInProcessWorld({.world = 2, .executor = &bench->pool});
  std::array<std::unique_ptr<Lane>, 2> lanes;
  std::array<Status, 2> sealed;
  std::array<Training, 2> ranks;
  const auto on_both = [&](const auto& body) {
    std::thread other([&] { body(size_t{1}); });
    body(size_t{0});
    other.join();
  };
  on_both([&](size_t r) {
    lanes[r] = bench->device().MakeLane("compute");
    ranks[r].communicator = std::move(world[r]);
    sealed[r] = ranks[r].Seal(SmallChunks(64), options);
  });
  if (!sealed[0].ok()) return state.SkipWithError(sealed[0].ToString().c_str());
  const int64_t before = ranks[0].engine->stats().gathers;
  PerCall caller(kAccessesPerStep), process(kAccessesPerStep);
  for (auto _ : state) {
    on_both([&](size_t r) {
      CASTOR_CHECK(ranks[r].engine->BeginMicroBatch(true).ok());
      const double process_begin = ProcessSeconds();
      const double begin = ThreadSeconds();
      for (size_t i = 0; i < kAccessesPerStep; ++i) {
        Result<ParamLease> lease = ranks[r].engine->Acquire(
            ranks[r].layers[i % ranks[r].layers.size()], *lanes[r]);
        benchmark::DoNotOptimize(lease->data(0));
      }
      const double took = ThreadSeconds() - begin;
      CASTOR_CHECK(lanes[r]->Drain().ok());
      if (r == 0) {
        caller.Add(state, took);
        process.Add(ProcessSeconds() - process_begin);
      }
      CASTOR_CHECK(ranks[r].engine->Step(1e-4).ok());
    });
  }
  state.counters["caller"] = caller.median();
  state.counters["process"] = process.median();
  state.counters["gathers_per_access"] =
      static_cast<double>(ranks[0].engine->stats().gathers - before) /
      (static_cast<double>(state.iterations()) * kAccessesPerStep);
  on_both([&](size_t r) { CASTOR_CHECK(ranks[r].engine->Close().ok()); });
}
BENCHMARK(BM_GatherAndReleaseOnTwoRanks)
    ->ArgName("prefetch")
    ->Arg(0)
    ->Arg(3)
    ->UseManualTime()
    ->Iterations(100)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
