// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The kernels of CudaDevice against the device's own copy within its memory, in
// turns: a kernel that reads and writes N bytes in all against a copy of N / 2.
// `of_copy` is the median of the ratios. The optimizer counts what a parameter
// costs: 28 bytes with bf16 gradients, fp32 parameter and moments, and the bf16
// parameter written. Skipped, with the reason, on a machine without a GPU.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/check.h"
#include "chunk/base/dtype.h"
#include "chunk/base/status.h"
#include "chunk/base/units.h"
#include "offload/cuda/cuda_device.h"
#include "offload/cuda/cuda_runtime_calls.h"
#include "offload/device.h"
#include "offload/executor.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/lane.h"
#include "offload/slab.h"

namespace castor {
namespace {

constexpr Elements kMany(int64_t{1} << 27);  // far beyond any cache
constexpr int kPerTurn = 10;                 // so that the wait is of no weight

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A device, a lane, and memory to work on.
struct Bench {
  std::byte* Take(Bytes size) {
    slabs.push_back(device->MakeSlab(size).value());
    return slabs.back().data();
  }
  double Seconds(const std::function<void()>& queue) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kPerTurn; ++i) queue();
    CASTOR_CHECK(lane->Drain().ok());
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - begin).count();
  }

  ThreadPool executor{1};
  std::unique_ptr<CudaDevice> device;
  std::vector<Slab> slabs;
  std::unique_ptr<Lane> lane;
};

std::unique_ptr<Bench> Open(benchmark::State& state) {
  auto bench = std::make_unique<Bench>();
  Result<std::unique_ptr<CudaDevice>> opened =
      CudaDevice::Open(CudaRuntimeCalls(), {.executor = &bench->executor});
  if (!opened.ok()) {
    state.SkipWithError(opened.status().ToString().c_str());
    return nullptr;
  }
  bench->device = *std::move(opened);
  bench->lane = bench->device->MakeLane("bench");
  return bench;
}

// `queue` reads and writes `bytes` in all.
void AgainstCopy(benchmark::State& state, Bench& bench, Bytes bytes,
                 const std::function<void()>& queue) {
  std::byte* const to = bench.Take(bytes / 2);
  const std::byte* const from = bench.Take(bytes / 2);
  const auto copy = [&] {
    bench.device->Copy(*bench.lane, to, from, bytes / 2,
                       CopyKind::kWithinDevice);
  };
  bench.Seconds(queue);
  bench.Seconds(copy);
  const double moved = static_cast<double>(bytes.count()) * kPerTurn;
  std::vector<double> kernel_rates, copy_rates, ratios;
  for (auto _ : state) {
    const double kernel_time = bench.Seconds(queue);
    const double copy_time = bench.Seconds(copy);
    state.SetIterationTime(kernel_time / kPerTurn);
    kernel_rates.push_back(moved / kernel_time);
    copy_rates.push_back(moved / copy_time);
    ratios.push_back(copy_time / kernel_time);
  }
  state.counters["kernel_B/s"] = Median(kernel_rates);
  state.counters["copy_B/s"] = Median(copy_rates);
  state.counters["of_copy"] = Median(ratios);
}

void BM_Optimizer(benchmark::State& state, OptimizerKind kind) {
  const std::unique_ptr<Bench> bench = Open(state);
  if (bench == nullptr) return;
  const OptimizerOptions options = DefaultOptimizerOptions(kind);
  const int moments = MomentsOf(options);
  OptimizerBuffers buffers;
  buffers.grad = bench->Take(BytesOf(kMany, DType::kBF16));
  buffers.grad_dtype = DType::kBF16;
  buffers.param =
      reinterpret_cast<float*>(bench->Take(BytesOf(kMany, DType::kF32)));
  if (moments > 0) buffers.exp_avg = bench->Take(BytesOf(kMany, DType::kF32));
  if (moments > 1) {
    buffers.exp_avg_sq = bench->Take(BytesOf(kMany, DType::kF32));
  }
  buffers.low = bench->Take(BytesOf(kMany, DType::kBF16));
  const OptimizerScalars scalars = ComputeOptimizerScalars(options, 10);
  const Bytes bytes = Bytes(12 + 8 * moments) * kMany.count();
  AgainstCopy(state, *bench, bytes, [&] {
    bench->device->Optimize(*bench->lane, buffers, kMany, scalars, 1.0f);
  });
}

void BM_AddSquares(benchmark::State& state, DType dtype) {
  const std::unique_ptr<Bench> bench = Open(state);
  if (bench == nullptr) return;
  const std::byte* const grad = bench->Take(BytesOf(kMany, dtype));
  auto* const words = reinterpret_cast<uint64_t*>(
      bench->Take(Bytes(int64_t{8} * ExactSum::kWords)));
  AgainstCopy(state, *bench, BytesOf(kMany, dtype), [&] {
    bench->device->AddSquares(*bench->lane, grad, dtype, kMany, words);
  });
}

void BM_Convert(benchmark::State& state, DType from_dtype, DType to_dtype) {
  const std::unique_ptr<Bench> bench = Open(state);
  if (bench == nullptr) return;
  const std::byte* const from = bench->Take(BytesOf(kMany, from_dtype));
  std::byte* const to = bench->Take(BytesOf(kMany, to_dtype));
  const Bytes bytes = BytesOf(kMany, from_dtype) + BytesOf(kMany, to_dtype);
  AgainstCopy(state, *bench, bytes, [&] {
    bench->device->Convert(*bench->lane, from, from_dtype, to, to_dtype, kMany);
  });
}

void Configure(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Iterations(11)->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(BM_Optimizer, adamw, OptimizerKind::kAdamW)->Apply(Configure);
BENCHMARK_CAPTURE(BM_Optimizer, sgd, OptimizerKind::kSgd)->Apply(Configure);
BENCHMARK_CAPTURE(BM_Optimizer, lion, OptimizerKind::kLion)->Apply(Configure);
BENCHMARK_CAPTURE(BM_AddSquares, bf16, DType::kBF16)->Apply(Configure);
BENCHMARK_CAPTURE(BM_AddSquares, fp32, DType::kF32)->Apply(Configure);
BENCHMARK_CAPTURE(BM_Convert, bf16_to_fp32, DType::kBF16, DType::kF32)
    ->Apply(Configure);
BENCHMARK_CAPTURE(BM_Convert, fp32_to_bf16, DType::kF32, DType::kBF16)
    ->Apply(Configure);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
