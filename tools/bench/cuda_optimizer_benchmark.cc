// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The kernels of a device against the device's own copy within its memory, in
// turns: a kernel that reads and writes N bytes in all against a copy of N / 2.
// `of_copy` is the median of the ratios. The optimizer counts what a parameter
// costs: 28 bytes with bf16 gradients, fp32 parameter and moments, and the bf16
// parameter written. bench_device.h says which device.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "chunk/base/dtype.h"
#include "chunk/base/units.h"
#include "offload/device.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/optimizer.h"
#include "offload/kernels/optimizer_options.h"
#include "offload/memory/slab.h"
#include "tools/bench/support/bench_device.h"
#include "tools/measure/samples.h"

namespace castor {
namespace {

constexpr int kPerTurn = 10;  // so that the wait is of no weight

// Far beyond any cache of a GPU.
Elements Many() {
  return Elements(int64_t{1} << (BenchDevice::IsSimulated() ? 20 : 27));
}

// A device, and memory to work on.
struct Bench {
  explicit Bench(benchmark::State& state) : on(BenchDevice::Open(state)) {}

  std::byte* Take(Bytes size) {
    slabs.push_back(on->device().MakeSlab(size).value());
    return slabs.back().data();
  }
  double Seconds(const std::function<void()>& queue) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kPerTurn; ++i) queue();
    on->Drain();
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - begin).count();
  }

  const std::unique_ptr<BenchDevice> on;  // null: skipped
  std::vector<Slab> slabs;
};

// `queue` reads and writes `bytes` in all.
void AgainstCopy(benchmark::State& state, Bench& bench, Bytes bytes,
                 const std::function<void()>& queue) {
  std::byte* const to = bench.Take(bytes / 2);
  const std::byte* const from = bench.Take(bytes / 2);
  const auto copy = [&] {
    bench.on->device().Copy(bench.on->lane(), to, from, bytes / 2,
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
  state.counters["kernel_B/s"] = MedianOf(kernel_rates);
  state.counters["copy_B/s"] = MedianOf(copy_rates);
  state.counters["of_copy"] = MedianOf(ratios);
}

void BM_Optimizer(benchmark::State& state, OptimizerKind kind) {
  Bench bench(state);
  if (bench.on == nullptr) return;
  const OptimizerOptions options = DefaultOptimizerOptions(kind);
  const int moments = MomentsOf(options);
  OptimizerBuffers buffers;
  buffers.grad = bench.Take(BytesOf(Many(), DType::kBF16));
  buffers.grad_dtype = DType::kBF16;
  buffers.param =
      reinterpret_cast<float*>(bench.Take(BytesOf(Many(), DType::kF32)));
  if (moments > 0) buffers.exp_avg = bench.Take(BytesOf(Many(), DType::kF32));
  if (moments > 1) {
    buffers.exp_avg_sq = bench.Take(BytesOf(Many(), DType::kF32));
  }
  buffers.low = bench.Take(BytesOf(Many(), DType::kBF16));
  const OptimizerScalars scalars = ComputeOptimizerScalars(options, 10);
  const Bytes bytes = Bytes(12 + 8 * moments) * Many().count();
  AgainstCopy(state, bench, bytes, [&] {
    bench.on->device().Optimize(bench.on->lane(), buffers, Many(), scalars,
                                1.0f);
  });
}

void BM_AddSquares(benchmark::State& state, DType dtype) {
  Bench bench(state);
  if (bench.on == nullptr) return;
  const std::byte* const grad = bench.Take(BytesOf(Many(), dtype));
  auto* const words = reinterpret_cast<uint64_t*>(
      bench.Take(Bytes(int64_t{8} * ExactSum::kWords)));
  AgainstCopy(state, bench, BytesOf(Many(), dtype), [&] {
    bench.on->device().AddSquares(bench.on->lane(), grad, dtype, Many(), words);
  });
}

void BM_Convert(benchmark::State& state, DType from_dtype, DType to_dtype) {
  Bench bench(state);
  if (bench.on == nullptr) return;
  const std::byte* const from = bench.Take(BytesOf(Many(), from_dtype));
  std::byte* const to = bench.Take(BytesOf(Many(), to_dtype));
  const Bytes bytes = BytesOf(Many(), from_dtype) + BytesOf(Many(), to_dtype);
  AgainstCopy(state, bench, bytes, [&] {
    bench.on->device().Convert(bench.on->lane(), from, from_dtype, to, to_dtype,
                               Many());
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
