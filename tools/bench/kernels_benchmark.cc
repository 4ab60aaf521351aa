// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The Castor Authors

// The host kernels that move gradients and parameters about, in bytes per
// second; optimizer_benchmark.cc has the optimizers.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "chunk/base/dtype.h"
#include "offload/kernels/convert.h"
#include "offload/kernels/exact_sum.h"
#include "offload/kernels/reduce.h"

namespace castor {
namespace {

constexpr int64_t kMany = int64_t{1} << 23;  // well beyond any cache

void BM_AddSquares(benchmark::State& state) {
  const DType dtype = state.range(0) == 2 ? DType::kBF16 : DType::kF32;
  const std::vector<uint16_t> grad(kMany * state.range(0) / 2, 0x3C00);
  for (auto _ : state) {
    ExactSum sum;
    AddSquares(grad.data(), dtype, kMany, &sum);
    benchmark::DoNotOptimize(sum.Total());
  }
  state.SetBytesProcessed(state.iterations() * kMany * state.range(0));
}
BENCHMARK(BM_AddSquares)
    ->ArgName("element_bytes")
    ->Arg(2)
    ->Arg(4)
    ->Unit(benchmark::kMillisecond);

void BM_SumInOrder(benchmark::State& state) {
  const bool is_low = state.range(0) == 2;
  const int64_t sources = state.range(1);
  const int64_t count = kMany / sources;
  const std::vector<std::vector<float>> parts(
      sources, std::vector<float>(is_low ? count / 2 : count, 1));
  std::vector<const void*> pointers;
  for (const std::vector<float>& part : parts) pointers.push_back(part.data());
  std::vector<float> to(count);
  for (auto _ : state) {
    SumInOrder(pointers, is_low ? DType::kBF16 : DType::kF32, count, to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * (sources + 1) * count *
                          state.range(0));
}
BENCHMARK(BM_SumInOrder)
    ->ArgNames({"element_bytes", "sources"})
    ->ArgsProduct({{2, 4}, {2, 8, 64}})
    ->Unit(benchmark::kMillisecond);

void BM_ConvertFromFloat(benchmark::State& state) {
  const std::vector<float> from(kMany, 1);
  std::vector<uint16_t> to(kMany);
  for (auto _ : state) {
    ConvertFromFloat(from.data(), kMany, DType::kBF16, to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kMany * 6);
}
BENCHMARK(BM_ConvertFromFloat)->Unit(benchmark::kMillisecond);

void BM_ConvertToFloat(benchmark::State& state) {
  const std::vector<uint16_t> from(kMany, 0x3C00);
  std::vector<float> to(kMany);
  for (auto _ : state) {
    ConvertToFloat(from.data(), DType::kBF16, kMany, to.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kMany * 6);
}
BENCHMARK(BM_ConvertToFloat)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace castor

BENCHMARK_MAIN();
