// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Copies of the simulated device, queued on a lane, against as many calls of
// memcpy between the same buffers on the thread that serves the lane, in turns:
// `of_memcpy` is the median of the ratios of their times, `cpu_of_memcpy` of
// the processor time both took, which what else the machine does hardly
// changes. What a device copy costs beyond its bytes, and how close a throttled
// link comes to its model.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "offload/simulated_device.h"
#include "offload/simulated_link.h"
#include "offload/slab.h"
#include "offload/timer.h"
#include "placement/tier_model.h"

namespace castor {
namespace {

using std::chrono::steady_clock;

double SecondsSince(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

// Of all threads of this process.
double CpuSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         static_cast<double>(now.tv_nsec) * 1e-9;
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A device with one slab, and as much host memory.
struct Bench {
  Bench(Bytes size, const SimulatedLinkModels& links)
      : device({.capacity = size * 2,
                .links = links,
                .executor = &pool,
                .timer = &timer}),
        slab(std::move(device.MakeSlab(size)).value()),
        other(std::move(device.MakeSlab(size)).value()),
        host(std::move(device.MakeHostSlab(size, {})).value()),
        lane(device.MakeLane("copy")) {}

  void Copy(CopyKind kind) {
    std::byte* const to =
        kind == CopyKind::kFromDevice ? host.data() : slab.data();
    device.Copy(*lane, to, Source(kind), slab.size(), kind);
  }
  void Memcpy(CopyKind kind, int64_t copies) {
    std::byte* const to =
        kind == CopyKind::kFromDevice ? host.data() : slab.data();
    lane->Run([=, this] {
      for (int64_t i = 0; i < copies; ++i) {
        std::memcpy(to, Source(kind), static_cast<size_t>(slab.size().count()));
        benchmark::ClobberMemory();
      }
      return OkStatus();
    });
  }
  const std::byte* Source(CopyKind kind) {
    if (kind == CopyKind::kToDevice) return host.data();
    return kind == CopyKind::kFromDevice ? slab.data() : other.data();
  }

  ThreadPool pool{1};
  SteadyTimer timer;
  SimulatedDevice device;
  Slab slab;
  Slab other;
  Slab host;
  std::unique_ptr<Lane> lane;
};

// One iteration copies at least 64 MiB each way of doing it.
void BM_CopyAgainstMemcpy(benchmark::State& state) {
  const CopyKind kind = static_cast<CopyKind>(state.range(0));
  const Bytes size = MiB(state.range(1));
  const int64_t copies = std::max<int64_t>(1, MiB(64) / size);
  Bench bench(size, {});
  std::vector<double> memcpy_rates, device_rates, ratios, cpu_ratios;
  const double bytes = static_cast<double>((size * copies).count());
  for (auto _ : state) {
    const double cpu = CpuSeconds();
    auto start = steady_clock::now();
    bench.Memcpy(kind, copies);
    CASTOR_CHECK(bench.lane->Drain().ok());
    const double memcpy_time = SecondsSince(start);
    const double memcpy_cpu = CpuSeconds() - cpu;
    start = steady_clock::now();
    for (int64_t i = 0; i < copies; ++i) bench.Copy(kind);
    CASTOR_CHECK(bench.lane->Drain().ok());
    const double device_time = SecondsSince(start);
    const double device_cpu = CpuSeconds() - cpu - memcpy_cpu;
    state.SetIterationTime(device_time);
    memcpy_rates.push_back(bytes / memcpy_time);
    device_rates.push_back(bytes / device_time);
    ratios.push_back(memcpy_time / device_time);
    cpu_ratios.push_back(memcpy_cpu / device_cpu);
  }
  state.counters["memcpy_B/s"] = Median(memcpy_rates);
  state.counters["device_B/s"] = Median(device_rates);
  state.counters["of_memcpy"] = Median(ratios);
  state.counters["cpu_of_memcpy"] = Median(cpu_ratios);
}
BENCHMARK(BM_CopyAgainstMemcpy)
    ->ArgNames({"kind", "MiB"})
    ->ArgsProduct({{0, 1, 2}, {1, 4, 16, 64, 256, 512}})
    ->UseManualTime()
    ->Iterations(21)
    ->Unit(benchmark::kMillisecond);

// A link of 2 GB/s, which every host outruns: `of_model` is the median of
// modelled over measured time.
void BM_ThrottledCopy(benchmark::State& state) {
  const Bytes size = KiB(state.range(0));
  const LinkModel link = {.bytes_per_second = 2'000'000'000,
                          .latency_ns = 10'000};
  constexpr int64_t kCopies = 8;
  Bench bench(size, {.to_device = link});
  std::vector<double> ratios;
  const double modelled = LinkSeconds(link, kCopies, size * kCopies);
  for (auto _ : state) {
    const auto start = steady_clock::now();
    for (int64_t i = 0; i < kCopies; ++i) bench.Copy(CopyKind::kToDevice);
    CASTOR_CHECK(bench.lane->Drain().ok());
    const double time = SecondsSince(start);
    state.SetIterationTime(time);
    ratios.push_back(modelled / time);
  }
  state.counters["of_model"] = Median(ratios);
}
BENCHMARK(BM_ThrottledCopy)
    ->ArgName("KiB")
    ->Arg(64)
    ->Arg(1024)
    ->Arg(16 * 1024)
    ->UseManualTime()
    ->Iterations(11)
    ->Unit(benchmark::kMillisecond);

// What an operation costs that does nothing: queued, run, and its event done.
void BM_OperationOfNothing(benchmark::State& state) {
  Bench bench(KiB(4), {});
  constexpr int64_t kOperations = 1000;
  for (auto _ : state) {
    for (int64_t i = 0; i < kOperations; ++i) {
      bench.device.Zero(*bench.lane, bench.slab.data(), Bytes(1));
    }
    CASTOR_CHECK(bench.lane->Drain().ok());
  }
  state.SetItemsProcessed(state.iterations() * kOperations);
}
BENCHMARK(BM_OperationOfNothing)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
