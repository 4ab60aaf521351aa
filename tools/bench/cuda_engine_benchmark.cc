// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The engine on a GPU: what the host pays for pinned memory, for work of its
// own between a stream's, for a copy and for what is on the device already; and
// training steps of a billion bf16 parameters whose states all live on the
// host. The trainer computes nothing, so a step takes as long as its transfers
// and updates. Skipped, with the reason, on a machine without a GPU.
//
// CASTOR_BENCH_DEVICE=simulated runs the same on the simulated device, small,
// to see that it runs; its figures mean nothing.

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/ids.h"
#include "chunk/base/status.h"
#include "chunk/base/tier.h"
#include "chunk/base/units.h"
#include "collectives/communicator.h"
#include "collectives/in_process_communicator.h"
#include "collectives/option_words.h"
#include "collectives/zero_engine.h"
#include "collectives/zero_options.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "offload/record/record_writer.h"
#include "offload/simulated_device.h"
#include "offload/slab.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

bool IsSimulated() {
  const char* const device = std::getenv("CASTOR_BENCH_DEVICE");
  return device != nullptr && std::string_view(device) == "simulated";
}

double Since(steady_clock::time_point begin) {
  return std::chrono::duration<double>(steady_clock::now() - begin).count();
}

double ThreadSeconds() {
  timespec now{};
  CASTOR_CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

// A device, and a lane of Castor's own or over a stream of the trainer's.
class Bench {
 public:
  // Null, and the benchmark skipped, where there is no GPU.
  static std::unique_ptr<Bench> Open(benchmark::State& state, bool adopted) {
    auto bench = std::make_unique<Bench>();
    if (IsSimulated()) {
      bench->device_ = std::make_unique<SimulatedDevice>(
          SimulatedDeviceOptions{.capacity = GiB(1), .executor = &bench->pool});
    } else {
      Result<std::unique_ptr<CudaDevice>> opened =
          CudaDevice::Open(CudaRuntimeCalls(), {.executor = &bench->pool});
      if (!opened.ok()) {
        state.SkipWithError(opened.status().ToString().c_str());
        return nullptr;
      }
      bench->device_ = *std::move(opened);
      if (adopted) {
        CASTOR_CHECK_EQ(CudaRuntimeCalls()->StreamCreate(&bench->stream_),
                        kCudaOk);
      }
    }
    bench->lane_ = bench->stream_ != nullptr
                       ? *bench->device().AdoptStream(bench->stream_, "trainer")
                       : bench->device().MakeLane("compute");
    return bench;
  }
  ~Bench() {
    lane_ = nullptr;
    if (stream_ != nullptr) CudaRuntimeCalls()->StreamDestroy(stream_);
  }

  Device& device() { return *device_; }
  Lane& lane() { return *lane_; }
  void Drain() { CASTOR_CHECK(lane_->Drain().ok()); }

  ThreadPool pool{4};

 private:
  std::unique_ptr<Device> device_;
  CudaStream stream_ = nullptr;
  std::unique_ptr<Lane> lane_;
};

// On a lane of Castor's own, and over a stream of the trainer's.
void OnBothLanes(benchmark::internal::Benchmark* run) {
  run->ArgName("adopted")->Arg(0)->Arg(1)->UseManualTime()->Unit(
      benchmark::kMillisecond);
}

// Pages made, zeroed and pinned.
void BM_Pin(benchmark::State& state) {
  const std::unique_ptr<Bench> bench = Bench::Open(state, false);
  if (bench == nullptr) return;
  const Bytes size = IsSimulated() ? MiB(64) : GiB(state.range(0));
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
  const std::unique_ptr<Bench> bench = Bench::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  constexpr int kHops = 200;
  for (auto _ : state) {
    const auto begin = steady_clock::now();
    for (int i = 0; i < kHops; ++i) {
      bench->lane().Run([] { return OkStatus(); });
    }
    bench->Drain();
    const double took = Since(begin);
    state.SetIterationTime(took);
    state.counters["per_call"] = took / kHops;
  }
}
BENCHMARK(BM_HostHop)->Apply(OnBothLanes)->Iterations(5);

// What queueing a copy and recording its end takes of the calling thread.
void BM_IssueCopy(benchmark::State& state) {
  const std::unique_ptr<Bench> bench = Bench::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  constexpr int kCopies = 256;
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
    const double took = ThreadSeconds() - begin;
    state.SetIterationTime(took);
    state.counters["per_call"] = took / kCopies;
    bench->Drain();
  }
}
BENCHMARK(BM_IssueCopy)->Apply(OnBothLanes)->Iterations(20);

