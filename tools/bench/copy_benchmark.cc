// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Copies of a device, queued on lanes, against bare ones of the same size
// between the same buffers, in turns: cudaMemcpyAsync on a GPU, memcpy on the
// thread that serves the lane on the simulated device. `of_bare` is the median
// of the ratios of their times. Each turn moves many MiB per direction and
// waits once, so what one copy costs beyond its bytes shows where copies are
// small. bench_device.h says which device.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_calls.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/device.h"
#include "offload/lane.h"
#include "offload/memory/slab.h"
#include "tools/bench/support/bench_device.h"
#include "tools/measure/samples.h"

namespace castor {
namespace {

enum Direction { kTo, kFrom, kBoth };

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// One direction: a lane, a bare stream, and buffers that both use.
struct Link {
  Link(BenchDevice& bench, Bytes size, CopyKind copy_kind)
      : kind(copy_kind),
        lane(bench.device().MakeLane("copy")),
        on_device(bench.device().MakeSlab(size).value()),
        on_host(bench.device().MakeHostSlab(size, {}).value()),
        stream(bench.MakeStream()) {
    const bool to_device = kind == CopyKind::kToDevice;
    to = to_device ? on_device.data() : on_host.data();
    from = to_device ? on_host.data() : on_device.data();
  }

  void QueueMemcpy(int64_t copies) {
    lane->Run([this, copies] {
      for (int64_t i = 0; i < copies; ++i) {
        std::memcpy(to, from, static_cast<size_t>(on_host.size().count()));
        benchmark::ClobberMemory();
      }
      return OkStatus();
    });
  }
  void Drain() {
    if (stream != nullptr) {
      MustSucceed(CudaRuntimeCalls()->StreamSynchronize(stream));
    }
    CASTOR_CHECK(lane->Drain().ok());
  }

  CopyKind kind;
  std::unique_ptr<Lane> lane;
  Slab on_device;
  Slab on_host;
  CudaStream stream;
  std::byte* to;
  const std::byte* from;
};

void BM_Copy(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench = BenchDevice::Open(state);
  if (bench == nullptr) return;
  const Bytes size = MiB(state.range(0));
  const auto direction = static_cast<Direction>(state.range(1));
  std::vector<std::unique_ptr<Link>> links;
  if (direction != kFrom) {
    links.push_back(std::make_unique<Link>(*bench, size, CopyKind::kToDevice));
  }
  if (direction != kTo) {
    links.push_back(
        std::make_unique<Link>(*bench, size, CopyKind::kFromDevice));
  }
  const int64_t copies =
      CeilDiv(BenchDevice::IsSimulated() ? MiB(64) : MiB(512), size);
  const auto castor = [&] {
    for (int64_t i = 0; i < copies; ++i) {
      for (const auto& link : links) {
        bench->device().Copy(*link->lane, link->to, link->from, size,
                             link->kind);
      }
    }
    for (const auto& link : links) link->Drain();
  };
  const auto bare = [&] {
    for (const auto& link : links) {
      if (link->stream == nullptr) link->QueueMemcpy(copies);
    }
    for (int64_t i = 0; i < copies; ++i) {
      for (const auto& link : links) {
        if (link->stream == nullptr) continue;
        MustSucceed(CudaRuntimeCalls()->MemcpyAsync(
            link->to, link->from, size.count(), link->stream));
      }
    }
    for (const auto& link : links) link->Drain();
  };
  castor();
  bare();
  const double bytes =
      static_cast<double>(size.count() * copies) * std::ssize(links);
  std::vector<double> castor_rates, bare_rates, ratios;
  for (auto _ : state) {
    const double castor_time = Seconds(castor);
    const double bare_time = Seconds(bare);
    state.SetIterationTime(castor_time);
    castor_rates.push_back(bytes / castor_time);
    bare_rates.push_back(bytes / bare_time);
    ratios.push_back(bare_time / castor_time);
  }
  state.counters["castor_B/s"] = MedianOf(castor_rates);
  state.counters["bare_B/s"] = MedianOf(bare_rates);
  state.counters["of_bare"] = MedianOf(ratios);
}
BENCHMARK(BM_Copy)
    ->ArgNames({"MiB", "direction"})
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                   {kTo, kFrom, kBoth}})
    ->UseManualTime()
    ->Iterations(11)
    ->Unit(benchmark::kMillisecond);

// An operation that does next to nothing: queued, run, and its event done.
void BM_OperationOfNothing(benchmark::State& state) {
  const std::unique_ptr<BenchDevice> bench = BenchDevice::Open(state);
  if (bench == nullptr) return;
  constexpr int64_t kOperations = 1000;
  const Slab slab = bench->device().MakeSlab(KiB(4)).value();
  for (auto _ : state) {
    for (int64_t i = 0; i < kOperations; ++i) {
      bench->device().Zero(bench->lane(), slab.data(), Bytes(1));
    }
    bench->Drain();
  }
  state.SetItemsProcessed(state.iterations() * kOperations);
}
BENCHMARK(BM_OperationOfNothing)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
