// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// Copies of CudaDevice, queued on lanes, against bare cudaMemcpyAsync of the
// same size between the same buffers, in turns: `of_bare` is the median of the
// ratios of their times. Each turn moves at least 512 MiB per direction and
// waits once, so what one copy costs beyond its bytes shows where copies are
// small. Skipped, with the reason, on a machine without a GPU.

#include <benchmark/benchmark.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/lane.h"
#include "offload/slab.h"

namespace castor {
namespace {

constexpr Bytes kTurn = MiB(512);

enum Direction { kTo, kFrom, kBoth };

double Seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void MustSucceed(cudaError_t error) { CASTOR_CHECK_EQ(error, cudaSuccess); }

// One direction: a lane, a bare stream, and buffers that both use.
struct Link {
  Link(Device& device, Bytes size, CopyKind copy_kind)
      : kind(copy_kind),
        lane(device.MakeLane("copy")),
        on_device(device.MakeSlab(size).value()),
        on_host(device.MakeHostSlab(size, {}).value()) {
    MustSucceed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Link() { cudaStreamDestroy(stream); }

  std::byte* to() {
    return kind == CopyKind::kToDevice ? on_device.data() : on_host.data();
  }
  const std::byte* from() {
    return kind == CopyKind::kToDevice ? on_host.data() : on_device.data();
  }

  CopyKind kind;
  std::unique_ptr<Lane> lane;
  Slab on_device;
  Slab on_host;
  cudaStream_t stream = nullptr;
};

void BM_Copy(benchmark::State& state) {
  ThreadPool executor(1);
  Result<std::unique_ptr<CudaDevice>> opened =
      CudaDevice::Open(CudaRuntimeCalls(), {.executor = &executor});
  if (!opened.ok()) {
    state.SkipWithError(opened.status().ToString().c_str());
    return;
  }
  Device& device = **opened;
  const Bytes size = MiB(state.range(0));
  const auto direction = static_cast<Direction>(state.range(1));
  std::vector<std::unique_ptr<Link>> links;
  if (direction != kFrom) {
    links.push_back(std::make_unique<Link>(device, size, CopyKind::kToDevice));
  }
  if (direction != kTo) {
    links.push_back(
        std::make_unique<Link>(device, size, CopyKind::kFromDevice));
  }
  const int64_t copies = CeilDiv(kTurn, size);
  const auto castor = [&] {
    for (int64_t i = 0; i < copies; ++i) {
      for (const auto& link : links) {
        device.Copy(*link->lane, link->to(), link->from(), size, link->kind);
      }
    }
    for (const auto& link : links) CASTOR_CHECK(link->lane->Drain().ok());
  };
  const auto bare = [&] {
    for (int64_t i = 0; i < copies; ++i) {
      for (const auto& link : links) {
        MustSucceed(cudaMemcpyAsync(link->to(), link->from(),
                                    static_cast<size_t>(size.count()),
                                    cudaMemcpyDefault, link->stream));
      }
    }
    for (const auto& link : links) {
      MustSucceed(cudaStreamSynchronize(link->stream));
    }
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
  state.counters["castor_B/s"] = Median(castor_rates);
  state.counters["bare_B/s"] = Median(bare_rates);
  state.counters["of_bare"] = Median(ratios);
}
BENCHMARK(BM_Copy)
    ->ArgNames({"MiB", "direction"})
    ->ArgsProduct({{1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
                   {kTo, kFrom, kBoth}})
    ->UseManualTime()
    ->Iterations(11)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