// Layers of four matrices, 12 width^2 parameters each, of bf16. Each layer is
// held as one.
struct Model {
  int64_t width = 1280;
  int layers = 51;  // 1.0027e9 parameters

  int64_t parameters() const { return 12 * width * width * layers; }
};

struct Training {
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<FileRecorder> recorder;
  std::unique_ptr<ZeroEngine> engine;
  std::vector<std::vector<ParamId>> layers;

  Status Seal(const Model& model, const ZeroOptions& options) {
    CASTOR_ASSIGN_OR_RETURN(engine,
                            ZeroEngine::Create(options, communicator.get()));
    SealOptions declared;
    const int64_t d = model.width;
    for (int i = 0; i < model.layers; ++i) {
      std::vector<ParamId>& layer = layers.emplace_back();
      for (const auto& [rows, columns] :
           {std::pair{3 * d, d}, std::pair{d, d}, std::pair{4 * d, d},
            std::pair{d, 4 * d}}) {
        CASTOR_ASSIGN_OR_RETURN(
            const ParamId id,
            engine->Register(
                {std::to_string(i) + "." + std::to_string(layer.size()),
                 {rows, columns},
                 DType::kBF16,
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
double BareRate(Bench& bench) {
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
Status RunSteps(benchmark::State& state, Bench& bench, const Model& model,
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
  const std::unique_ptr<Bench> bench = Bench::Open(state, state.range(1) != 0);
  if (bench == nullptr) return;
  const Model model =
      IsSimulated() ? Model{.width = 128, .layers = 24} : Model();
  ZeroOptions options =
      HostOptions(model, IsSimulated() ? KiB(256) : MiB(state.range(0)));
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

// A chunk that is on the device, acquired and released.
void BM_Acquire(benchmark::State& state) {
  const std::unique_ptr<Bench> bench = Bench::Open(state, state.range(0) != 0);
  if (bench == nullptr) return;
  constexpr int kCalls = 512;
  Training training;
  training.communicator =
      std::move(MakeInProcessWorld({.executor = &bench->pool})[0]);
  ZeroOptions options;
  options.executor = &bench->pool;
  options.device = &bench->device();
  options.chunk_size = KiB(64);
  options.device_budget = MiB(64);
  options.host_budget = MiB(64);
  const Status sealed = training.Seal({.width = 64, .layers = 4}, options);
  if (!sealed.ok()) {
    state.SkipWithError(sealed.ToString().c_str());
    return;
  }
  const std::span<const ParamId> param(training.layers[0].data(), 1);
  for (auto _ : state) {
    CASTOR_CHECK(training.engine->BeginMicroBatch(true).ok());
    const double begin = ThreadSeconds();
    for (int i = 0; i < kCalls; ++i) {
      Result<ParamLease> lease = training.engine->Acquire(param, bench->lane());
      benchmark::DoNotOptimize(lease->data(0));
    }
    const double took = ThreadSeconds() - begin;
    state.SetIterationTime(took);
    state.counters["per_call"] = took / kCalls;
    CASTOR_CHECK(training.engine->Step(1e-4).ok());
  }
  CASTOR_CHECK(training.engine->Close().ok());
}
BENCHMARK(BM_Acquire)->Apply(OnBothLanes)->Iterations(20);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
